//! Charging by outcome, which refunds or settles charges when the response is known.
//!
//! The middleware and the client share this module. [`settle`] adjusts the charges that depend on the
//! response when the head of the response has arrived, and when its body has ended. [`ResponseBody`] detects that end.

mod body;
mod settle;

pub(crate) use self::{
    body::DenialBody,
    settle::{BodySettlement, Settlement},
};
pub use self::{body::ResponseBody, settle::Tally};
