use super::{super::grants::Leftover, *};
use crate::{decision::Verdict, quota::Algorithm};

/// The round trip of these tests, and the lease of their quota, in microseconds.
const ROUND_TRIP: u64 = 1_000;
const LEASE: u64 = 100_000;
/// The end of a lease after the request for it: a thousandth earlier.
const END: u64 = LEASE * 1000 / 1001;
const STORE_TIME: u64 = 1_700_000_000_000_000;

fn quota() -> Quota {
    Quota::per_second(1_000).leased(Duration::from_micros(LEASE)).expect("a valid lease")
}

/// A stock of a key that was just checked `checks` times at `now`.
fn busy(checks: u64, now: u64) -> Stock {
    let mut stock = Stock::new(quota(), 1, now);
    (0..checks).for_each(|_| stock.observe(now, 1));
    stock
}

fn mark(number: u64) -> Mark {
    Mark([number, 0, 0])
}

fn reply(units: u64, number: u64) -> ChargeReply {
    let standing = Standing {
        limit: 1_000,
        remaining: 700,
        next_after: Duration::from_millis(5),
        reset_after: Duration::from_millis(900),
        retry_after: None,
    };
    ChargeReply { verdict: Verdict::Passed, units, standing, mark: mark(number) }
}

/// Asks at `now`, and receives `units` under mark `number`.
fn renew(stock: &mut Stock, now: u64, units: u64, number: u64) -> Leftovers {
    let ask = stock.next_renewal(now, ROUND_TRIP, 1).expect("the key has demand");
    stock.granted(&ask, Timestamp::from_micros(STORE_TIME), &reply(units, number))
}

#[test]
fn a_key_is_leased_from_a_burst_of_sixteen_checks_on() {
    assert!(busy(15, 0).next_renewal(0, ROUND_TRIP, 1).is_none());
    let ask = busy(16, 0).next_renewal(0, ROUND_TRIP, 1).expect("demand");
    assert_eq!((ask.cost, ask.max), (1, 16));
}

#[test]
fn asks_for_the_demand_of_a_refresh_time() {
    let mut stock = Stock::new(quota(), 1, 0);
    assert_eq!(stock.refresh(), Duration::from_micros(LEASE / 2));
    // 10 checks of 3 units in each half of the lease.
    (0..200).for_each(|check| stock.observe(check * LEASE / 20, 3));
    let now = 200 * LEASE / 20;
    let ask = stock.next_renewal(now, ROUND_TRIP, 5).expect("demand");
    assert_eq!(ask.cost, 5);
    assert!((29..=30).contains(&ask.max), "{ask:?}");
}

#[test]
fn one_renewal_is_in_flight_at_a_time() {
    let mut stock = busy(20, 0);
    let ask = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    assert!(stock.renewal(0).is_some());
    assert!(stock.next_renewal(0, ROUND_TRIP, 1).is_none());
    stock.lost(&ask);
    assert!(stock.renewal(0).is_none());
    assert!(stock.next_renewal(LEASE / 2 - 1, ROUND_TRIP, 1).is_none(), "after a failure it waits");
    (0..20).for_each(|_| stock.observe(LEASE / 2, 1));
    assert!(stock.next_renewal(LEASE / 2, ROUND_TRIP, 1).is_some());
}

#[test]
fn a_renewal_that_is_in_flight_for_as_long_as_the_lease_is_not_waited_for() {
    let mut stock = busy(20, 0);
    let stuck = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    (0..20).for_each(|_| stock.observe(LEASE - 1, 1));
    assert!(stock.next_renewal(LEASE - 1, ROUND_TRIP, 1).is_none());
    assert!(stock.renewal(LEASE).is_none());
    let next = stock.next_renewal(LEASE, ROUND_TRIP, 1).expect("demand");
    let time = Timestamp::from_micros(STORE_TIME);
    let expected = Leftover { mark: mark(1), units: 9 };
    assert_eq!(stock.granted(&stuck, time, &reply(9, 1)).as_slice(), [expected], "it goes back");
    assert!(stock.granted(&next, time, &reply(4, 2)).is_empty());
    assert_eq!(stock.units_at(LEASE), 4);
}

#[test]
fn units_are_usable_until_the_lease_since_the_request_has_passed_on_a_slow_clock() {
    let mut stock = busy(20, 1_000);
    assert!(renew(&mut stock, 1_000, 10, 7).is_empty());
    let taken = stock.take(4).expect("10 units");
    assert_eq!((taken.mark, taken.units), (mark(7), 4));
    assert!(taken.is_usable(1_000 + END - 1));
    assert!(!taken.is_usable(1_000 + END));
    assert_eq!(stock.units_at(0), 6);
}

#[test]
fn a_lease_ends_with_the_period_under_a_fixed_window() {
    let quota = Quota::new(100, Duration::from_secs(1), Algorithm::FixedWindow);
    let quota = quota.and_then(|quota| quota.leased(Duration::from_millis(100))).expect("valid");
    let mut stock = Stock::new(quota, 1, 0);
    (0..20).for_each(|_| stock.observe(0, 1));
    let ask = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    // 2.002 ms before the period ends.
    let time = Timestamp::from_micros(STORE_TIME + 1_000_000 - 2_002);
    assert!(stock.granted(&ask, time, &reply(10, 1)).is_empty());
    let taken = stock.take(1).expect("10 units");
    assert!(taken.is_usable(1_999) && !taken.is_usable(2_000));
}

#[test]
fn a_charge_is_paid_from_one_grant() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    assert!(renew(&mut stock, 1, 5, 2).is_empty());
    assert_eq!(stock.take(4).map(|taken| taken.mark), Some(mark(2)));
    assert!(stock.take(4).is_none(), "3 and 1 are left");
    assert_eq!(stock.take(1).map(|taken| taken.mark), Some(mark(1)), "the oldest that can");
}

#[test]
fn a_renewal_is_sent_before_the_stock_is_empty() {
    let mut stock = busy(100, 0);
    assert!(renew(&mut stock, 0, 100, 1).is_empty());
    assert!(stock.next_renewal(0, ROUND_TRIP, 0).is_none());
    // 1.5 round trips need 3 of the 100 units that half a lease needs.
    stock.take(97).expect("100 units");
    assert!(stock.next_renewal(0, ROUND_TRIP, 0).is_none());
    stock.take(1).expect("3 units");
    let ask = stock.next_renewal(0, ROUND_TRIP, 0).expect("2 units do not last");
    assert_eq!((ask.cost, ask.max), (1, 100));
}

#[test]
fn units_that_end_before_the_reply_arrives_do_not_count() {
    let mut stock = busy(100, 0);
    assert!(renew(&mut stock, 0, 1_000, 1).is_empty());
    let late = END - ROUND_TRIP;
    (0..100).for_each(|_| stock.observe(late, 1));
    assert!(stock.next_renewal(late, ROUND_TRIP, 0).is_some());
}

#[test]
fn a_store_that_is_as_slow_as_the_lease_is_long_is_not_asked_for_one() {
    assert!(busy(100, 0).next_renewal(0, LEASE, 1).is_none());
    assert!(busy(100, 0).next_renewal(0, LEASE - 1, 1).is_some());
}

#[test]
fn units_return_to_their_grant() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    let taken = stock.take(3).expect("3 units");
    assert!(stock.undo(&taken));
    assert_eq!(stock.units_at(0), 3);
    stock.take(2).expect("3 units");
    assert!(stock.refund(mark(1), 2), "by the mark of a receipt");
    assert!(!stock.refund(mark(2), 2), "of another charge");
    assert_eq!(stock.units_at(0), 3);
}

/// A token bucket whose debt is 50 after a grant of 10 units: they are the units 41 to 50.
#[test]
fn under_a_token_bucket_the_mark_shows_which_units_of_the_grant_were_taken() {
    let mut stock = busy(20, 0);
    stock.set_debt_marks(true);
    let ask = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    let grant = ChargeReply { mark: Mark([7, 50, 3]), ..reply(10, 0) };
    assert!(stock.granted(&ask, Timestamp::from_micros(STORE_TIME), &grant).is_empty());
    let marks = [4, 1].map(|cost| stock.take(cost).map(|taken| taken.mark.0));
    assert_eq!(marks, [Some([7, 44, 3]), Some([7, 45, 3])]);
    for other in [[7, 40, 3], [7, 51, 3], [6, 45, 3], [7, 45, 2]] {
        assert!(!stock.refund(Mark(other), 1), "{other:?} is of another charge");
    }
    assert!(stock.refund(Mark([7, 45, 3]), 1));
    stock.observe(END, 1);
    let leftovers = stock.take_leftovers(END);
    assert_eq!(leftovers.as_slice(), [Leftover { mark: Mark([7, 10, 3]), units: 6 }]);
}

#[test]
fn late_units_go_back_to_the_store_with_their_grant() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    assert!(renew(&mut stock, 50, 5, 2).is_empty());
    let taken = stock.take(1).expect("3 units");
    assert!(!taken.is_usable(END));
    assert!(stock.discard(&taken));
    assert_eq!(stock.take(1).map(|taken| taken.mark), Some(mark(2)), "the next grant is open");
    assert_eq!(stock.units_at(0), 4);
    stock.observe(END, 1);
    assert_eq!(stock.take_leftovers(END).as_slice(), [Leftover { mark: mark(1), units: 3 }]);
}

#[test]
fn idle_and_ended_units_are_leftovers() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    assert!(stock.take_leftovers(LEASE / 2 - 1).is_empty());
    assert_eq!(stock.take_leftovers(LEASE / 2).as_slice(), [Leftover { mark: mark(1), units: 3 }]);
    (0..20).for_each(|_| stock.observe(LEASE / 2, 1));
    assert!(renew(&mut stock, LEASE / 2, 8, 2).is_empty());
    stock.observe(LEASE / 2 + END, 1);
    stock.take(1).expect("8 units");
    let leftovers = stock.take_leftovers(LEASE / 2 + END);
    assert_eq!(leftovers.as_slice(), [Leftover { mark: mark(2), units: 7 }]);
    assert_eq!(stock.units_at(0), 0);
}

#[test]
fn the_pause_after_a_reset_outlasts_a_change_of_the_quota() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    stock.forget(2, 500);
    assert!(stock.change_quota(Quota::per_second(500), 3, 100).is_empty());
    let quota = quota();
    assert!(stock.change_quota(quota, 4, 100).is_empty());
    (0..20).for_each(|_| stock.observe(100, 1));
    assert!(stock.next_renewal(499, ROUND_TRIP, 1).is_none());
    assert!(!stock.is_cold(499));
    assert!(stock.next_renewal(500, ROUND_TRIP, 1).is_some());
}

#[test]
fn a_renewal_of_an_earlier_generation_goes_back() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    let taken = stock.take(1).expect("3 units");
    let old = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    let leftovers = stock.take_all(2, 500);
    assert_eq!(leftovers.as_slice(), [Leftover { mark: mark(1), units: 2 }]);
    assert!(!stock.undo(&taken), "the grant has left");
    assert!(stock.next_renewal(499, ROUND_TRIP, 1).is_none(), "it waits for the change");
    let new = stock.next_renewal(500, ROUND_TRIP, 1).expect("demand");
    let time = Timestamp::from_micros(STORE_TIME);
    let expected = Leftover { mark: mark(2), units: 9 };
    assert_eq!(stock.granted(&old, time, &reply(9, 2)).as_slice(), [expected]);
    assert!(stock.renewal(500).is_some(), "the new renewal is still in flight");
    assert!(stock.granted(&new, time, &reply(4, 3)).is_empty());
    assert_eq!(stock.units_at(0), 4);
}

#[test]
fn a_renewal_from_before_a_reset_does_not_go_back() {
    let mut stock = busy(20, 0);
    let old = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    stock.forget(2, 0);
    assert!(stock.granted(&old, Timestamp::from_micros(STORE_TIME), &reply(9, 2)).is_empty());
    assert_eq!(stock.units_at(0), 0);
}

#[test]
fn units_of_an_earlier_quota_go_back() {
    let mut stock = busy(20, 0);
    assert!(renew(&mut stock, 0, 3, 1).is_empty());
    let old = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
    let half = Quota::per_second(500).leased(Duration::from_micros(LEASE)).expect("valid");
    let leftovers = stock.change_quota(half, 2, 0);
    assert_eq!(leftovers.as_slice(), [Leftover { mark: mark(1), units: 3 }]);
    let leftovers = stock.granted(&old, Timestamp::from_micros(STORE_TIME), &reply(9, 2));
    assert_eq!(leftovers.as_slice(), [Leftover { mark: mark(2), units: 9 }]);
    assert_eq!((stock.units_at(0), stock.quota()), (0, &half));
}

#[test]
fn a_fifth_grant_replaces_an_empty_one_or_the_oldest() {
    let mut stock = busy(20, 0);
    (1..=4).for_each(|number| assert!(renew(&mut stock, number, 2, number).is_empty()));
    assert_eq!(renew(&mut stock, 5, 3, 5).as_slice(), [Leftover { mark: mark(1), units: 2 }]);
    stock.take(2).expect("of the second");
    assert!(renew(&mut stock, 6, 3, 6).is_empty(), "the second is empty");
    assert_eq!(stock.units_at(0), 2 + 2 + 3 + 3);
}

#[test]
fn after_a_denial_it_asks_when_units_have_returned() {
    // Not before a quarter of half the lease has passed.
    for (next_after, wait) in [(5_000, LEASE / 8), (20_000, 20_000)] {
        let mut stock = busy(20, 0);
        let ask = stock.next_renewal(0, ROUND_TRIP, 1).expect("demand");
        let next_after = Duration::from_micros(next_after);
        let empty = Standing { remaining: 0, next_after, ..reply(0, 0).standing };
        stock.denied(&ask, Timestamp::from_micros(STORE_TIME), empty);
        assert!(stock.next_renewal(wait - 1, ROUND_TRIP, 1).is_none());
        let ask = stock.next_renewal(wait, ROUND_TRIP, 701).expect("a unit has returned");
        // 700 units are free, which was too little for this check alone.
        stock.denied(&ask, Timestamp::from_micros(STORE_TIME), reply(0, 0).standing);
        let ask = stock.next_renewal(wait + 1, ROUND_TRIP, 1).expect("no wait");
        // The unit that is free is enough for a usual check.
        let one = Standing {
            remaining: 1,
            retry_after: Some(Duration::from_micros(7)),
            ..reply(0, 0).standing
        };
        stock.denied(&ask, Timestamp::from_micros(STORE_TIME), one);
        assert!(stock.next_renewal(wait + 2, ROUND_TRIP, 1).is_some());
        assert_eq!(stock.standing(wait + 2).retry_after, None, "of another charge");
    }
}

#[test]
fn the_standing_has_what_is_free_and_the_stock() {
    let mut stock = busy(20, 1_000);
    assert!(renew(&mut stock, 1_000, 10, 1).is_empty());
    stock.take(4).expect("10 units");
    let time = stock.time(3_000);
    let standing = stock.standing(3_000);
    assert_eq!(time.as_micros(), STORE_TIME + 2_000);
    assert_eq!((standing.limit, standing.remaining), (1_000, 706));
    let waits = [3, 898].map(Duration::from_millis);
    assert_eq!([standing.next_after, standing.reset_after], waits);
    let standing = stock.standing(10_000);
    assert_eq!(
        standing.next_after.as_micros(),
        1,
        "a unit may have returned, how many is not known"
    );

    let ask = stock.next_renewal(10_000, ROUND_TRIP, 1).expect("demand");
    stock.denied(&ask, Timestamp::from_micros(STORE_TIME), Standing::full(1_000));
    let standing = stock.standing(10_000);
    assert_eq!(standing, Standing::full(1_000));
}

#[test]
fn a_stock_is_cold_when_it_is_empty_and_the_demand_has_ceased() {
    let mut stock = busy(20, 0);
    assert!(!stock.is_cold(0));
    assert!(renew(&mut stock, 0, 10, 1).is_empty());
    assert!(!stock.is_cold(10 * LEASE), "it holds units");
    stock.take_leftovers(10 * LEASE);
    assert!(stock.is_cold(10 * LEASE));
}
