//! The store that all processes of the model share: one key, counted by the crate's own algorithms.

use crate::{
    algorithm::{Asked, At, KeyState, Refund, Terms, UnlimitedMemory},
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing},
    quota::Quota,
};

/// A charge that a process sends to the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentCharge {
    pub(super) quota: Quota,
    pub(super) cost: u64,
    /// The most units of a lease, 0 if the charge is none.
    pub(super) lease_up_to: u64,
}

/// The answer of the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) time: Timestamp,
    /// 0 if the charge was denied.
    pub(super) units: u64,
    pub(super) mark: Mark,
    pub(super) standing: Standing,
}

#[derive(Debug, Clone)]
pub(super) struct Shared {
    state: KeyState,
    /// The quota by which a charge counts.
    counted: fn(&Quota) -> Quota,
}

impl Shared {
    pub(super) fn new(quota: &Quota, counted: fn(&Quota) -> Quota) -> Self {
        Self { state: KeyState::new(quota.algorithm()), counted }
    }

    pub(super) fn acquire(&mut self, now: u64, charge: &SentCharge) -> Reply {
        let time = Timestamp::from_micros(now);
        let SentCharge { cost, lease_up_to, .. } = *charge;
        let asked = Asked { cost, max_cost: cost.max(lease_up_to), terms: Terms::Lease };
        let quota = (self.counted)(&charge.quota);
        let ChargeReply { units, mark, standing, .. } =
            self.state.spend(&quota, asked, At { now: time, budget: &UnlimitedMemory });
        Reply { time, units, mark, standing }
    }

    /// Returns the number of units that still counted.
    pub(super) fn refund(&mut self, now: u64, quota: &Quota, units: u64, mark: Mark) -> u64 {
        let quota = (self.counted)(quota);
        let refund = Refund { quota, units, mark };
        self.state.refund(&quota, Timestamp::from_micros(now), &refund)
    }
}
