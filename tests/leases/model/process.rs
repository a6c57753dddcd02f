//! One process of the model: its clock, its stock, its renewals, and the checks that wait for them.

use super::super::{
    grants::Leftovers,
    stock::{RenewalRequest, Stock},
};
use crate::quota::Quota;

/// A clock that runs at a rate of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct SkewedClock {
    pub(super) origin: u64,
    /// The rate less 1, in units of 10^-9.
    pub(super) skew_ppb: i64,
}

impl SkewedClock {
    /// Returns the reading of the clock at a time of the store.
    pub(super) fn read(self, now: u64) -> u64 {
        let skew = i128::from(now) * i128::from(self.skew_ppb) / 1_000_000_000;
        (i128::from(self.origin) + i128::from(now) + skew) as u64
    }
}

/// A denial that the process remembers, as the deny cache does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownDenial {
    pub(super) cost: u64,
    pub(super) until: u64,
}

/// A check that waits for a renewal.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingCheck {
    pub(super) number: u64,
    pub(super) cost: u64,
    /// The number of its waits.
    pub(super) waits: u32,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) clock: SkewedClock,
    pub(super) quota: Quota,
    pub(super) stock: Stock,
    /// The number of crashes. Whatever belongs to an earlier life is dropped.
    pub(super) life: u32,
    pub(super) generation: u64,
    pub(super) frozen_until: u64,
    pub(super) waiting: Vec<WaitingCheck>,
    /// The renewals whose tasks have not been polled, and their quotas.
    pub(super) unpolled: Vec<(RenewalRequest, Quota)>,
    pub(super) denial: KnownDenial,
    /// The moving average of the times of the store.
    pub(super) round_trip: u64,
    /// The part of a microsecond that the times between its checks have lost.
    pub(super) rounded_off: f64,
}

impl Process {
    pub(super) fn new(clock: SkewedClock, quota: Quota, now: u64) -> Self {
        let mut stock = Stock::new(quota, 0, clock.read(now));
        stock.set_debt_marks(has_debt_marks(&quota));
        Self {
            clock,
            quota,
            stock,
            life: 0,
            generation: 0,
            frozen_until: 0,
            waiting: Vec::new(),
            unpolled: Vec::new(),
            denial: KnownDenial::default(),
            round_trip: 1_000,
            rounded_off: 0.0,
        }
    }

    /// Begins a new life with the same clock and quota.
    pub(super) fn restart(&mut self, now: u64) {
        let Self { clock, quota, life, .. } = *self;
        *self = Self { life: life + 1, ..Self::new(clock, quota, now) };
    }

    /// Replaces the quota, and returns the units of the old one.
    pub(super) fn change(&mut self, quota: Quota, now: u64) -> Leftovers {
        self.quota = quota;
        self.generation += 1;
        self.denial = KnownDenial::default();
        let leftovers = self.stock.change_quota(quota, self.generation, self.clock.read(now));
        self.stock.set_debt_marks(has_debt_marks(&quota));
        leftovers
    }
}

fn has_debt_marks(quota: &Quota) -> bool {
    quota.algorithm().has_debt_marks()
}
