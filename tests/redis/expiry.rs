//! The TTL of each key, by the clock of the server.

use std::time::Duration;

use plimsoll::{Limiter, RedisStore, Resilience, clock::ManualClock, redis::RedisConfig};
use plimsoll_testing::{
    algorithms::{Returns, each_quota, returns},
    calm::repeated,
    policy,
    servers::Server,
};
use tokio::time::Instant;

use crate::patient;

/// Returns a limiter that names keys in the clear, by the clock of the server.
async fn limiter(server: &Server) -> Limiter {
    let config = RedisConfig::url(server.url()).with_settings(patient().plain_keys(true));
    let store = RedisStore::connect_with(config).await.expect("a store");
    Limiter::with_resilience(store, Resilience::none())
}

/// A key lives until all its units are back, and not much longer, also if it is charged all the time.
#[tokio::test]
async fn a_key_lives_as_long_as_what_it_has_spent() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let each = each_quota("1000/2s", 4, 1_000);
    for turn in 0..60 {
        for (quota, tag) in &each {
            let policy = policy("p", quota);
            // The expiry of a log is renewed ahead of time.
            let is_log = returns(policy.quota().algorithm()) == Returns::AfterWindow;
            let spare = if is_log { 4_000 } else { 2_000 };
            let left = async || {
                let peek = limiter.peek(policy.charge("alice", 0)).await.expect("a decision");
                peek.outcomes().next().expect("an outcome").standing().reset_after.as_millis()
            };
            let _ = limiter.check(policy.charge("alice", 100)).await.expect("a decision");
            let before = left().await;
            let lives: i64 = server.ask(&format!("PTTL plim:{{=alice}}:p:{tag}"));
            let after = left().await;
            assert!(
                after == 0 || lives as i128 >= after as i128,
                "{quota}, {turn}: {lives} of {after} ms"
            );
            let most = before + spare;
            assert!(lives as i128 <= most as i128, "{quota}, {turn}: {lives} of {most} ms");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The expiry of a long log is renewed ahead of time, and not with each charge.
#[tokio::test]
async fn a_long_log_lives_as_long_as_what_it_has_spent() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let policy = policy("p", "100000/2s");
    // More than 41 records in each window, for several windows.
    for turn in 0..300 {
        let before = Instant::now();
        let decision = limiter.check(policy.charge("alice", 1)).await.expect("a decision");
        assert!(decision.is_allowed());
        let lives: i64 = server.ask("PTTL plim:{=alice}:p:l4");
        let peek = limiter.peek(policy.charge("alice", 0)).await.expect("a decision");
        let after = peek.outcomes().next().expect("an outcome").standing().reset_after;
        // The test stood still until the window was over.
        let is_over = before.elapsed() >= Duration::from_secs(2);
        assert!(
            is_over || lives as i128 >= after.as_millis() as i128,
            "{turn}: {lives} ms of {after:?}"
        );
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// A shorter window does not shorten the life of a counter: the state says which charges of the longer window
/// a refund finds.
#[tokio::test]
async fn a_counter_lives_as_long_as_the_periods_of_earlier_windows() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    for (algorithm, tag, periods) in [("fixed-window", "f3", 1), ("sliding-counter", "c3", 2)] {
        let policy = policy("p", &format!("10/1h {algorithm}"));
        let [seconds, _]: [i64; 2] = server.ask("TIME");
        let end = (seconds / 3_600 + periods) * 3_600_000;
        for quota in ["10/1h", "100/1s", "100/2s", "100/1s"] {
            policy.set_quota(format!("{quota} {algorithm}").parse().expect("a quota"));
            assert!(
                limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed()
            );
            // A new period of the short window, whose key is written anew.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            assert!(
                limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed()
            );
            let expires: i64 = server.ask(&format!("PEXPIRETIME plim:{{=alice}}:p:{tag}"));
            assert!(expires >= end, "{quota} {algorithm}: {expires}, and the period ends at {end}");
        }
    }
}

/// In the first window of all, the time of the last charge is no sign of an earlier one.
#[tokio::test]
async fn a_key_of_the_first_window_after_the_epoch_expires() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let clock = ManualClock::default();
    clock.set(1);
    let limiter = Limiter::with_resilience(store.with_test_clock(clock), Resilience::none());
    let each = each_quota("1000/2s", 4, 1_000);
    for (quota, _) in &each {
        let policy = policy("p", quota);
        let decision = limiter.check(policy.charge("alice", 1)).await.expect("a decision");
        assert!(decision.is_allowed());
    }
    assert_eq!(server.keys().len(), each.len());
    server.assert_all_keys_expire();
}

/// A blocked key lives as long as its block, or as its state if that is longer. When the block is
/// lifted, it lives as long as its state.
#[tokio::test]
async fn a_key_lives_as_long_as_its_block() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    // The time of the server in milliseconds, rounded up.
    let time = || {
        let [seconds, micros]: [i64; 2] = server.ask("TIME");
        seconds * 1_000 + micros / 1_000 + 1
    };
    for (quota, tag) in &each_quota("1000/2s", 4, 1_000) {
        let policy = policy("p", quota);
        // The time at which the key expires, or a negative number if there is none.
        let end =
            |key: &str| -> i64 { server.ask(&format!("PEXPIRETIME plim:{{={key}}}:p:{tag}")) };
        // Returns the earliest and the latest time at which the key was blocked.
        let block = async |key: &'static str, millis: u64| {
            let before = time() - 1;
            let duration = Duration::from_millis(millis);
            limiter.block(policy.charge(key, 1), duration).await.expect("an answer");
            (before, time())
        };
        let unblock = async |key: &'static str| {
            limiter.unblock(policy.charge(key, 1)).await.expect("an answer");
        };
        let is_blocked_for = |key: &str, millis: i64, (earliest, latest): (i64, i64)| {
            let (end, range) = (end(key), earliest + millis..=latest + millis + 1);
            assert!(range.contains(&end), "{key} {tag}: {end} is not in {range:?}");
            end
        };
        let blocked = block("unspent", 60_000).await;
        let first = is_blocked_for("unspent", 60_000, blocked);
        block("unspent", 30_000).await;
        assert_eq!(end("unspent"), first, "{tag}: the later end counts");
        let blocked = block("unspent", 120_000).await;
        is_blocked_for("unspent", 120_000, blocked);
        unblock("unspent").await;
        assert_eq!(end("unspent"), -2, "{tag}: no state is left");

        for attempt in 1.. {
            // In a log with a ring.
            for _ in 0..50 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(limiter.check(policy.charge("spent", 4)).await.expect("one").is_allowed());
            }
            let state = end("spent");
            let (earliest, latest) = block("spent", 1).await;
            // The window of a counter may end before the block.
            if latest < state {
                let range = state..=state + 2 + latest - earliest;
                let end = end("spent");
                assert!(range.contains(&end), "{tag}: {end} is not in {range:?}");
                break;
            }
            assert!(attempt < 20, "{tag}: the state ends at {state}, before {latest}");
            repeated(&format!("{tag}: a charge came {} ms late", latest - state));
            limiter.reset(policy.charge("spent", 0)).await.expect("an answer");
        }
        let blocked = block("spent", 60_000).await;
        let blocked = is_blocked_for("spent", 60_000, blocked);
        // Behind the block the state is written anew, and later so that it lives longer.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let penalty = limiter.penalize(policy.charge("spent", 700)).await.expect("an answer");
        assert_eq!(end("spent"), blocked, "{tag}: the end of the block is the later one");
        unblock("spent").await;
        let state = end("spent") * 1_000;
        let peek = limiter.peek(policy.charge("spent", 0)).await.expect("an answer");
        let reset = peek.outcomes().next().expect("one").standing().reset_after;
        // All may be back by now, and the key gone.
        if reset > Duration::ZERO {
            let last = peek.time().as_micros() as i64 + reset.as_micros() as i64;
            assert!(state >= last, "{tag}: {state} is before {last}");
        }
        let most = penalty.into_receipt().time.as_micros() as i64 + 4_300_000;
        assert!(state <= most, "{tag}: {state} is after {most}");
        limiter.reset(policy.charge("spent", 0)).await.expect("an answer");
    }
    server.assert_all_keys_expire();
}

/// A block keeps the end of the state behind it. The first charge after the block moves that end.
#[tokio::test]
async fn a_log_lives_as_long_as_its_first_charge_after_a_block() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let policy = policy("p", "1000/2s");
    // More records than a short log has.
    for _ in 0..50 {
        let _ = limiter.check(policy.charge("alice", 1)).await.expect("a decision");
    }
    // Longer than the second and the eighth of the window for which a log lives on, and shorter than the window.
    let block = Duration::from_millis(1_600);
    limiter.block(policy.charge("alice", 0), block).await.expect("blocked");
    let mut before = Instant::now();
    while !limiter.check(policy.charge("alice", 1)).await.expect("a decision").is_allowed() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        before = Instant::now();
    }
    let lives: i64 = server.ask("PTTL plim:{=alice}:p:l4");
    let peek = limiter.peek(policy.charge("alice", 0)).await.expect("a decision");
    let after = peek.outcomes().next().expect("an outcome").standing().reset_after.as_millis();
    let is_over = before.elapsed() >= Duration::from_secs(2);
    assert!(is_over || lives as i128 >= after as i128, "{lives} of {after} ms");
}

/// The first charge after a block removes its header: the state is the same as if the key had never been
/// blocked.
#[tokio::test]
async fn a_charge_after_a_block_leaves_no_header() {
    let server = Server::start();
    let clock = plimsoll::clock::ManualClock::at(1_700_000_000_000_000);
    let config = RedisConfig::url(server.url()).with_settings(patient().plain_keys(true));
    let store = RedisStore::connect_with(config).await.expect("a store");
    let limiter =
        Limiter::with_resilience(store.with_test_clock(clock.clone()), Resilience::none());
    let mut connection = server.client().get_connection().expect("a connection");
    for quota in ["9/min", "9/min fixed-window", "9/min sliding-counter", "9/min token-bucket(9)"] {
        let policy = policy("p", quota);
        limiter.block(policy.charge("alice", 0), Duration::from_secs(1)).await.expect("blocked");
        let key = server.keys().pop().expect("a blocked key");
        let mut is_blocked = || {
            let state = redis::cmd("GET").arg(&key).query::<Vec<u8>>(&mut connection);
            state.expect("a state").starts_with(b"blocked")
        };
        assert!(is_blocked(), "{quota}");
        clock.advance(Duration::from_secs(2));
        let decision = limiter.check(policy.charge("alice", 1)).await.expect("a decision");
        assert!(decision.is_allowed() && !is_blocked(), "{quota}");
        limiter.reset(policy.charge("alice", 0)).await.expect("an answer");
    }
}
