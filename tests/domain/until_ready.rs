//! Waiting for a turn: first come, first served; bounded; and no wait is begun that cannot end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::{
    Decision, Limiter, MemoryStore,
    clock::{Clock, Timestamp},
    error::ErrorKind,
    memory::MemoryConfig,
};
use plimsoll_testing::policy;
use tokio::{task::JoinSet, time::Instant};

/// Shows the time of tokio, which tests can pause.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = Instant::now() - self.0;
        Timestamp::from_micros(1_700_000_000_000_000 + passed.as_micros() as u64)
    }
}

fn limiter() -> Limiter {
    let clock = TokioClock(Instant::now());
    Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock)))
}

const LONG: Duration = Duration::from_secs(86_400);

#[tokio::test(start_paused = true)]
async fn waiters_for_a_key_take_turns() {
    let (limiter, policy) = (limiter(), policy("p", "1/s token-bucket(3)"));
    let order = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    let cost = |index: u64| 1 + index % 3;
    for index in 0..50_u64 {
        let (limiter, policy, order) = (limiter.clone(), policy.clone(), Arc::clone(&order));
        tasks.spawn(async move {
            // The dear ones are not overtaken by the cheap.
            let decision = limiter.until_ready(policy.charge("alice", cost(index)), LONG).await;
            assert!(decision.expect("a turn").is_allowed());
            order.lock().expect("no panic").push((index, start.elapsed()));
        });
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    let order = order.lock().expect("no panic");
    let indexes: Vec<_> = order.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, (0..50).collect::<Vec<_>>());
    for (index, after) in order.iter() {
        let spent: u64 = (0..=*index).map(cost).sum();
        let exact = Duration::from_secs(spent.saturating_sub(3));
        // Tokio's timers wake up to a millisecond late, and lateness is not lost between turns.
        assert!(*after >= exact && *after < exact + Duration::from_millis(100), "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_each_other() {
    let (limiter, policy) = (limiter(), policy("p", "1/h"));
    for key in ["alice", "bob"] {
        let decision = limiter.until_ready(policy.charge(key, 1), Duration::ZERO).await;
        assert!(decision.expect("a turn").is_allowed());
    }
    let waiting = {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tokio::spawn(
            async move { limiter.until_ready(policy.charge("alice", 1), LONG).await.is_ok() },
        )
    };
    tokio::task::yield_now().await;
    let decision = limiter.until_ready(policy.charge("carol", 1), Duration::ZERO).await;
    assert!(decision.expect("a turn").is_allowed());
    assert!(waiting.await.expect("no panic"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_cannot_end_in_time_is_not_begun() {
    let (limiter, policy) = (limiter(), policy("p", "1/min"));
    assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
    let start = Instant::now();
    let within = Duration::from_secs(59);
    let decision = limiter.until_ready(policy.charge("alice", 1), within).await;
    let Decision::Denied(denied) = decision.expect("an answer") else { panic!("spent") };
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    // More than there can ever be.
    let decision = limiter.until_ready(policy.charge("alice", 2), LONG).await;
    let Decision::Denied(denied) = decision.expect("an answer") else { panic!("2 of 1") };
    assert!(denied.is_over_capacity());
    assert_eq!(start.elapsed(), Duration::ZERO);
    let decision = limiter.until_ready(policy.charge("alice", 1), Duration::from_secs(61)).await;
    assert!(decision.expect("a turn").is_allowed());
    assert!(start.elapsed() >= Duration::from_secs(60));
}

/// The queue counts: the job behind the first one would have its turn after two minutes.
#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_come_in_time_is_denied_at_once() {
    let (limiter, policy) = (limiter(), policy("p", "1/min"));
    assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
    let first = {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tokio::spawn(
            async move { limiter.until_ready(policy.charge("alice", 1), LONG).await.is_ok() },
        )
    };
    tokio::task::yield_now().await;
    let start = Instant::now();
    let within = Duration::from_secs(119);
    let second = limiter.until_ready(policy.charge("alice", 1), within).await;
    let Decision::Denied(denied) = second.expect("an answer") else { panic!("behind the first") };
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(120)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(first.await.expect("no panic"));
}

/// Under a concurrency limit, a unit may be released at any time. So the turn may not come in time.
#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_come_in_time_is_an_error() {
    let (limiter, policy) = (limiter(), policy("p", "1 concurrent expires(1h)"));
    let held = limiter.reserve(policy.charge("alice", 1)).await.expect("an answer");
    let first = {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tokio::spawn(
            async move { limiter.until_ready(policy.charge("alice", 1), LONG).await.is_ok() },
        )
    };
    tokio::task::yield_now().await;
    let start = Instant::now();
    let second = limiter.until_ready(policy.charge("alice", 1), Duration::from_secs(10)).await;
    assert!(second.expect_err("the first waits").kind() == ErrorKind::Deadline);
    assert!(start.elapsed() < Duration::from_millis(10_010));
    drop(held);
    assert!(first.await.expect("no panic"));
}

#[tokio::test(start_paused = true)]
async fn charges_in_any_order_do_not_lock_each_other_out() {
    let limiter = limiter();
    let policies = [policy("a", "1/s"), policy("b", "1/s"), policy("c", "1/s")];
    let mut tasks = JoinSet::new();
    for index in 0..60_usize {
        let (limiter, policies) = (limiter.clone(), policies.clone());
        tasks.spawn(async move {
            let order = [index % 3, (index + 1 + index / 3 % 2) % 3];
            let charges = order.map(|policy| policies[policy].charge("alice", 1));
            limiter.until_ready(charges, LONG).await.expect("a turn").is_allowed()
        });
    }
    assert!(tasks.join_all().await.into_iter().all(|allowed| allowed));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_holds_no_other_up() {
    let (limiter, policy) = (limiter(), policy("p", "1/s"));
    let mut tasks: Vec<_> = (0..20)
        .map(|_| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tokio::spawn(async move {
                limiter.until_ready(policy.charge("alice", 1), LONG).await.is_ok()
            })
        })
        .collect();
    tokio::task::yield_now().await;
    let start = Instant::now();
    let last = tasks.pop().expect("20 tasks");
    // The first is through, the others wait; all but the last give up.
    for task in tasks.drain(1..) {
        task.abort();
        assert!(task.await.expect_err("aborted").is_cancelled());
    }
    assert!(last.await.expect("no panic"));
    assert!(start.elapsed() < Duration::from_millis(1_100), "{:?}", start.elapsed());
}

/// At most 10,000 tasks wait. The next one gets an error, and a task that leaves
/// makes room for another one.
#[tokio::test(start_paused = true)]
async fn no_more_than_the_most_wait() {
    // The last of them has its turn after a week.
    const LONG: Duration = Duration::from_secs(30 * 86_400);
    let (limiter, policy) = (limiter(), policy("p", "1/min"));
    assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
    let mut tasks: Vec<_> = (0..10_000)
        .map(|_| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tokio::spawn(async move {
                limiter.until_ready(policy.charge("alice", 1), LONG).await.is_ok()
            })
        })
        .collect();
    // The runtime comes back to this task after a few dozen others.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    for key in ["alice", "bob"] {
        let error = limiter.until_ready(policy.charge(key, 1), LONG).await.expect_err("full");
        assert!(error.kind() == ErrorKind::QueueFull);
        assert!(error.to_string().contains("10000"), "{error}");
    }
    // Plain checks do not queue.
    assert!(limiter.check(policy.charge("bob", 1)).await.expect("an answer").is_allowed());
    let one = tasks.pop().expect("many");
    one.abort();
    let _ = one.await;
    let carol = limiter.until_ready(policy.charge("carol", 1), Duration::ZERO).await;
    assert!(carol.expect("there is room for one").is_allowed());
    for task in tasks {
        task.abort();
        let _ = task.await;
    }
}
