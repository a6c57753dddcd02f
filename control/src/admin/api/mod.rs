//! The handlers of the JSON API.

mod body;
mod changes;
mod denials;
mod keys;
mod lookup;
mod policies;
mod session;
mod status;
mod trials;

pub(super) use self::{
    changes::reset,
    denials::denials,
    keys::key,
    policies::policies,
    session::{method_not_allowed, not_found, session},
    status::status,
    trials::trials,
};
