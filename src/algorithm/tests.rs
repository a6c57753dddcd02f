//! Laws of all algorithms that no decision shows at once: the memory that a state holds, the units that it
//! would forget, and waits and refunds at the very edge.

use std::{cell::Cell, time::Duration};

use proptest::prelude::*;

use super::{
    Asked, At, KeyState, MemoryBudget, Refund, Snapshot, StateMachine, Stored, Terms,
    periods::Periods, ring::Ring, token_bucket::TokenBucket,
};
use crate::{
    algorithm::{Block, UnlimitedMemory},
    algorithms::with_parameters,
    clock::{Timestamp, micros_up},
    decision::Mark,
    quota::{Algorithm, Quota},
    seed,
};

impl Asked {
    /// Asks for up to these units.
    pub(super) fn up_to(max_cost: u64) -> Self {
        Self { cost: 0, max_cost, terms: Terms::Use }
    }

    /// Asks for all of these units, or none.
    pub(super) fn all(cost: u64) -> Self {
        Self { cost, max_cost: cost, terms: Terms::Use }
    }
}

/// A budget that adds up the memory of a state, and compares each growth with the growth that it allowed.
#[derive(Default)]
struct Ledger {
    bytes: Cell<usize>,
    allowed: Cell<Option<usize>>,
}

impl MemoryBudget for Ledger {
    fn allows(&self, bytes: usize) -> bool {
        self.allowed.set(Some(bytes));
        true
    }

    fn resized(&self, before: usize, after: usize) {
        if let Some(allowed) = self.allowed.take().filter(|_| after > before) {
            assert_eq!(allowed, after - before);
        }
        assert_eq!(self.bytes.get(), before);
        self.bytes.set(after);
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn quota(algorithm: Algorithm, limit: u64, micros: u64) -> Quota {
    Quota::new(limit, Duration::from_micros(micros), algorithm).expect("in bounds")
}

fn quotas(limit: u64, micros: u64) -> impl Iterator<Item = Quota> {
    Algorithm::EACH
        .iter()
        .map(move |algorithm| quota(with_parameters(*algorithm, 7, limit), limit, micros))
}

fn charge(state: &mut KeyState, quota: &Quota, now: u64, units: u64) -> Mark {
    let reply =
        state.spend(quota, Asked::forced(units), At { now: at(now), budget: &UnlimitedMemory });
    assert_eq!(reply.units, units);
    reply.mark
}

fn free(state: &mut KeyState, quota: &Quota, now: u64) -> u64 {
    state.standing(quota, at(now), 0).remaining
}

/// Returns the wait of a charge, and 0 if it is free.
fn wait(state: &mut KeyState, quota: &Quota, now: u64, units: u64) -> u64 {
    state.standing(quota, at(now), units).retry_after.map_or(0, micros_up)
}

#[test]
fn a_budget_knows_the_memory_of_each_state() {
    let steps = prop::collection::vec((0..400_u64, 1..9_u64, 0..3_usize), 0..400);
    seed::property(
        "memory of states",
        ProptestConfig::default(),
        (0..Algorithm::EACH.len(), steps),
        |(number, steps)| {
            let algorithm = with_parameters(Algorithm::EACH[number], 100, 20);
            let mut state = KeyState::new(algorithm);
            let (ledger, mut now, mut charges) = (Ledger::default(), 1_000_000, 0);
            for (by, units, window) in steps {
                now += by;
                let quota = quota(algorithm, 20, [1_000, 3_000, 50_000][window]);
                state.spend(&quota, Asked::forced(units), At { now: at(now), budget: &ledger });
                charges += 1;
                prop_assert_eq!(ledger.bytes.get(), state.heap_bytes());
                // 10 bytes a record, some records of spare room, and a header.
                prop_assert!(state.heap_bytes() <= 10 * (charges + charges / 32 + 4) + 400);
            }
            Ok(())
        },
    );
}

#[test]
fn a_log_gives_back_the_memory_of_a_burst() {
    let quota = quota(Algorithm::SlidingLog, 1_000, 1_000_000);
    let mut state = KeyState::new(Algorithm::SlidingLog);
    let start = 10_000_000;
    for number in 0..500 {
        charge(&mut state, &quota, start + number, 1);
    }
    for number in 0..20 {
        charge(&mut state, &quota, start + 900_000 + number, 1);
    }
    let before = state.heap_bytes();
    charge(&mut state, &quota, start + 1_000_600, 1);
    assert_eq!(free(&mut state, &quota, start + 1_000_600), 1_000 - 21);
    assert!((21 * 10..60 * 10).contains(&state.heap_bytes()), "{before} -> {}", state.heap_bytes());
}

#[test]
fn a_counter_is_kept_until_the_periods_of_earlier_windows_have_passed() {
    for (algorithm, zero) in
        [(Algorithm::FixedWindow, 110_000), (Algorithm::SlidingCounter, 120_000)]
    {
        let (long, short) = (quota(algorithm, 50, 10_000), quota(algorithm, 50, 1_000));
        let mut state = KeyState::new(algorithm);
        let mark = charge(&mut state, &long, 101_000, 5);
        for now in [101_500, 103_500, 104_500] {
            charge(&mut state, &short, now, 1);
            assert_eq!(state.expires_at(), at(zero), "{algorithm:?} at {now}");
        }
        charge(&mut state, &long, 107_000, 7);
        let refund = Refund { quota: long, units: 5, mark };
        assert_eq!(state.refund(&long, at(107_000), &refund), 0, "{algorithm:?}");
        // The charge of the short window has left, too.
        assert_eq!(free(&mut state, &long, 107_000), 43, "{algorithm:?}");
        let expires = state.expires_at();
        charge(&mut state, &long, expires.as_micros() + 5, 1);
        assert_eq!(state.heap_bytes(), 0, "{algorithm:?}");
    }
}

#[test]
fn a_charge_is_refunded_in_the_first_long_period_after_a_change() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingCounter] {
        let (long, short) = (quota(algorithm, 50, 10_000), quota(algorithm, 50, 1_000));
        let mut state = KeyState::new(algorithm);
        charge(&mut state, &short, 100_500, 1);
        let mark = charge(&mut state, &long, 100_600, 3);
        charge(&mut state, &long, 105_000, 2);
        let refund = Refund { quota: long, units: 3, mark };
        assert_eq!(state.refund(&long, at(106_000), &refund), 3, "{algorithm:?}");
    }
}

/// Two changes in the last microsecond of a period have a generation that is the start of the next one.
#[test]
fn a_charge_is_refunded_in_the_period_after_two_changes_in_a_microsecond() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingCounter] {
        let [long, short, window] =
            [60_000, 1_000, 2_000].map(|micros| quota(algorithm, 50, micros));
        let mut state = KeyState::new(algorithm);
        charge(&mut state, &long, 119_000, 1);
        charge(&mut state, &short, 119_999, 1);
        charge(&mut state, &window, 119_999, 1);
        let mark = charge(&mut state, &window, 120_059, 15);
        charge(&mut state, &window, 121_500, 2);
        let refund = Refund { quota: window, units: 9, mark };
        assert_eq!(state.refund(&window, at(121_600), &refund), 9, "{algorithm:?}");
    }
}

#[test]
fn counters_carry_memory_only_while_they_carry_units() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingCounter] {
        let (long, short) = (quota(algorithm, 50, 10_000), quota(algorithm, 50, 3_000));
        let mut state = KeyState::new(algorithm);
        charge(&mut state, &long, 101_000, 5);
        assert_eq!(state.heap_bytes(), 0);
        charge(&mut state, &short, 101_100, 1);
        let with_one = state.heap_bytes();
        assert!(with_one > 24, "{algorithm:?}");
        // All earlier windows are one record.
        charge(&mut state, &long, 101_200, 1);
        assert_eq!(state.heap_bytes(), with_one, "{algorithm:?}");
        charge(&mut state, &long, 200_000, 1);
        assert_eq!(state.heap_bytes(), 0, "{algorithm:?}");
    }
}

#[test]
fn a_sliding_counter_ranks_by_the_units_that_are_left() {
    let quota = quota(Algorithm::SlidingCounter, 100, 1_000);
    let mut state = KeyState::new(Algorithm::SlidingCounter);
    charge(&mut state, &quota, 10_000, 40);
    let outstanding = |now| state.outstanding(at(now));
    assert_eq!([outstanding(9_000), outstanding(10_000), outstanding(11_000)], [40; 3]);
    assert_eq!([outstanding(11_500), outstanding(12_000), outstanding(13_000)], [20, 0, 0]);
}

#[test]
fn units_that_are_free_need_no_wait_while_the_clock_is_behind() {
    for first in quotas(10, 3_000) {
        for second in quotas(10, 1_000) {
            if first.algorithm().name() != second.algorithm().name() {
                continue;
            }
            let mut state = KeyState::new(first.algorithm());
            charge(&mut state, &first, 100_500, 2);
            charge(&mut state, &second, 100_600, 2);
            // The clock ran backward, and the state is judged at its last charge.
            for now in [100_550, 100_600, 100_650] {
                let free = free(&mut state, &second, now);
                for units in 1..=10 {
                    let wait = wait(&mut state, &second, now, units);
                    assert_eq!(wait == 0, units <= free, "{second}, {units} at {now}");
                    let then = now + wait;
                    assert!(state.affords(&second, at(then), units), "{second}, {units} at {now}");
                    assert!(
                        wait == 0 || !state.affords(&second, at(then - 1), units),
                        "{second}, {units} at {now}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_small_step_back_of_the_clock_moves_no_charge() {
    for quota in quotas(10, 1_000) {
        let mut state = KeyState::new(quota.algorithm());
        charge(&mut state, &quota, 100_100, 10);
        let expires = state.expires_at();
        // A charge of nothing heals the state.
        for now in [100_099, 99_600, 99_101] {
            assert!(!state.affords(&quota, at(now), 10));
            assert_eq!(state.expires_at(), expires, "{quota} at {now}");
        }
        // From one window on, the clock has been set back.
        assert!(!state.affords(&quota, at(50_000), 10));
        assert!(state.expires_at() < expires, "{quota}");
    }
}

#[test]
fn a_refund_gives_back_nothing_from_the_time_on_at_which_a_charge_weighs_nothing() {
    for quota in quotas(10, 1_000) {
        for late in [0, 1, 999] {
            let mut state = KeyState::new(quota.algorithm());
            let mark = charge(&mut state, &quota, 100_000, 4);
            let expires = state.expires_at().as_micros();
            let refund = Refund { quota, units: 4, mark };
            assert_eq!(state.refund(&quota, at(expires + late), &refund), 0, "{quota}, {late}");
            if !matches!(quota.algorithm(), Algorithm::TokenBucket { .. }) {
                assert!(state.refund(&quota, at(expires - 1), &refund) > 0, "{quota}");
            }
        }
    }
}

/// After the clock was set back, the mark of a charge may lie in the future. It names no later charge.
#[test]
fn a_refund_from_before_a_step_back_of_the_clock_takes_nothing_of_later_charges() {
    for quota in quotas(10, 1_000) {
        let mut state = KeyState::new(quota.algorithm());
        let mark = charge(&mut state, &quota, 900_000, 1);
        assert!(state.affords(&quota, at(100_000), 1));
        for now in [100_500, 101_500, 101_900] {
            charge(&mut state, &quota, now, 2);
        }
        let before = free(&mut state, &quota, 101_900);
        let refund = Refund { quota, units: 1, mark };
        let refunded = state.refund(&quota, at(101_900), &refund);
        assert_eq!((refunded, free(&mut state, &quota, 101_900)), (0, before), "{quota}");
    }
}

/// The numbers of records go on when a key is forgotten and comes back.
#[test]
fn a_refund_of_an_earlier_life_of_a_key_takes_nothing() {
    for quota in quotas(10, 1_000).filter(|quota| {
        matches!(quota.algorithm(), Algorithm::SlidingLog | Algorithm::SlidingBuckets(_))
    }) {
        for later in [1, 7, 1_000, 1 << 20] {
            let now = 1_700_000_000_000_000;
            let mut first = KeyState::new(quota.algorithm());
            let marks = [0, 0, 1, 1].map(|after| charge(&mut first, &quota, now + after, 1));
            let mut second = KeyState::new(quota.algorithm());
            for after in 0..3 {
                charge(&mut second, &quota, now + 1 + later + after, 2);
            }
            for mark in marks {
                let refund = Refund { quota, units: 1, mark };
                assert_eq!(
                    second.refund(&quota, at(now + later + 10), &refund),
                    0,
                    "{quota}, {later}"
                );
            }
        }
    }
}

#[test]
fn a_charge_after_a_block_removes_it_and_a_forced_one_during_it_waits_for_nothing() {
    let quota = quota(Algorithm::TokenBucket { burst: 10 }, 10, 1_000);
    let mut state = KeyState::new(quota.algorithm());
    let block = Block::new(at(1_000), Duration::from_micros(500));
    state.block(block, At { now: at(1_000), budget: &UnlimitedMemory });
    assert!(state.heap_bytes() > 0);
    let forced =
        state.spend(&quota, Asked::forced(2), At { now: at(1_100), budget: &UnlimitedMemory });
    assert_eq!((forced.units, forced.standing.retry_after), (2, None));
    let denied =
        state.spend(&quota, Asked::all(2), At { now: at(1_200), budget: &UnlimitedMemory });
    assert_eq!((denied.units, denied.standing.retry_after), (0, Some(Duration::from_micros(300))));
    assert!(state.heap_bytes() > 0);
    charge(&mut state, &quota, 1_600, 1);
    assert_eq!(state.heap_bytes(), 0);
}

#[test]
fn a_bucket_refunds_whole_units_of_its_debt_and_marks_of_up_to_a_window_ahead() {
    let quota = quota(Algorithm::TokenBucket { burst: 10 }, 10, 1_000);
    let mut state = KeyState::new(quota.algorithm());
    charge(&mut state, &quota, 10_000, 3);
    let mark = charge(&mut state, &quota, 10_000, 3);
    let refund = Refund { quota, units: 3, mark };
    // Half of a unit is paid: 5 whole units are left. A state does not know that a charge was refunded.
    let refunded = [0; 3].map(|_| state.refund(&quota, at(10_050), &refund));
    assert_eq!(refunded, [3, 2, 0]);

    for (ahead, expected) in [(1_000, 2), (1_001, 0)] {
        let mut state = KeyState::new(quota.algorithm());
        let Mark([time, debt, credit]) = charge(&mut state, &quota, 10_000, 2);
        let refund = Refund { quota, units: 2, mark: Mark([time + ahead, debt, credit]) };
        assert_eq!(state.refund(&quota, at(10_000), &refund), expected);
    }
}

/// Charges under the same window or a longer one, then under a short one, and compares the waits with the free
/// units.
fn waits_of<M: StateMachine>(algorithm: Algorithm) {
    let [long, short] = [3_000, 1_000].map(|micros| quota(algorithm, 10, micros));
    for (first, units) in [(&long, 0), (&long, 2), (&short, 0), (&short, 2)] {
        let mut state = M::default();
        for (quota, now, units) in [(first, 100_500, units), (&short, 100_600, 2)] {
            let mut snapshot = state.snapshot(quota, at(now));
            state.charge(&mut snapshot, units, &UnlimitedMemory);
        }
        for now in [100_550, 100_600, 100_650, 101_300] {
            let snapshot = state.snapshot(&short, at(now));
            for units in 1..=10 {
                let is_free = units <= snapshot.free();
                assert_eq!(state.wait(&snapshot, units) == 0, is_free, "{short}, {units} at {now}");
            }
        }
    }
}

#[test]
fn units_have_a_wait_if_they_are_not_free() {
    waits_of::<Ring>(Algorithm::SlidingLog);
    waits_of::<Ring>(Algorithm::SlidingBuckets(7));
    waits_of::<Periods<1>>(Algorithm::SlidingCounter);
    waits_of::<TokenBucket>(Algorithm::TokenBucket { burst: 10 });
    waits_of::<Periods<0>>(Algorithm::FixedWindow);
}

#[test]
fn carried_units_count_after_the_clock_was_set_back() {
    for long in quotas(10, 3_000) {
        let short = Quota::new(10, Duration::from_millis(1), long.algorithm());
        let short = short.expect("in bounds");
        let mut state = KeyState::new(long.algorithm());
        charge(&mut state, &long, 900_100, 3);
        charge(&mut state, &short, 900_100, 2);
        assert_eq!(free(&mut state, &short, 500_100), 5, "{short}");
    }
}

/// A change of the window begins a record, also within a microsecond.
#[test]
fn records_of_one_microsecond_have_lower_numbers_than_records_of_the_next() {
    let windows = [1_000, 1_100].map(|micros| quota(Algorithm::SlidingLog, 10, micros));
    let mut first = KeyState::new(Algorithm::SlidingLog);
    let marks: Vec<_> =
        windows.iter().cycle().take(6).map(|quota| charge(&mut first, quota, 100_000, 1)).collect();
    let mut second = KeyState::new(Algorithm::SlidingLog);
    for now in 100_001..100_010 {
        charge(&mut second, &windows[0], now, 1);
    }
    for mark in marks {
        let refund = Refund { quota: windows[0], units: 1, mark };
        assert_eq!(second.refund(&windows[0], at(100_010), &refund), 0);
    }
}

#[test]
fn a_log_of_units_in_flight_is_as_long_as_the_time_of_the_oldest_one() {
    let quota = Quota::concurrent(5);
    let mut state = KeyState::new(quota.algorithm());
    for number in 0..2_000 {
        let mark = charge(&mut state, &quota, 100_000 + number, 1);
        let refund = Refund { quota, units: 1, mark };
        assert_eq!(state.refund(&quota, at(100_000 + number), &refund), 1);
        assert!(state.heap_bytes() < 100, "{} bytes after {number}", state.heap_bytes());
    }
}

#[test]
fn a_log_grows_in_small_steps_up_to_its_limit() {
    for limit in [3, 5, 99, 1_000] {
        let quota = quota(Algorithm::SlidingLog, limit, 1_000_000);
        let mut state = KeyState::new(Algorithm::SlidingLog);
        let mut growths = 0;
        for number in 1..=limit as usize {
            let before = state.heap_bytes();
            charge(&mut state, &quota, 1_000_000 + number as u64, 1);
            growths += usize::from(state.heap_bytes() > before);
            // 80 bytes are the header.
            assert!(state.heap_bytes() <= 80 + 10 * (number + number / 32 + 4), "{number}");
        }
        assert!(growths <= limit as usize / 4 + 1, "{growths} times");
        assert_eq!(state.heap_bytes(), 80 + 10 * limit as usize, "a full log has no spare room");
    }
}

/// Copying a log for each record would take longer with each of them.
#[test]
fn a_log_above_its_limit_grows_in_steps_as_well() {
    let quota = quota(Algorithm::SlidingLog, 100, 1_000_000);
    let mut state = KeyState::new(Algorithm::SlidingLog);
    let mut sizes: Vec<usize> = (1..=400)
        .map(|number| {
            charge(&mut state, &quota, 1_000_000 + number, 1);
            state.heap_bytes()
        })
        .collect();
    sizes.dedup();
    assert!(sizes.len() <= 102, "{} sizes", sizes.len());
}

/// A burst of as many records as have exact times, then a charge for each edge of a window.
#[test]
fn refunded_and_forced_charges_leave_at_most_20_001_records() {
    let quota = Quota::new(10, Duration::from_secs(1), Algorithm::SlidingLog).expect("in bounds");
    for is_refunded in [true, false] {
        let mut log = Ring::default();
        let mut most = 0;
        let times = (1..=15_000).chain((1_001..=30_000).map(|edge| edge * 100));
        for time in times.map(Timestamp::from_micros) {
            let mut snapshot = log.snapshot(&quota, time);
            let mark = log.charge(&mut snapshot, 1, &UnlimitedMemory);
            most = most.max(snapshot.records());
            let refund = Refund { quota, units: 1, mark };
            if is_refunded {
                assert_eq!(log.refund(&quota, time, &refund), 1);
                assert_eq!(log.refund(&quota, time, &refund), 0);
                assert_eq!(log.snapshot(&quota, time).free(), 10);
            }
        }
        assert!((19_000..=20_001).contains(&most), "{most}");
        assert!(log.heap_bytes() < 20_001 * 10 * 9 / 8 + 100, "{}", log.heap_bytes());
    }
}
