//! The turn of a charge in a queue: the time at which its units are free if others, who wait for the same
//! key, are charged before it.
//!
//! A store tells the wait for at most a whole capacity of units, and tells it as if nothing else is charged. So
//! it is asked about [the first](Ahead::units_to_ask) of the units ahead, and the time of the others
//! [follows](Ahead::wait) from that.

use super::{
    KeyState,
    math::{mul_div, mul_div_ceil, next_edge},
};
use crate::{
    clock::{Timestamp, micros_up},
    decision::Standing,
    quota::{Quota, UnitsReturn},
};

/// The units ahead of a turn in a queue, with the units of the turn itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// All units.
    total: u64,
    /// The units up to the first charge of the chain below.
    first: u64,
    /// The length of the chain: this charge needs the units of another charge to come back, which needs the
    /// units of a third, and so on.
    ///
    /// A charge needs the units of the last charge with which its own and those between are more than a whole
    /// capacity. Example: of the costs 3, 4, 2 and 3 under a limit of 5, the last charge needs the 4 units of
    /// the second, and the second needs the 3 units of the first.
    chain: u64,
}

/// The longest chain that is followed. Of a longer one, the rest is estimated as whole windows.
const MAX_CHAIN: u64 = 100;

impl Ahead {
    /// Creates the units ahead of a charge of `cost`, behind charges of `before` units in all. `reaching` returns
    /// the units up to the first of these charges with which they reach a number.
    pub(crate) fn new(
        quota: &Quota,
        cost: u64,
        before: u64,
        reaching: impl Fn(u64) -> u64,
    ) -> Self {
        let total = before.saturating_add(cost);
        let mut first = total;
        let mut chain = 0;
        while first > quota.capacity() && returns_at_once(quota) && chain < MAX_CHAIN {
            let needed = first - quota.capacity();
            // A cost over the capacity is from a larger quota of the key.
            first = Some(reaching(needed)).filter(|units| *units < first).unwrap_or(needed);
            chain += 1;
        }
        if first > quota.capacity() && chain == MAX_CHAIN {
            chain += (first - 1) / quota.capacity();
            first = (first - 1) % quota.capacity() + 1;
        }
        Self { total, first, chain }
    }

    /// Returns the number of units whose wait a store is asked for.
    pub(crate) fn units_to_ask(&self, quota: &Quota) -> u64 {
        match quota.algorithm().units_return() {
            UnitsReturn::AtRate { burst } => self.total.min(burst),
            // The wait for all units but one shows how many units the current period has counted.
            UnitsReturn::ByPeriod if !returns_at_once(quota) => self.total.min(quota.limit() - 1),
            UnitsReturn::ByPeriod | UnitsReturn::AfterWindow => self.first,
        }
    }

    /// Returns the wait until the turn, in microseconds. `standing` is the standing of the key at `time`, with
    /// the wait for the [units that the store is asked about](Self::units_to_ask).
    ///
    /// The wait is exact if no other units are charged, refunded or reset, and the turn comes within 100 windows.
    /// Under a sliding counter, it is exact if each charge costs 1 unit, and otherwise an estimate.
    pub(crate) fn wait(&self, quota: &Quota, time: Timestamp, standing: &Standing) -> u64 {
        let wait = standing.retry_after.map_or(0, micros_up);
        let wait = match quota.algorithm().units_return() {
            UnitsReturn::AtRate { burst } => {
                let refill = self.total.saturating_sub(burst);
                wait.saturating_add(mul_div_ceil(refill, quota.window_micros(), quota.limit()))
            }
            UnitsReturn::ByPeriod if !returns_at_once(quota) => {
                self.wait_of_counter(quota, time, standing, wait)
            }
            UnitsReturn::ByPeriod | UnitsReturn::AfterWindow => {
                let first = time.as_micros().saturating_add(wait);
                let followed = self.chain.min(MAX_CHAIN);
                let last = (0..followed)
                    .fold(first, |time, _| KeyState::returned_at(quota, time).unwrap_or(time));
                let rest = (self.chain - followed).saturating_mul(quota.window_micros());
                (last - time.as_micros()).saturating_add(rest)
            }
        };
        wait.min(Timestamp::MAX.as_micros())
    }

    /// Returns the wait under a sliding counter that admits each unit as soon as it can.
    ///
    /// Until the end of the period, this is the wait without other charges. After it, those who were admitted
    /// before the end weigh in the next period, and so on.
    fn wait_of_counter(
        &self,
        quota: &Quota,
        time: Timestamp,
        standing: &Standing,
        wait: u64,
    ) -> u64 {
        let limit = quota.limit();
        let window = quota.window_micros();
        let asked = self.units_to_ask(quota);
        let rest = next_edge(time.as_micros(), window) - time.as_micros();
        let is_blocked = wait > rest + window;
        if wait <= rest && asked == self.total || is_blocked {
            return wait;
        }
        // The units that this period has counted. `limit - asked` of them still weigh after the wait, if that
        // ends in the next period. Otherwise this is 1 unit, and the period has counted no more.
        let current = match (rest + window).checked_sub(wait) {
            Some(left) if wait > rest && left > 0 => {
                mul_div(limit - asked, window, left).min(limit)
            }
            _ => u64::from(micros_up(standing.reset_after) > rest),
        };
        let admitted = limit - current;
        // A unit of the previous period weighs until the last microsecond of this one.
        let previous = u64::from(admitted > standing.remaining);
        let next = self.total.saturating_sub(admitted - previous).max(1);
        let weighs = limit - previous;
        if next < limit {
            return rest + window - mul_div(limit - next, window, weighs);
        }
        // From then on, each period admits all units but one.
        let each = limit - 1;
        let periods = (next - 1) / each;
        let units = (next - 1) % each;
        let within = window - mul_div(each - units, window, each);
        periods.saturating_mul(window).saturating_add(rest + within)
    }
}

/// Returns whether the units of a charge come back at one time.
fn returns_at_once(quota: &Quota) -> bool {
    KeyState::returned_at(quota, 0).is_some()
}
