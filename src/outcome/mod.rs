//! Charging by outcome, which refunds or settles charges when the response is known.
//!
//! The middleware and [`AdmittedRequest`] share this module. [`settle`] adjusts the charges that depend on the
//! response when the head of the response has arrived, and when its body has ended. [`ResponseBody`] detects that end.

mod admitted;
mod body;
mod settle;

pub use self::{admitted::AdmittedRequest, body::ResponseBody, settle::Tally};
pub(crate) use self::{
    body::DenialBody,
    settle::{BodySettlement, Settlement},
};
