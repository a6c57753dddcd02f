//! Warnings of misuse: a configuration that works, but hardly as it was meant.
//!
//! Each check looks at the first requests only, and emits at most one event at level `WARN` with the
//! target `tollgate::misuse`. Afterwards it costs a relaxed load of an atomic.

mod events;
mod first_requests;
mod route_watch;

#[cfg(feature = "lookup")]
pub(crate) use self::events::lookup_missing;
pub(crate) use self::{
    events::{charged_twice, every_key_is_new, forwarded_ignored, peer_missing},
    first_requests::FirstRequests,
    route_watch::RouteWatch,
};
