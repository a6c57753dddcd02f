//! Decisions and receipts as an application reads them.

use std::time::Duration;

use plimsoll::{
    Decision, Limiter, MemoryStore, Policy,
    clock::{ManualClock, Timestamp},
    decision::{Receipt, ReceiptLine},
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Source, Verdict},
};
use plimsoll_testing::policy;

const NOW: u64 = 1_700_000_000_000_000;

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new(MemoryConfig::default().clock(ManualClock::at(NOW))))
}

fn decide<'p>(limiter: &Limiter, charges: [(&'p Policy, u64); 3]) -> Decision<'p> {
    let charges: plimsoll::policy::Charges<'_> =
        charges.into_iter().map(|(policy, cost)| policy.charge("alice", cost)).collect();
    limiter.check_now(charges).expect("the store answers")
}

#[test]
fn outcomes_are_in_the_order_of_the_charges() {
    let [a, b, c] = ["a", "b", "c"].map(|name| policy(name, "9/min"));
    let decision = decide(&limiter(), [(&a, 1), (&b, 2), (&c, 3)]);
    let outcomes = decision.outcomes();
    assert_eq!(outcomes.len(), 3);
    let mut ends = outcomes;
    for left in [3, 2, 1] {
        assert_eq!((ends.len(), ends.size_hint()), (left, (left, Some(left))));
        let outcome = ends.next().map(|it| (it.charge().policy().name(), it.name(), it.granted()));
        let (name, granted) = [("c", 3), ("b", 2), ("a", 1)][left - 1];
        assert_eq!(outcome, Some((name, "allowed", granted)));
    }
    assert!(ends.next().is_none() && ends.len() == 0);
}

/// Two policies of one name would be one limit, and the second quota would be forgotten.
#[tokio::test]
async fn two_policies_of_one_name_are_refused_by_each_method() {
    let (minute, day) = (policy("ip", "3/min"), policy("ip", "30/d"));
    let charges = || [minute.charge("alice", 1), day.charge("alice", 1)];
    let (limiter, second) = (limiter(), Duration::from_secs(1));
    let errors = [
        limiter.check(charges()).await.map(drop),
        limiter.check_now(charges()).map(drop),
        limiter.check_within(charges(), second).await.map(drop),
        limiter.peek(charges()).await.map(drop),
        limiter.reserve(charges()).await.map(drop),
        limiter.until_ready(charges(), second).await.map(drop),
        limiter.penalize(charges()).await.map(drop),
        limiter.reset(charges()).await.map(drop),
        limiter.block(charges(), second).await.map(drop),
        limiter.unblock(charges()).await.map(drop),
    ];
    for (method, result) in errors.into_iter().enumerate() {
        assert!(result.is_err_and(|error| error.kind() == ErrorKind::Invalid), "{method}");
    }
    let decision = limiter.check_now(minute.charge("alice", 3)).expect("the store answers");
    assert!(decision.is_allowed(), "nothing was spent");
}

#[test]
fn a_decision_and_its_receipt_have_the_time_and_the_source() {
    let tokens = policy("tokens", "9/min");
    let limiter = limiter();
    let time = Timestamp::from_micros(NOW);
    let decision = limiter.check_now(tokens.charge("alice", 8)).expect("the store answers");
    assert_eq!((decision.time(), decision.source()), (time, Source::Local));
    let Decision::Allowed(allowed) = decision.into_owned() else { panic!("8 of 9") };
    assert_eq!((allowed.remaining(), allowed.outcomes().len()), (Some(1), 1));
    let receipt = allowed.into_receipt();
    assert_eq!((receipt.time, receipt.source), (time, Source::Local));
    let [line] = receipt.lines() else { panic!("one line: {receipt:?}") };
    assert_eq!((line.charge.key(), line.units), (&"alice".into(), 8));

    let denied = limiter.check_now(tokens.charge("alice", 2)).expect("the store answers");
    let Decision::Denied(denied) = denied.into_owned() else { panic!("2 of 1") };
    assert_eq!(denied.source(), Source::Local);
    assert_eq!((denied.outcomes().len(), denied.is_over_capacity()), (1, false));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(denied.binding().map(|it| it.verdict()), Some(Verdict::Refused));
}

/// Denials bind by their wait, and admissions by the units that are left.
#[test]
fn the_first_of_equal_outcomes_binds() {
    let [a, b, c] = ["a", "b", "c"].map(|name| policy(name, "9/min"));
    let limiter = limiter();
    let binding = |decision: Decision<'_>| {
        decision.binding().map(|outcome| outcome.charge().policy().name().to_owned())
    };
    assert_eq!(binding(decide(&limiter, [(&a, 1), (&b, 5), (&c, 5)])).as_deref(), Some("b"));
    assert_eq!(binding(decide(&limiter, [(&a, 9), (&b, 5), (&c, 5)])).as_deref(), Some("a"));
    assert_eq!(binding(decide(&limiter, [(&a, 1), (&b, 5), (&c, 5)])).as_deref(), Some("b"));
    assert_eq!(binding(decide(&limiter, [(&a, 8), (&b, 10), (&c, 10)])).as_deref(), Some("b"));
}

/// A receipt that was stored refunds what the charge has spent, and has what the first one had.
#[test]
fn a_restored_receipt_equals_the_stored_receipt() {
    let tokens = policy("tokens", "9/min");
    let limiter = limiter();
    let decision = limiter.check_now(tokens.charge("alice", 8)).expect("the store answers");
    let Decision::Allowed(allowed) = decision else { panic!("8 of 9") };
    let stored = allowed.into_receipt();
    let line = &stored.lines()[0];
    let mark = line.mark;
    let line = ReceiptLine::from_parts(tokens.charge("alice", 8), tokens.quota(), 8, mark);
    let restored = Receipt::new(stored.time, stored.source, [line]);
    assert_eq!(format!("{restored:?}"), format!("{stored:?}"));
    let refunded = plimsoll_testing::now(limiter.hold(restored).refund());
    assert_eq!(refunded.expect("the store answers"), 8);
}
