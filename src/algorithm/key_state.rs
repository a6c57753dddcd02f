//! The state of one key under any algorithm, and the values that are derived alike for all algorithms.

use std::mem;

use super::{
    MemoryBudget, Refund, Snapshot, StateMachine,
    block::Block,
    bytes::{BLOCKED, Numbers},
};
use crate::{
    clock::Timestamp,
    decision::{Mark, Standing},
    quota::{Algorithm, Quota, for_each_algorithm},
};

macro_rules! states {
    ($(
        $name:ident { $($field:tt: $parameter:ident)? },
        $text:literal, $number:literal, $layout:literal, $module:ident::$state:ident;
    )+) => {
        /// The state of one key under one policy.
        #[cfg_attr(test, derive(Clone))]
        #[derive(Debug)]
        pub(crate) enum KeyState {
            $($name(super::$module::$state),)+
            /// A blocked key. It is boxed, so that the states of other keys do not become larger.
            Blocked(Box<BlockedKey>),
        }

        impl KeyState {
            /// Creates the state of a key that has spent nothing.
            pub(crate) fn new(algorithm: Algorithm) -> Self {
                match algorithm {
                    $(Algorithm::$name { .. } => Self::$name(super::$module::$state::default()),)+
                }
            }

            /// If the clock has been set back by more than a window since the last charge, all units
            /// that count are treated as charged at `now`.
            #[inline]
            fn heal(&mut self, now: Timestamp) {
                match self {
                    $(Self::$name(state) => state.heal(now),)+
                    Self::Blocked(key) => key.heal(now),
                }
            }

            /// Returns whether `units` can be charged at once.
            #[inline]
            pub(crate) fn affords(&mut self, quota: &Quota, now: Timestamp, units: u64) -> bool {
                match self {
                    $(Self::$name(state) => {
                        state.heal(now);
                        state.affords(quota, now, units)
                    })+
                    Self::Blocked(key) => key.affords(quota, now, units),
                }
            }

            /// Returns the standing of the key, with the wait of a charge of `units`.
            #[inline]
            pub(crate) fn standing(
                &mut self,
                quota: &Quota,
                now: Timestamp,
                units: u64,
            ) -> Standing {
                match self {
                    $(Self::$name(state) => {
                        state.heal(now);
                        standing(state, &state.snapshot(quota, now), quota, units)
                    })+
                    Self::Blocked(key) => key.standing(quota, now, units),
                }
            }

            /// Calls `affordable` with the number of free units, and charges the number that it
            /// returns. Returns this number and the standing of the key. If the number is 0, the
            /// standing has the wait of a charge of `cost`.
            ///
            /// All arms are compiled into the caller, and no function writes a whole result to memory:
            /// the processor stalls when it reads numbers in pairs that were just written one by one.
            /// Without this, a check takes a tenth longer (`benches/check.rs`).
            #[inline(always)]
            pub(crate) fn spend(
                &mut self,
                quota: &Quota,
                now: Timestamp,
                cost: u64,
                affordable: impl Fn(u64) -> u64,
                budget: &dyn MemoryBudget,
            ) -> (u64, Mark, Standing) {
                match self {
                    // Each arm heals its own state, so that a check branches on the algorithm once.
                    $(Self::$name(state) => {
                        state.heal(now);
                        spend(state, quota, now, cost, affordable, budget)
                    })+
                    Self::Blocked(_) => {
                        let ((units, mark), standing) =
                            self.spend_blocked(quota, now, cost, &affordable, budget);
                        (units, mark, standing)
                    }
                }
            }

            /// Refunds the units of a charge that still count. Returns their number.
            pub(crate) fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
                self.heal(now);
                match self {
                    $(Self::$name(state) => state.refund(quota, now, refund),)+
                    Self::Blocked(key) => key.state.refund(quota, now, refund),
                }
            }

            /// Releases units in flight. It needs no time, because those that have expired may be released
            /// as well.
            pub(crate) fn release(&mut self, mark: Mark, units: u64) {
                match self {
                    Self::SlidingLog(log) => log.release(mark, units),
                    Self::Blocked(key) => key.state.release(mark, units),
                    // No other algorithm counts units in flight.
                    _ => {}
                }
            }

            /// Returns the time from which this state equals the state of a new key, under any quota.
            pub(crate) fn expires_at(&self) -> Timestamp {
                match self {
                    $(Self::$name(state) => state.expires_at(),)+
                    Self::Blocked(key) => key.state.expires_at().max(key.block.ends_at()),
                }
            }

            /// Returns about how many units are outstanding at `now`. An eviction of the key would make
            /// them free.
            pub(crate) fn outstanding(&self, now: Timestamp) -> u64 {
                match self {
                    $(Self::$name(state) => state.outstanding(now),)+
                    Self::Blocked(key) => key.state.outstanding(now),
                }
            }

            /// Returns the bytes of heap memory that the state holds.
            pub(crate) fn heap_bytes(&self) -> usize {
                match self {
                    $(Self::$name(state) => state.heap_bytes(),)+
                    Self::Blocked(key) => size_of::<BlockedKey>() + key.state.heap_bytes(),
                }
            }

            /// Returns the number of the algorithm, with a bit for a block.
            pub(super) fn number(&self) -> u8 {
                match self {
                    $(Self::$name(_) => $number,)+
                    Self::Blocked(key) => BLOCKED | key.state.number(),
                }
            }

            /// Appends the numbers of the state to its bytes.
            pub(super) fn write(&self, bytes: &mut Vec<u8>) {
                match self {
                    $(Self::$name(state) => state.write(bytes),)+
                    Self::Blocked(key) => {
                        key.block.write(bytes);
                        key.state.write(bytes);
                    }
                }
            }

            /// Restores a state from its [`number`](Self::number) and its numbers. Returns `None` if
            /// one is out of range.
            pub(super) fn read(number: u8, numbers: &mut Numbers<'_>) -> Option<Self> {
                Some(match number {
                    $($number => Self::$name(super::$module::$state::read(numbers)?),)+
                    _ if number & BLOCKED > 0 => {
                        let block = Block::read(numbers)?;
                        let state = Self::read(number & !BLOCKED, numbers)?;
                        Self::Blocked(Box::new(BlockedKey { block, state }))
                    }
                    _ => return None,
                })
            }
        }
    };
}

for_each_algorithm!(states);

/// A block, and the state of the algorithm during the block. After its end, the block remains until the
/// key is charged.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct BlockedKey {
    block: Block,
    state: KeyState,
}

impl KeyState {
    /// Blocks the key. If it is blocked already, the block that ends later counts.
    pub(crate) fn block(&mut self, block: Block, now: Timestamp, budget: &dyn MemoryBudget) {
        self.heal(now);
        if let Self::Blocked(key) = self {
            key.block = key.block.or_later(block);
            return;
        }
        let before = self.heap_bytes();
        let state = mem::replace(self, Self::FixedWindow(Default::default()));
        *self = Self::Blocked(Box::new(BlockedKey { block, state }));
        budget.resized(before, self.heap_bytes());
    }

    /// Lifts the block of the key, if it has one.
    pub(crate) fn unblock(&mut self, budget: &dyn MemoryBudget) {
        let before = self.heap_bytes();
        if let Self::Blocked(key) = self {
            *self = mem::replace(&mut key.state, Self::FixedWindow(Default::default()));
            budget.resized(before, self.heap_bytes());
        }
    }

    /// Returns whether the key is blocked at `now`.
    pub(crate) fn is_blocked(&mut self, now: Timestamp) -> bool {
        self.heal(now);
        matches!(self, Self::Blocked(key) if key.block.is_in_force(now))
    }

    /// Charges units like [`spend`](Self::spend). No unit is free while the key is blocked. A charge
    /// after the block removes it.
    #[cold]
    #[inline(never)]
    fn spend_blocked(
        &mut self,
        quota: &Quota,
        now: Timestamp,
        cost: u64,
        affordable: &dyn Fn(u64) -> u64,
        budget: &dyn MemoryBudget,
    ) -> ((u64, Mark), Standing) {
        self.heal(now);
        let Self::Blocked(key) = self else {
            let (units, mark, standing) = self.spend(quota, now, cost, affordable, budget);
            return ((units, mark), standing);
        };
        if !key.block.is_in_force(now) {
            let (units, mark, standing) = key.state.spend(quota, now, cost, affordable, budget);
            if units > 0 {
                self.unblock(budget);
            }
            return ((units, mark), standing);
        }
        let units = affordable(0);
        let (units, mark, standing) = key.state.spend(quota, now, cost, |_| units, budget);
        let waiting = if units > 0 { 0 } else { cost };
        ((units, mark), key.block.restrict(standing, now, waiting))
    }
}

impl BlockedKey {
    #[cold]
    fn heal(&mut self, now: Timestamp) {
        self.block.heal(now);
        self.state.heal(now);
    }

    #[cold]
    fn affords(&mut self, quota: &Quota, now: Timestamp, units: u64) -> bool {
        self.block.heal(now);
        match self.block.is_in_force(now) {
            true => units == 0,
            false => self.state.affords(quota, now, units),
        }
    }

    #[cold]
    fn standing(&mut self, quota: &Quota, now: Timestamp, units: u64) -> Standing {
        self.block.heal(now);
        let standing = self.state.standing(quota, now, units);
        if self.block.is_in_force(now) {
            self.block.restrict(standing, now, units)
        } else {
            standing
        }
    }
}

#[inline(always)]
fn spend<M: StateMachine>(
    state: &mut M,
    quota: &Quota,
    now: Timestamp,
    cost: u64,
    affordable: impl Fn(u64) -> u64,
    budget: &dyn MemoryBudget,
) -> (u64, Mark, Standing) {
    let mut snapshot = state.snapshot(quota, now);
    let units = affordable(snapshot.free());
    let (mark, waiting) = match units {
        0 => (Mark::default(), cost),
        _ => (state.charge(&mut snapshot, units, budget), 0),
    };
    (units, mark, standing(state, &snapshot, quota, waiting))
}

/// Returns the standing, computed from the free units and the waits of a snapshot.
#[inline(always)]
fn standing<M: StateMachine>(
    state: &M,
    snapshot: &M::Snapshot,
    quota: &Quota,
    units: u64,
) -> Standing {
    let limit = quota.capacity();
    let remaining = snapshot.free();
    if remaining >= limit {
        return Standing::full(limit);
    }
    // Each wait is computed at most once: it takes divisions, or a search.
    let next_after = state.wait(snapshot, remaining + 1);
    let wait =
        |units| if units == remaining + 1 { next_after } else { state.wait(snapshot, units) };
    let reset_after = wait(limit);
    let retry_after = (units > remaining && units <= limit).then(|| wait(units));
    Standing { limit, remaining, next_after, reset_after, retry_after }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::{algorithm::UnlimitedMemory, algorithms::with_parameters, seed};

    /// Every key in memory takes this space, whatever its algorithm.
    #[test]
    fn a_state_takes_48_bytes() {
        assert_eq!(size_of::<KeyState>(), 48);
    }

    fn algorithms() -> impl Strategy<Value = Algorithm> {
        (prop::sample::select(Algorithm::EACH), 1..7_u16, 1..40_u64)
            .prop_map(|(algorithm, n, burst)| with_parameters(algorithm, n, burst))
    }

    fn quota(limit: u64, algorithm: Algorithm) -> Quota {
        Quota::new_with_algorithm(limit, Duration::from_millis(1), algorithm).unwrap()
    }

    /// Each algorithm that says that its marks have the debt is asked, and each that says no.
    #[test]
    fn an_algorithm_knows_whether_its_marks_have_the_debt() {
        for algorithm in Algorithm::EACH.iter().map(|it| with_parameters(*it, 4, 90)) {
            let quota = quota(100, algorithm);
            let mut state = KeyState::new(algorithm);
            let now = Timestamp::from_micros(1_000_700);
            let mut charge = |units: u64| {
                let (charged, mark, _) =
                    state.spend(&quota, now, units, |_| units, &UnlimitedMemory);
                assert_eq!(charged, units, "{algorithm}");
                mark.0[1]
            };
            let has_debt_marks = [charge(30), charge(11), charge(1)] == [30, 41, 42];
            assert_eq!(algorithm.has_debt_marks(), has_debt_marks, "{algorithm}");
        }
    }

    /// The law of [`StateMachine::charge`] on which leases rely.
    #[test]
    fn units_may_be_charged_in_parts() {
        let charges = prop::collection::vec((1..30_u64, 0..900_u64), 0..8);
        let cases = (algorithms(), 1..60_u64, charges, 1..20_u64, 1..20_u64);
        seed::property("parts", ProptestConfig::default(), cases, |case| {
            let (algorithm, limit, charges, first, second) = case;
            let quota = quota(limit, algorithm);
            let run = |parts: &[u64]| {
                let mut state = KeyState::new(algorithm);
                let mut now = Timestamp::from_micros(1_000_000);
                for &(units, by) in &charges {
                    now = Timestamp::from_micros(now.as_micros() + by);
                    let affordable = |free: u64| units.min(free);
                    let _ = state.spend(&quota, now, units, affordable, &UnlimitedMemory);
                }
                let passed = parts.iter().map(|&units| {
                    let affordable = |free| if units <= free { units } else { 0 };
                    state.spend(&quota, now, units, affordable, &UnlimitedMemory).0
                });
                let spent: u64 = passed.sum();
                let later = |by| Timestamp::from_micros(now.as_micros() + by);
                let standings = [0, 1, 250, 999, 1_000, 1_700];
                (spent, standings.map(|by| state.standing(&quota, later(by), 0)))
            };
            let whole = run(&[first + second]);
            if whole.0 > 0 {
                prop_assert_eq!(run(&[first, second]), whole);
            }
            Ok(())
        });
    }

    #[test]
    fn a_state_affords_what_remains_also_under_another_quota() {
        let charges = prop::collection::vec((0..50_u64, 0..900_u64), 0..8);
        let changes = (1..40_u64, 1..60_u64);
        let cases = (algorithms(), 1..60_u64, charges, changes, any::<bool>());
        seed::property("affords", ProptestConfig::default(), cases, |case| {
            let (algorithm, limit, charges, (burst, new_limit), is_blocked) = case;
            let mut state = KeyState::new(algorithm);
            let mut now = Timestamp::from_micros(1_000_000);
            for (units, by) in charges {
                now = Timestamp::from_micros(now.as_micros() + by);
                let affordable = |free: u64| units.min(free);
                let _ =
                    state.spend(&quota(limit, algorithm), now, units, affordable, &UnlimitedMemory);
            }
            if is_blocked {
                let block = Block::new(now, Duration::from_micros(500));
                state.block(block, now, &UnlimitedMemory);
            }
            let changed = algorithm.map_burst(|_| burst);
            for (by, units) in
                (0..1_000).step_by(100).flat_map(|by| [(by, 0), (by, 1), (by, burst)])
            {
                let now = Timestamp::from_micros(now.as_micros() + by);
                for quota in [quota(limit, algorithm), quota(new_limit, changed)] {
                    let remaining = state.standing(&quota, now, 0).remaining;
                    prop_assert_eq!(state.affords(&quota, now, units), units <= remaining);
                }
            }
            Ok(())
        });
    }
}
