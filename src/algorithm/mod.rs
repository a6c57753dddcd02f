//! The algorithms: pure state machines, without I/O and without a clock.
//!
//! Each is one file with a state that answers three questions at a time `now` under a [`Quota`]
//! (how many units are free, how long until so many are free, when does nothing matter any more)
//! and takes two orders (spend, give back). Everything else, from exact waits to what a caller
//! sees as [`Standing`](crate::Standing), is derived from these here.
//!
//! Asking never changes a state: a denial leaves nothing behind.

mod fixed_window;
mod lasting;
mod math;
mod ring;
mod sliding_buckets;
mod sliding_counter;
mod sliding_log;
mod token_bucket;

use crate::{
    clock::Timestamp,
    decision::{Mark, Standing},
    quota::{Algorithm, Quota, for_each_algorithm},
};

pub(crate) use lasting::still_count;
pub(crate) use ring::Room;

/// A charge to give back: the quota under which it was made, how many units, and its mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refund {
    pub(crate) quota: Quota,
    pub(crate) units: u64,
    pub(crate) mark: Mark,
}

/// What a state comes to at one time under one quota.
pub(crate) trait View {
    /// Units that can be spent at once.
    fn free(&self) -> u64;
}

/// The state machine of one algorithm.
pub(crate) trait Machine: Default {
    type View: View;

    /// What stands at `now` under `quota`. A state remembers when it was last changed, and `now`
    /// is never earlier than that.
    fn view(&self, quota: &Quota, now: Timestamp) -> Self::View;
    /// The shortest wait, in microseconds, until `units` are free if nobody else spends; 0 if
    /// they are. `units` is at most the capacity.
    fn wait(&self, view: &Self::View, units: u64) -> u64;
    /// Spends units, whether or not they are free, and brings the view up to date.
    fn spend(&mut self, view: &mut Self::View, units: u64, room: &dyn Room) -> Mark;
    /// Gives back what a charge still weighs; says how many units that was.
    fn refund(&mut self, quota: &Quota, now: Timestamp, spent: &Refund) -> u64;
    /// From when on this state is the same as none, under any quota.
    fn expires_at(&self) -> Timestamp;
    /// Units that have not come back at `now`, roughly: what forgetting this state would forgive.
    fn owed(&self, now: Timestamp) -> u64;
    /// Heap bytes that the state holds.
    fn heap_bytes(&self) -> usize {
        0
    }
}

macro_rules! states {
    ($(
        $name:ident { $($field:tt: $parameter:ident)? },
        $text:literal, $number:literal, $layout:literal, $state:ty;
    )+) => {
        /// The state of one key under one policy.
        #[derive(Debug)]
        pub(crate) enum KeyState {
            $($name($state),)+
        }

        impl KeyState {
            /// The state of a key that has spent nothing.
            pub(crate) fn new(algorithm: Algorithm) -> Self {
                match algorithm {
                    $(Algorithm::$name { .. } => Self::$name(<$state>::default()),)+
                }
            }

            /// Units that can be spent at once.
            pub(crate) fn free(&self, quota: &Quota, now: Timestamp) -> u64 {
                match self {
                    $(Self::$name(state) => state.view(quota, now).free(),)+
                }
            }

            /// Where the key stands, and how long a charge of `units` has to wait.
            pub(crate) fn standing(&self, quota: &Quota, now: Timestamp, units: u64) -> Standing {
                match self {
                    $(Self::$name(state) => {
                        standing(state, &state.view(quota, now), quota, units)
                    })+
                }
            }

            /// Spends what `affordable` says of the free units: how many that was, and where the key
            /// then stands. If none, how long a charge of `cost` has to wait.
            #[inline(always)]
            pub(crate) fn spend(
                &mut self,
                quota: &Quota,
                now: Timestamp,
                cost: u64,
                affordable: impl FnOnce(u64) -> u64,
                room: &dyn Room,
            ) -> (u64, Mark, Standing) {
                match self {
                    $(Self::$name(state) => spend(state, quota, now, cost, affordable, room),)+
                }
            }

            pub(crate) fn refund(&mut self, quota: &Quota, now: Timestamp, spent: &Refund) -> u64 {
                match self {
                    $(Self::$name(state) => state.refund(quota, now, spent),)+
                }
            }

            pub(crate) fn expires_at(&self) -> Timestamp {
                match self {
                    $(Self::$name(state) => state.expires_at(),)+
                }
            }

            pub(crate) fn owed(&self, now: Timestamp) -> u64 {
                match self {
                    $(Self::$name(state) => state.owed(now),)+
                }
            }

            pub(crate) fn heap_bytes(&self) -> usize {
                match self {
                    $(Self::$name(state) => state.heap_bytes(),)+
                }
            }
        }
    };
}

for_each_algorithm!(states);

#[inline(always)]
fn spend<M: Machine>(
    state: &mut M,
    quota: &Quota,
    now: Timestamp,
    cost: u64,
    affordable: impl FnOnce(u64) -> u64,
    room: &dyn Room,
) -> (u64, Mark, Standing) {
    let mut view = state.view(quota, now);
    let units = affordable(view.free());
    let (mark, waiting) = match units {
        0 => (Mark::default(), cost),
        _ => (state.spend(&mut view, units, room), 0),
    };
    (units, mark, standing(state, &view, quota, waiting))
}

/// Everything that a caller is told follows from what is free and how long a number of units takes.
#[inline(always)]
fn standing<M: Machine>(state: &M, view: &M::View, quota: &Quota, units: u64) -> Standing {
    let limit = quota.capacity();
    let remaining = view.free();
    if remaining >= limit {
        return Standing::full(limit);
    }
    // Each wait is at most asked for once: they take divisions, or a search.
    let next_after = state.wait(view, remaining + 1);
    let wait = |units| if units == remaining + 1 { next_after } else { state.wait(view, units) };
    let reset_after = wait(limit);
    let retry_after = (units > remaining && units <= limit).then(|| wait(units));
    Standing { limit, remaining, next_after, reset_after, retry_after }
}
