//! The HTTP API: a [router](router()) over the parts of an [`Api`].
//!
//! A request passes these files in order: `router` finds the handler, `caller` its client, `body` reads and parses
//! the body, `charges` and `policies` find the policies and keys that it names, an endpoint asks the limiter, and `answer` or
//! `problem` writes the response.

mod answer;
mod body;
mod caller;
mod charges;
mod check;
mod policies;
mod receipts;
mod reset;
mod router;
mod settle;
mod state;

use plimsoll_control::web as problem;

pub(crate) use self::{
    body::too_slow, caller::require_full_access, problem::Problem, router::with_fallbacks,
};
pub use self::{
    router::{DOCUMENT, router},
    state::Api,
};
