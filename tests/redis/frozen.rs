//! The longest wait for a Redis that is frozen.

use std::{pin::pin, process::Command, time::Duration};

use plimsoll::{Limiter, RedisStore, Resilience, redis::RedisConfig, store::Source};
use plimsoll_testing::servers::Server;
use tokio::time::{Instant, sleep_until};

use crate::{patient, policy};

fn signal(signal: &str, server: &Server) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
}

const DEADLINE: Duration = Duration::from_millis(50);
/// The longest time between the deadline and the end of a check that is judged.
const SPARE: Duration = Duration::from_millis(5);
/// The timers of a process that is not late are less late than this.
const CALM: Duration = Duration::from_millis(3);
const TICK: Duration = Duration::from_millis(1);

/// Without a breaker, each check waits until the deadline. A late process extends it, so a check is not
/// judged if the timers of this thread are late at its end.
#[tokio::test]
async fn a_check_waits_until_the_deadline_of_50_ms() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::default().without_breaker());
    let policy = policy("p", "10000/h");
    let _ = limiter.check(policy.charge("alice", 1)).await.expect("decided");
    signal("-STOP", &server);
    let (mut waits, mut not_judged) = (Vec::new(), 0);
    while waits.len() < 100 {
        let start = Instant::now();
        let mut check = pin!(limiter.check(policy.charge("alice", 1)));
        let (mut due, mut late) = (start + DEADLINE - 2 * TICK, Duration::ZERO);
        let decision = loop {
            tokio::select! {
                decision = &mut check => break decision.expect("it falls back"),
                () = sleep_until(due) => {}
            }
            late += due.elapsed();
            due = Instant::now() + TICK;
        };
        assert_eq!(decision.source(), Source::Fallback);
        let wait = start.elapsed();
        if late + due.elapsed() < CALM {
            waits.push(wait);
        } else {
            not_judged += 1;
            assert!(not_judged < 1_000, "the machine is late all the time: {wait:?}");
        }
    }
    signal("-CONT", &server);
    waits.sort_unstable();
    let (median, p99, longest) = (waits[49], waits[98], waits[99]);
    eprintln!(
        "measured: Redis frozen: median {median:?}, p99 {p99:?}, max {longest:?}; {not_judged} checks \
         in a late process"
    );
    assert!(p99 <= DEADLINE + SPARE, "p99 {p99:?}");
}
