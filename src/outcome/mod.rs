//! Charging by outcome, which refunds or settles charges when the response is known.
//!
//! The middleware and the client share this module. [`hooks`] collects the charges that depend on
//! the response. [`settle`] adjusts them when the head of the response has arrived, and
//! when its body has ended. [`ResponseBody`] detects that end.

mod body;
mod hooks;
mod settle;
mod tally;

pub(crate) use self::{
    body::DenialBody,
    hooks::{ResponseHooks, charges},
    settle::{Settled, Settlement, SettlementFuture},
};
pub use self::{body::ResponseBody, tally::Tally};
