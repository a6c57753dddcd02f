//! Refunds that follow several changes of the window.

use std::time::Duration;

use plimsoll::{Algorithm, Policy, Quota};
use plimsoll_testing::{
    algorithms::{Returns, returns, with_parameters},
    hold, memory, now, seed,
};
use proptest::{collection::vec, prelude::*, sample::select, test_runner::Config};

use crate::contract::over_a_map;

const LIMIT: u64 = 1_000_000;

/// A window in microseconds, a time that passes, and the units then charged.
type Charge = (u64, u64, u64);

fn charges() -> impl Strategy<Value = Vec<Charge>> {
    let window = select(&[1_000_u64, 1_300, 5_000, 20_000, 60_000]);
    vec((window, prop_oneof![Just(0), 0..2_000_u64, 0..30_000_u64], 1..9_u64), 1..12)
}

fn quota(algorithm: Algorithm, n: u16, window: u64) -> Quota {
    let algorithm = with_parameters(algorithm, n, LIMIT / 1_000);
    let limit = match returns(algorithm) {
        Returns::AtRate => 20,
        Returns::AfterWindow | Returns::ByPeriod => LIMIT,
    };
    Quota::new(limit, Duration::from_micros(window), algorithm).expect("valid")
}

#[test]
fn a_refund_after_changes_gives_back_what_weighs_and_once() {
    let algorithms = select(Algorithm::EACH);
    let cases = (algorithms, 1..9_u16, charges(), 0..40_000_u64, any::<prop::sample::Index>());
    let name = "refunds after changes";
    seed::property(name, Config::with_cases(3_000), cases, |case| {
        let (algorithm, n, charges, later, first) = case;
        let fixture = now(memory());
        // Removes what has expired, and gives back the same.
        let removing = now(over_a_map());
        let mut time = 1_700_000_000_000_000;
        let policy = Policy::new("p", quota(algorithm, n, 1_000)).expect("valid");
        let peek = || {
            let decision = now(fixture.limiter.peek(policy.charge("alice", 0))).expect("memory");
            decision.outcomes().next().expect("an outcome").standing().remaining
        };
        let mut held = Vec::new();
        for (window, passed, units) in charges {
            time += passed;
            policy.set_quota(quota(algorithm, n, window));
            let both = [&fixture, &removing].map(|fixture| {
                fixture.set(time);
                now(hold(&fixture.limiter, policy.charge("alice", units)))
            });
            held.push((units, both));
        }
        fixture.set(time + later);
        removing.set(time + later);
        // From any charge on, so that units of one record or period go in several orders.
        let middle = first.index(held.len());
        held.rotate_left(middle);
        let capacity = policy.quota().capacity();
        for (units, [held, in_map]) in held {
            let before = peek();
            let refunded = now(held.refund()).expect("memory");
            prop_assert_eq!(now(in_map.refund()).expect("a map"), refunded);
            prop_assert!(refunded <= units, "{refunded} of {units}");
            prop_assert!(refunded == 0 || before < capacity, "{refunded} of a key that is full");
            let freed = peek() - before;
            prop_assert!(freed <= refunded, "{freed} are free again, {refunded} refunded");
            let logged = returns(algorithm) == Returns::AfterWindow;
            if logged || algorithm == Algorithm::FixedWindow {
                prop_assert_eq!(freed, refunded);
            }
        }
        // Each unit was refunded once: none is left of a log, and none came back twice.
        if returns(algorithm) == Returns::AfterWindow {
            prop_assert_eq!(peek(), capacity);
        }
        Ok(())
    });
}
