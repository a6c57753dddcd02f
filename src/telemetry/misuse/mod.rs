//! Warnings of misuse: configurations that work, but probably not as intended.
//!
//! Each check looks at the first requests only, and emits at most one event at level `WARN` with the
//! target `plimsoll::misuse`. After these requests, it costs one relaxed load of an atomic.

mod events;
mod first_requests;

pub(crate) use self::{
    events::{charged_twice, every_key_is_new, forwarded_ignored, peer_missing},
    first_requests::{FirstRequests, RouteWatch},
};
