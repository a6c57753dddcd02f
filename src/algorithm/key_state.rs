//! The state of one key under any algorithm.

use std::{
    mem,
    ops::{Deref, DerefMut},
};

use super::{
    Asked, At, MemoryBudget, Refund, State, StateMachine,
    block::{Block, BlockedKey},
    bytes::{BLOCKED, Numbers},
    periods::Periods,
    ring::Ring,
    token_bucket::TokenBucket,
};
use crate::{
    clock::Timestamp,
    decision::ChargeReply,
    quota::{Algorithm, Quota, for_each_algorithm},
};

macro_rules! states {
    ($(
        $name:ident { $($field:tt: $parameter:ident)? },
        $text:literal, $number:literal, $layout:literal, $lua:ident: $state:ty;
    )+) => {
        /// The state of one key under one policy. It dereferences to the [`State`] of its algorithm.
        #[cfg_attr(test, derive(Clone))]
        #[derive(Debug)]
        pub(crate) enum KeyState {
            $($name($state),)+
            /// A blocked key. It is boxed, so that the states of other keys do not become larger.
            Blocked(Box<BlockedKey>),
        }

        impl KeyState {
            /// Creates the state of a key that has spent nothing.
            pub(crate) fn new(algorithm: Algorithm) -> Self {
                match algorithm {
                    $(Algorithm::$name { .. } => Self::$name(Default::default()),)+
                }
            }

            /// Returns the first time at which all units of a charge at `time` have come back, or `None`
            /// if they come back bit by bit.
            pub(super) fn returned_at(quota: &Quota, time: u64) -> Option<u64> {
                match quota.algorithm() {
                    $(Algorithm::$name { .. } => <$state>::returned_at(quota, time),)+
                }
            }

            /// Charges units like [`State::spend`], by the algorithm of the state.
            fn spend_by_algorithm(
                &mut self,
                quota: &Quota,
                asked: Asked,
                at: At<'_>,
            ) -> ChargeReply {
                match self {
                    $(Self::$name(state) => state.spend(quota, asked, at),)+
                    Self::Blocked(key) => key.spend(quota, asked, at),
                }
            }

            /// Returns the number of the algorithm, with a bit for a block.
            pub(super) fn number(&self) -> u8 {
                match self {
                    $(Self::$name(_) => $number,)+
                    Self::Blocked(key) => BLOCKED | key.state.number(),
                }
            }

            /// Restores a state from its [`number`](Self::number) and its numbers. Returns `None` if
            /// one is out of range.
            pub(super) fn read(number: u8, numbers: &mut Numbers<'_>) -> Option<Self> {
                Some(match number {
                    $($number => Self::$name(StateMachine::read(numbers)?),)+
                    _ if number & BLOCKED > 0 => {
                        let block = Block::read(numbers)?;
                        let state = Self::read(number & !BLOCKED, numbers)?;
                        Self::Blocked(Box::new(BlockedKey { block, state }))
                    }
                    _ => return None,
                })
            }
        }

        impl Deref for KeyState {
            type Target = dyn State;

            fn deref(&self) -> &(dyn State + 'static) {
                match self {
                    $(Self::$name(state) => state,)+
                    Self::Blocked(key) => &**key,
                }
            }
        }

        impl DerefMut for KeyState {
            fn deref_mut(&mut self) -> &mut (dyn State + 'static) {
                match self {
                    $(Self::$name(state) => state,)+
                    Self::Blocked(key) => &mut **key,
                }
            }
        }
    };
}

for_each_algorithm!(states);

impl KeyState {
    /// Charges units like [`State::spend`]. A charge after the end of a block removes the block, and a refused one does
    /// not: the clock may be set back.
    pub(crate) fn spend(&mut self, quota: &Quota, asked: Asked, at: At<'_>) -> ChargeReply {
        let has_ended = matches!(self, Self::Blocked(_)) && !self.is_blocked(at.now);
        if has_ended && let Self::Blocked(key) = self {
            let spent = key.state.spend(quota, asked, at);
            if spent.units > 0 {
                self.unblock(at.budget);
            }
            return spent;
        }
        self.spend_by_algorithm(quota, asked, at)
    }

    /// Refunds the units of a charge that still count. Returns their number.
    pub(crate) fn refund(&mut self, quota: &Quota, now: Timestamp, refund: &Refund) -> u64 {
        self.heal(now);
        (**self).refund(quota, now, refund)
    }

    /// Blocks the key. If it is blocked already, the block that ends later counts.
    pub(crate) fn block(&mut self, block: Block, at: At<'_>) {
        self.heal(at.now);
        if let Self::Blocked(key) = self {
            key.block = key.block.or_later(block);
            return;
        }
        let before = self.heap_bytes();
        let state = mem::replace(self, Self::FixedWindow(Default::default()));
        *self = Self::Blocked(Box::new(BlockedKey { block, state }));
        at.budget.resized(before, self.heap_bytes());
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
        Quota::new(limit, Duration::from_millis(1), algorithm).unwrap()
    }

    /// Each algorithm that says that its marks have the debt is asked, and each that says no.
    #[test]
    fn an_algorithm_knows_whether_its_marks_have_the_debt() {
        for algorithm in Algorithm::EACH.iter().map(|it| with_parameters(*it, 4, 90)) {
            let quota = quota(100, algorithm);
            let mut state = KeyState::new(algorithm);
            let now = Timestamp::from_micros(1_000_700);
            let mut charge = |units: u64| {
                let reply =
                    state.spend(&quota, Asked::forced(units), At { now, budget: &UnlimitedMemory });
                assert_eq!(reply.units, units, "{algorithm}");
                reply.mark.0[1]
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
                    let _ = state.spend(
                        &quota,
                        Asked::up_to(units),
                        At { now, budget: &UnlimitedMemory },
                    );
                }
                let passed = parts.iter().map(|&units| {
                    state
                        .spend(&quota, Asked::all(units), At { now, budget: &UnlimitedMemory })
                        .units
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
                let asked = Asked::up_to(units);
                let _ = state.spend(
                    &quota(limit, algorithm),
                    asked,
                    At { now, budget: &UnlimitedMemory },
                );
            }
            if is_blocked {
                let block = Block::new(now, Duration::from_micros(500));
                state.block(block, At { now, budget: &UnlimitedMemory });
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
