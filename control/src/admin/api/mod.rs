//! The handlers of the JSON API.

mod body;
mod changes;
mod keys;
mod lookup;
mod offenders;
mod overrides;
mod policies;
mod session;
mod status;

pub(super) use self::{
    changes::{block, reset, unblock},
    keys::key,
    offenders::{audit, offenders},
    overrides::{overrides, remove_override, set_override},
    policies::{policies, trials},
    session::{method_not_allowed, not_found, session},
    status::{fleet, hits, status},
};
