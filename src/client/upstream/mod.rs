//! The quota that an upstream service states in its responses.
//!
//! [`answer`] reads the headers of a response, of which [`structured`] parses the structured fields
//! and [`retry_after`] the times. [`pauses`] keeps the pauses that follow.

mod answer;
mod pauses;
mod retry_after;
mod structured;

pub(super) use self::{
    answer::Answers,
    pauses::{CallId, NotReady, Pauses},
};
