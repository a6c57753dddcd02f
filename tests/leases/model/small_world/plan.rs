//! The worlds: their quotas, what may happen in them, and the rules that mutants break.

use std::time::Duration;

use super::state::Action;
use crate::quota::{Algorithm, Quota};

/// The microseconds of a tick. A lease is a whole number of ticks.
pub(super) const TICK: u64 = 1_000;

/// A rule that a mutant breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mutant {
    /// The store counts by the quota itself: a log over the window alone, a whole burst.
    CountsWithoutLease,
    /// A lease under a windowed algorithm outlives its period.
    OutlivesPeriod,
    /// The clock is read before the units are taken.
    ReadsClockFirst,
    /// The clock is not read at all.
    IgnoresEnd,
    /// The lease begins when the answer arrives, not when the request is sent.
    BeginsAtAnswer,
    /// Units are used although the answer that grants them was lost.
    UsesLostAnswer,
    /// The clock of a holder runs at 0.4 of the rate of the store's.
    SlowClock,
    /// A receipt is refunded twice.
    RefundsTwice,
    /// The units that were taken are still in the stock.
    TakesNothing,
    /// A change of the quota leaves the units of the old one in the stock.
    KeepsOldUnits,
    /// A denial names a wait that is a microsecond too short.
    WaitsTooShort,
}

/// A small world.
pub(super) struct World {
    pub(super) name: &'static str,
    pub(super) quota: Quota,
    /// The quota after a change.
    pub(super) changed: Option<Quota>,
    /// The ticks from the start to the next edge of a period.
    pub(super) before_edge: u64,
    pub(super) actions: Vec<Action>,
    /// The steps of the short form.
    pub(super) depth: usize,
    pub(super) mutant: Option<Mutant>,
}

/// Returns a quota of `window` ticks that is leased for `lease` ticks. The crate refuses leases that are so
/// long for their window, but the arithmetic of leases has no such limit.
fn quota(limit: u64, window: u64, lease: u64, algorithm: Algorithm) -> Quota {
    let window = Duration::from_micros(window * TICK);
    Quota::new(limit, window, algorithm).expect("valid").with_lease(lease)
}

/// All that may happen, with checks of these costs.
fn everything(costs: &[u64], limit: u64) -> Vec<Action> {
    use Action::*;
    let mut actions = vec![Advance, Straggles];
    for holder in [0, 1] {
        actions.extend(costs.iter().flat_map(|&cost| [Direct(holder, cost), Uses(holder, cost)]));
        actions.extend([Asks(holder, 1), Asks(holder, limit)]);
        actions.extend([Takes, Reads, AtStore, Answers, Loses].map(|action| action(holder)));
        actions.extend([Refunds, Sweeps, Crashes].map(|action| action(holder)));
    }
    actions
}

/// A holder that leases, and one that asks the store.
fn one_leases(limit: u64) -> Vec<Action> {
    use Action::*;
    let mut actions = vec![Advance, Asks(0, limit), Uses(0, 1)];
    actions.extend([AtStore, Answers].map(|action| action(0)));
    actions.extend([Direct(1, 1), Direct(1, limit)]);
    actions
}

/// The same, and the holder sleeps between two steps.
fn one_sleeps(limit: u64) -> Vec<Action> {
    let mut actions = one_leases(limit);
    actions.extend([Action::Takes, Action::Reads].map(|action| action(0)));
    actions
}

fn world(name: &'static str, quota: Quota, actions: Vec<Action>, depth: usize) -> World {
    World { name, quota, changed: None, before_edge: 2, actions, depth, mutant: None }
}

/// Returns the worlds without a mutant.
pub(super) fn worlds() -> Vec<World> {
    let bucket = Algorithm::TokenBucket { burst: 4 };
    let changes = |mut world: World, to: Quota| {
        world.actions.extend([0, 1].map(Action::Changes));
        World { changed: Some(to), ..world }
    };
    // The refunds of callers under a token bucket are the exception that the documentation names.
    let without_refunds = |mut world: World| {
        world.actions.retain(|action| !matches!(action, Action::Refunds(_)));
        world
    };
    let log = Algorithm::SlidingLog;
    vec![
        world("sliding log 2/3", quota(2, 3, 1, log), everything(&[1, 2], 2), 6),
        world("sliding log 4/6", quota(4, 6, 2, log), everything(&[1, 3], 4), 5),
        world(
            "sliding buckets 3/4",
            quota(3, 4, 1, Algorithm::SlidingBuckets(2)),
            everything(&[1, 2], 3),
            5,
        ),
        world(
            "sliding counter 3/4",
            quota(3, 4, 2, Algorithm::SlidingCounter),
            everything(&[1, 2], 3),
            5,
        ),
        without_refunds(world(
            "token bucket 2/4",
            quota(2, 4, 2, bucket),
            everything(&[1, 2], 3),
            5,
        )),
        world(
            "fixed window 2/3",
            quota(2, 3, 2, Algorithm::FixedWindow),
            everything(&[1, 2], 2),
            5,
        ),
        changes(
            world("sliding log 4/4 to 2/4", quota(4, 4, 1, log), everything(&[1], 4), 5),
            quota(2, 4, 1, log),
        ),
        changes(
            without_refunds(world(
                "token bucket 3/4 to 1/3",
                quota(3, 4, 1, bucket),
                everything(&[1], 3),
                5,
            )),
            quota(1, 3, 1, bucket),
        ),
        // Only time, checks of the store and uses, so that the search gets far.
        world("sliding log 2/2, one leases", quota(2, 2, 1, log), one_sleeps(2), 8),
        world(
            "sliding counter 2/3, one leases",
            quota(2, 3, 2, Algorithm::SlidingCounter),
            one_sleeps(2),
            8,
        ),
        world("token bucket 1/3, one leases", quota(1, 3, 2, bucket), one_sleeps(2), 8),
        world(
            "fixed window 2/2, one leases",
            quota(2, 2, 2, Algorithm::FixedWindow),
            one_sleeps(2),
            8,
        ),
    ]
}

fn log() -> World {
    world("log", quota(2, 2, 1, Algorithm::SlidingLog), one_leases(2), 0)
}

fn log_of_a_sleeper() -> World {
    World { actions: one_sleeps(2), ..log() }
}

fn log_with_losses() -> World {
    let mut actions = one_leases(2);
    actions.push(Action::Loses(0));
    World { actions, ..log() }
}

fn log_with_refunds() -> World {
    use Action::*;
    let actions = vec![Advance, Direct(0, 1), Direct(1, 1), Refunds(0), Refunds(1)];
    World { actions, ..log() }
}

fn log_that_changes() -> World {
    let log = Algorithm::SlidingLog;
    let mut actions = one_leases(4);
    actions.extend([0, 1].map(Action::Changes));
    World { changed: Some(quota(1, 2, 1, log)), ..world("change", quota(4, 2, 1, log), actions, 0) }
}

fn bucket() -> World {
    use Action::*;
    let quota = quota(2, 2, 2, Algorithm::TokenBucket { burst: 3 });
    let actions =
        vec![Advance, Asks(0, 3), AtStore(0), Answers(0), Uses(0, 3), Direct(1, 1), Direct(1, 2)];
    world("bucket", quota, actions, 0)
}

fn counter() -> World {
    world("counter", quota(1, 2, 2, Algorithm::SlidingCounter), one_leases(1), 0)
}

fn window() -> World {
    world("window", quota(1, 2, 2, Algorithm::FixedWindow), one_leases(1), 0)
}

/// A mutant, the world that finds it, and the most steps until then.
type FoundMutant = (Mutant, fn() -> World, usize);

/// The mutants, a world that finds each, and the most steps that it may take.
pub(super) const MUTANTS: &[FoundMutant] = &[
    (Mutant::CountsWithoutLease, log, 9),
    (Mutant::CountsWithoutLease, bucket, 13),
    (Mutant::OutlivesPeriod, window, 12),
    (Mutant::OutlivesPeriod, counter, 12),
    (Mutant::ReadsClockFirst, log_of_a_sleeper, 12),
    (Mutant::IgnoresEnd, log, 12),
    (Mutant::BeginsAtAnswer, log, 12),
    (Mutant::UsesLostAnswer, log_with_losses, 9),
    (Mutant::SlowClock, log, 12),
    (Mutant::RefundsTwice, log_with_refunds, 9),
    (Mutant::TakesNothing, log, 9),
    (Mutant::KeepsOldUnits, log_that_changes, 10),
    (Mutant::WaitsTooShort, log, 3),
    (Mutant::WaitsTooShort, bucket, 3),
];
