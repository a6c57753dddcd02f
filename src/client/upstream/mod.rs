//! The quota that an upstream service states in its responses.
//!
//! [`UpstreamHeaders`] reads the headers of a response: [`structured`] parses the structured fields, and
//! [`retry_after`] the times. [`Pauses`] keeps the resulting pauses.

mod headers;
mod pauses;
mod retry_after;
mod structured;

pub(super) use self::{
    headers::UpstreamHeaders,
    pauses::{CallId, NotReady, Pauses},
};
