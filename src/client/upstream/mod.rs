//! The quota that an upstream service states in its responses.
//!
//! [`Pause::of`] reads the headers of a response, and [`structured`] parses the structured fields
//! among them. [`Pauses`] keeps the resulting pauses.

mod headers;
mod pauses;
mod structured;

pub(super) use self::{
    headers::Pause,
    pauses::{CallId, NotReady, Pauses},
};
