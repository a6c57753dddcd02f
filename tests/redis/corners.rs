//! States of logs that random histories hardly reach, each with what its next request has to find.

use std::time::Duration;

use plimsoll::{
    Decision, Limiter, MemoryStore, Policy, RedisStore, Resilience,
    clock::{ManualClock, Timestamp},
    decision::{Receipt, ReceiptLine, Standing},
    limiter::Reservation,
    memory::MemoryConfig,
    redis::RedisConfig,
    store::{Mark, Request, Source, Store},
};
use plimsoll_testing::{hold, policy, servers::Server};

use crate::patient;

const NOW: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;

struct Shared {
    _server: Server,
    store: RedisStore,
    limiter: Limiter,
    clock: ManualClock,
}

impl Shared {
    async fn start() -> Self {
        let server = Server::start();
        let clock = ManualClock::at(NOW);
        let config = RedisConfig::url(server.url()).with_settings(patient());
        let store = RedisStore::connect_with(config).await.expect("a store");
        let store = store.with_test_clock(clock.clone());
        let limiter = Limiter::with_resilience(store.clone(), Resilience::none());
        Self { _server: server, store, limiter, clock }
    }

    async fn hold(&self, policy: &Policy, units: u64) -> Reservation {
        hold(&self.limiter, policy.charge("alice", units)).await
    }

    async fn receipt(&self, policy: &Policy, units: u64) -> Receipt {
        let decision = self.limiter.check(policy.charge("alice", units)).await;
        match decision.expect("an answer").into_owned() {
            Decision::Allowed(allowed) => allowed.into_receipt(),
            Decision::Denied(denied) => panic!("units are free: {denied:?}"),
        }
    }

    async fn remaining(&self, policy: &Policy) -> u64 {
        let peek = self.limiter.peek(policy.charge("alice", 0)).await.expect("an answer");
        peek.outcomes().next().expect("an outcome").standing().remaining
    }
}

/// The newest record of a long log is the first of its block. The total before it is not in the block.
#[tokio::test]
async fn a_refund_of_the_newest_record_after_one_of_an_earlier_record() {
    let shared = Shared::start().await;
    let policy = policy("log", "10000/h");
    let mut held = Vec::new();
    // Records begin at a multiple of 8, and a log of 41 of them is long.
    for number in 0..57 {
        shared.clock.set(NOW + number);
        held.push(shared.hold(&policy, 10).await);
    }
    let newest = held.pop().expect("the first record of the eighth block");
    let earlier = held.swap_remove(20);
    assert_eq!(earlier.refund().await.expect("an answer"), 10);
    assert_eq!(newest.refund().await.expect("an answer"), 10);
    assert_eq!(shared.remaining(&policy).await, 10_000 - 550);
}

/// The wait in the reply to a refund follows the oldest record that has units left, even if there are later
/// ones.
#[tokio::test]
async fn the_standing_after_a_refund_of_the_oldest_record() {
    let shared = Shared::start().await;
    for (name, later) in [("two", &[4][..]), ("three", &[2, 2]), ("four", &[2, 1, 1])] {
        let policy = policy(name, "10/10s");
        let first = shared.receipt(&policy, 3).await;
        for units in later {
            shared.clock.advance(Duration::from_secs(1));
            let _ = shared.receipt(&policy, *units).await;
        }
        let answer = shared.store.call(Request::Refund(&first), None).await;
        let reply = answer.expect("an answer").charges()[0];
        assert_eq!((reply.units, reply.standing.remaining), (3, 6), "{name}");
        let since_second = later.len() as u64 - 1;
        assert_eq!(reply.standing.next_after, Duration::from_secs(10 - since_second), "{name}");
        assert_eq!(reply.standing.reset_after, Duration::from_secs(10), "{name}");
    }
}

/// A replica that lacks the newest records has taken over.
#[tokio::test]
async fn units_in_flight_that_the_store_has_lost_refund_nothing() {
    let shared = Shared::start().await;
    let policy = policy("jobs", "9 concurrent");
    let receipt = shared.receipt(&policy, 3).await;
    for later in 1..4 {
        let line = &receipt.lines()[0];
        let [number, ..] = line.mark.0;
        let mark = Mark([number + later, 0, 0]);
        let line = ReceiptLine::from_parts(policy.charge("alice", 2), policy.quota(), 2, mark);
        let lost = Receipt::new(receipt.time, receipt.source, [line]);
        let answer = shared.store.call(Request::Refund(&lost), None).await;
        assert_eq!(answer.expect("an answer").charges()[0].units, 0, "{later} records later");
        assert_eq!(shared.remaining(&policy).await, 6, "{later} records later");
    }
}

/// The records of the shorter window keep its life, also when they are the only ones left.
#[tokio::test]
async fn a_log_of_one_block_keeps_the_life_of_an_earlier_window() {
    let shared = Shared::start().await;
    let policy = policy("log", "10000/100s");
    // Six blocks of records, and another one 90 s later.
    for number in 0..56 {
        shared.clock.set(NOW + number + if number < 48 { 0 } else { 90 * SECOND });
        let _ = shared.receipt(&policy, 10).await;
    }
    policy.set_quota("10000/200s".parse().expect("a quota"));
    shared.clock.set(NOW + 101 * SECOND);
    let _ = shared.receipt(&policy, 1).await;
    assert_eq!(shared.remaining(&policy).await, 10_000 - 81);
    shared.clock.set(NOW + 195 * SECOND);
    assert_eq!(shared.remaining(&policy).await, 10_000 - 1);
}

/// The refund is written behind the header of the block.
#[tokio::test]
async fn a_refund_after_a_block_leaves_a_state() {
    let shared = Shared::start().await;
    for (index, quota) in
        ["9/min", "9/min fixed-window", "9/min sliding-counter", "9/min token-bucket(9)"]
            .into_iter()
            .enumerate()
    {
        let policy = policy(&format!("p{index}"), quota);
        let _ = shared.receipt(&policy, 2).await;
        let held = shared.hold(&policy, 3).await;
        let block = shared.limiter.block(policy.charge("alice", 0), Duration::from_millis(10));
        block.await.expect("an answer");
        shared.clock.advance(Duration::from_millis(20));
        assert_eq!(held.refund().await.expect("an answer"), 3, "{quota}");
        assert_eq!(shared.remaining(&policy).await, 7, "{quota}");
        let _ = shared.receipt(&policy, 7).await;
        assert_eq!(shared.remaining(&policy).await, 0, "{quota}");
        shared.clock.set(NOW + (index as u64 + 1) * 1_000 * SECOND);
    }
}

/// A step of a history of one key, at a time after [`NOW`] in microseconds.
enum Step {
    Charge {
        at: u64,
        units: u64,
    },
    /// Refunds units of charges, which are numbered from 0.
    Refund {
        at: u64,
        lines: &'static [(usize, u64)],
    },
}

/// Takes the steps in a store. Returns the units of each refund, and the standing after it.
async fn refunds(
    store: &dyn Store,
    clock: &ManualClock,
    policy: &Policy,
    steps: &[Step],
) -> Vec<(Vec<u64>, Standing)> {
    let (mut marks, mut refunds) = (Vec::new(), Vec::new());
    for step in steps {
        match *step {
            Step::Charge { at, units } => {
                clock.set(NOW + at);
                let charges = [policy.charge("alice", units)];
                let reply = store.call(Request::Acquire(&charges), None).await.expect("a reply");
                assert_eq!(reply.charges()[0].units, units, "units are free");
                marks.push(reply.charges()[0].mark);
            }
            Step::Refund { at, lines } => {
                clock.set(NOW + at);
                let lines = lines.iter().map(|&(charge, units)| {
                    let one = policy.charge("alice", units);
                    ReceiptLine::from_parts(one, policy.quota(), units, marks[charge])
                });
                let time = Timestamp::from_micros(NOW);
                let receipt = Receipt::new(time, Source::Shared, lines);
                let reply = store.call(Request::Refund(&receipt), None).await.expect("a reply");
                let units = reply.charges().iter().map(|reply| reply.units).collect();
                let charges = [policy.charge("alice", 0)];
                let peek = store.call(Request::Peek(&charges), None).await.expect("a reply");
                refunds.push((units, peek.charges()[0].standing));
            }
        }
    }
    refunds
}

/// Refunds at the very edge of a record or a debt are the same as in the embedded store.
#[tokio::test]
async fn refunds_at_an_edge_are_the_same_as_in_the_embedded_store() {
    use Step::{Charge, Refund};
    const END: u64 = 10 * SECOND;
    let shared = Shared::start().await;
    let jobs = "9 concurrent expires(10s)";
    let bucket = "10/10s token-bucket(10)";
    for (number, (quota, steps, expected)) in [
        // A record of which a part was released before.
        (
            jobs,
            vec![
                Charge { at: 0, units: 3 },
                Charge { at: 1, units: 2 },
                Refund { at: 2, lines: &[(1, 1)] },
                Refund { at: 3, lines: &[(1, 2)] },
            ],
            vec![vec![1], vec![1]],
        ),
        // A record counts until its end.
        (
            jobs,
            vec![
                Charge { at: 0, units: 3 },
                Charge { at: 1, units: 2 },
                Refund { at: END - 1, lines: &[(0, 1)] },
                Refund { at: END, lines: &[(0, 2)] },
            ],
            vec![vec![1], vec![0]],
        ),
        // The same for two lines of one receipt.
        (
            jobs,
            vec![
                Charge { at: 0, units: 3 },
                Charge { at: 1, units: 2 },
                Refund { at: END - 1, lines: &[(0, 1), (1, 1)] },
                Refund { at: END, lines: &[(0, 2), (1, 1)] },
            ],
            vec![vec![1, 1], vec![0, 1]],
        ),
        // The clock was set back by more than a window.
        (
            jobs,
            vec![
                Charge { at: 3 * END, units: 3 },
                Charge { at: 3 * END + 1, units: 2 },
                Refund { at: END, lines: &[(1, 1)] },
                Refund { at: 2 * END - 1, lines: &[(0, 1)] },
                Refund { at: 2 * END, lines: &[(0, 2)] },
            ],
            vec![vec![1], vec![0], vec![0]],
        ),
        // Half of a unit of the debt is paid: 5 whole units are left.
        (
            bucket,
            vec![
                Charge { at: 0, units: 3 },
                Charge { at: 0, units: 3 },
                Refund { at: SECOND / 2, lines: &[(1, 3)] },
                Refund { at: SECOND / 2, lines: &[(1, 3)] },
                Refund { at: SECOND / 2, lines: &[(1, 3)] },
            ],
            vec![vec![3], vec![2], vec![0]],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let policy = policy(&format!("p{number}"), quota);
        let embedded = MemoryStore::new(MemoryConfig::default().clock(shared.clock.clone()));
        let [one, other] = [&shared.store as &dyn Store, &embedded];
        let one = refunds(one, &shared.clock, &policy, &steps).await;
        let other = refunds(other, &shared.clock, &policy, &steps).await;
        assert_eq!(one, other, "history {number}");
        let units: Vec<_> = one.into_iter().map(|(units, _)| units).collect();
        assert_eq!(units, expected, "history {number}");
    }
}

/// The generation of the second change is the start of the next period.
#[tokio::test]
async fn a_refund_after_two_changes_in_the_last_microsecond_of_a_period() {
    let shared = Shared::start().await;
    for (algorithm, next_charge) in [("fixed-window", 20_100), ("sliding-counter", 22_100)] {
        let policy = policy(algorithm, &format!("50/2ms {algorithm}"));
        let quota = |window| format!("50/{window} {algorithm}").parse().expect("a quota");
        shared.clock.set(NOW + 19_500);
        let _ = shared.receipt(&policy, 1).await;
        shared.clock.set(NOW + 19_999);
        for window in ["ms", "2ms"] {
            policy.set_quota(quota(window));
            let _ = shared.receipt(&policy, 1).await;
        }
        shared.clock.set(NOW + 20_059);
        let held = shared.hold(&policy, 15).await;
        shared.clock.set(NOW + next_charge);
        let _ = shared.receipt(&policy, 1).await;
        assert_eq!(held.refund().await.expect("an answer"), 15, "{algorithm}");
    }
}
