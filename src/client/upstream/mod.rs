//! The quota that an upstream service states in its responses.
//!
//! [`UpstreamHeaders`] reads the headers of a response, and [`structured`] parses the structured fields
//! among them. [`Pauses`] keeps the resulting pauses.

mod headers;
mod pauses;
mod structured;

pub(super) use self::{
    headers::UpstreamHeaders,
    pauses::{CallId, NotReady, Pauses},
};
