//! Charging by outcome: refunding or settling charges when the response is known.
//!
//! The middleware and the client share this module. [`hooks`] notes which charges depend on the
//! response, [`settle`] adjusts them when its head has arrived, and [`body_settlement`] when its
//! body has ended, which [`ResponseBody`] reports.

mod body;
mod body_settlement;
mod hooks;
mod settle;
mod tally;

pub use self::{body::ResponseBody, tally::Tally};
pub(crate) use self::{
    hooks::{ResponseHooks, charges},
    settle::{Settled, Settlement, SettlementFuture},
};
