//! The answer of a store to one charge.

use super::{Mark, Standing};

/// What a [`Store`](crate::store::Store) answers to one charge.
#[derive(Debug, Clone, Copy)]
pub struct ChargeReply {
    /// Whether the charge by itself passes.
    pub verdict: Verdict,
    /// Units spent, or given back.
    pub units: u64,
    /// Where the key stands now.
    pub standing: Standing,
    /// What the store needs to give the units back.
    pub mark: Mark,
}

/// The outcome of one charge, apart from what the others in its check did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// There are enough units.
    Passed,
    /// There are not enough units now.
    Refused,
    /// There can never be enough: the cost exceeds the capacity.
    OverCapacity,
}
