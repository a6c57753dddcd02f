//! Keys with values that the script did not write, or that were damaged: each check gets a decision or
//! an error about that key, and no other key is affected.

use plimsoll::{
    Charge, Decision, Error, Limiter, Policy, Quota, RedisStore, Resilience, error::ErrorKind,
    limiter::Reserved, redis::RedisConfig, store::Source,
};
use plimsoll_testing::{
    algorithms::each_quota,
    hold, policy,
    seed::{Random, histories},
    servers::{PATIENCE, Server},
};

use crate::patient;

/// A quota of each algorithm, and the tag of its keys.
fn each() -> impl Iterator<Item = (String, &'static str)> {
    each_quota("100/min", 4, 50).into_iter()
}

/// Numbers at the ends of what fields of a state can hold.
const EXTREMES: &[u64] = &[0, 1, 7, 0xff, (1 << 31) - 1, (1 << 47) - 1, (1 << 53) - 1, u64::MAX];

async fn limiter(server: &Server, resilience: Resilience) -> Limiter {
    let config = patient().plain_keys(true);
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
        .await
        .expect("a store");
    Limiter::with_resilience(store, resilience)
}

fn set(connection: &mut redis::Connection, key: &str, value: &[u8]) {
    redis::cmd("SET").arg(key).arg(value).arg("PX").arg(60_000).exec(connection).expect("set");
}

/// A decision, or the error that the key holds something else.
fn is_about_the_key(result: &Result<Decision<'_>, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WrongType,
    }
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    FlippedBits,
    CutShort,
    Longer,
    /// A plausible beginning, and then anything.
    OtherEnd,
    AllOther,
    /// One of [`EXTREMES`] in the place of some number.
    Extreme,
}

const DAMAGES: &[Damage] = &[
    Damage::FlippedBits,
    Damage::CutShort,
    Damage::Longer,
    Damage::OtherEnd,
    Damage::AllOther,
    Damage::Extreme,
];

/// Changes a few bytes of a state, or replaces its numbers.
fn damage(random: &mut Random, state: &[u8]) -> Vec<u8> {
    let mut state = state.to_vec();
    match random.one(DAMAGES) {
        Damage::FlippedBits => {
            for _ in 0..=random.below(3) {
                let bit = random.below(state.len() as u64 * 8) as usize;
                state[bit / 8] ^= 1 << (bit % 8);
            }
        }
        Damage::CutShort => state.truncate(random.below(state.len() as u64) as usize),
        Damage::Longer => state.extend((0..random.below(400)).map(|byte| byte as u8)),
        Damage::OtherEnd => {
            let from = random.below(state.len() as u64) as usize;
            state[from..].iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        }
        Damage::AllOther => state.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
        Damage::Extreme => {
            let number = random.one(EXTREMES).to_le_bytes();
            let from = random.below(state.len().min(78) as u64) as usize;
            let length = (1 + random.below(7) as usize).min(state.len() - from);
            state[from..from + length].copy_from_slice(&number[..length]);
        }
    }
    state
}

/// Damaged states of each algorithm, some written under several windows: the script never fails.
#[tokio::test]
async fn a_damaged_state_gets_a_decision_or_is_foreign() {
    for history in histories("hostile_states", 1) {
        decide_on_hostile_states(&mut Random(history.seed)).await;
    }
}

async fn decide_on_hostile_states(random: &mut Random) {
    let server = Server::start();
    let limiter = limiter(&server, Resilience::none()).await;
    let mut connection = server.client().get_connection().expect("a connection");
    let (mut decided, mut foreign) = (0, 0);
    for (quota, tag) in each() {
        let windows = ["100/min", "100/90s", "100/45s"].map(|it| quota.replace("100/min", it));
        let policies = windows.map(|quota| policy("p", &quota));
        let key = format!("plim:{{=alice}}:p:{tag}");
        for entries in [1, 9, 90] {
            server.ask::<()>(&format!("DEL {key}"));
            let held = hold(&limiter, policies[0].charge("alice", 1)).await;
            for entry in 1..entries {
                let policy = &policies[if entry % 30 == 29 { 1 } else { 0 }];
                let charged = limiter.check(policy.charge("alice", 1)).await;
                let _ = charged.expect("a decision");
            }
            held.refund().await.expect("refunded");
            let state: Vec<u8> =
                redis::cmd("GET").arg(&key).query(&mut connection).expect("a state");
            for _ in 0..300 {
                server.ask::<()>(&format!("DEL {key}"));
                let held = hold(&limiter, policies[0].charge("alice", 1)).await;
                let damaged = damage(random, &state);
                if damaged.is_empty() {
                    continue;
                }
                set(&mut connection, &key, &damaged);
                let policy = &policies[random.below(policies.len() as u64) as usize];
                let results = [
                    limiter.peek(policy.charge("alice", 3)).await,
                    limiter.check(policy.charge("alice", 1)).await,
                    limiter.check([policy.charge("bob", 1), policy.charge("alice", 2)]).await,
                ];
                for result in &results {
                    assert!(is_about_the_key(result), "{quota}: {result:?} of {damaged:?}");
                    if result.is_ok() { decided += 1 } else { foreign += 1 }
                }
                match held.refund().await {
                    Ok(units) => assert!(units <= 1),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WrongType, "{damaged:?}"),
                }
                let length: u64 = redis::cmd("STRLEN").arg(&key).query(&mut connection).expect("a");
                assert!(length < 16_000_000, "{length} bytes of {damaged:?}");
            }
        }
    }
    eprintln!("measured: of damaged states {decided} were decided, {foreign} found foreign");
    assert!(decided > 500 && foreign > 500);
}

/// The rest of a batch is decided.
#[tokio::test]
async fn a_damaged_state_harms_no_other_check_of_its_batch() {
    for history in histories("hostile_batches", 1) {
        decide_hostile_batches(&mut Random(history.seed)).await;
    }
}

async fn decide_hostile_batches(random: &mut Random) {
    let server = Server::start();
    let limiter = limiter(&server, Resilience::none()).await;
    let mut connection = server.client().get_connection().expect("a connection");
    for (quota, tag) in each() {
        let policy = policy("p", &quota);
        let key = format!("plim:{{=alice}}:p:{tag}");
        for _ in 0..12 {
            let _ = limiter.check(policy.charge("alice", 1)).await.expect("a decision");
        }
        let state: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut connection).expect("a state");
        for _ in 0..40 {
            let damaged = damage(random, &state);
            set(&mut connection, &key, &[&damaged[..], b"x"].concat());
            server.ask::<()>(&format!("DEL plim:{{=bob}}:p:{tag}"));
            let checks = (0..20).map(|number| {
                limiter.check(policy.charge(if number == 7 { "alice" } else { "bob" }, 1))
            });
            let results = futures_util::future::join_all(checks).await;
            for (number, result) in results.into_iter().enumerate() {
                if number == 7 {
                    assert!(is_about_the_key(&result), "{result:?} of {damaged:?}");
                } else {
                    assert!(result.expect("a decision").is_allowed());
                }
            }
        }
    }
}

/// Values of other types, of other lengths, and damaged states: the breaker stays closed, and other
/// keys are decided by the store.
#[tokio::test]
async fn one_key_does_not_open_the_breaker() {
    let server = Server::start();
    let limiter = limiter(&server, Resilience::default().deadline(PATIENCE)).await;
    for (quota, tag) in each() {
        let policy = policy("p", &quota);
        let key = format!("plim:{{=alice}}:p:{tag}");
        let text = "x".repeat(400);
        for command in [
            format!("SET {key} {text}"),
            format!("SET {key} x"),
            format!("RPUSH {key} x"),
            format!("HSET {key} a b"),
            format!("SADD {key} a"),
            format!("ZADD {key} 1 a"),
            format!("XADD {key} * a b"),
        ] {
            server.ask::<()>(&format!("DEL {key}"));
            server.ask::<redis::Value>(&command);
            for _ in 0..1_000 / 7 {
                let _ = limiter.check(policy.charge("alice", 1)).await;
            }
            let other = limiter.check(policy.charge("bob", 0)).await.expect("a decision");
            assert_eq!(other.source(), Source::Shared, "{quota}, {command}");
        }
    }
}

/// Two windows in turn under one policy name, more often than the `shift` of the times has room for. The
/// state does not grow, the key expires within the longer window, and the checks keep working.
#[tokio::test]
async fn windows_that_alternate_add_nothing() {
    let server = Server::start();
    let limiter = limiter(&server, Resilience::none()).await;
    for (quota, tag) in each() {
        let quota = |window| -> Quota { quota.replace("min", window).parse().expect("valid") };
        let policy = Policy::new("turns", quota("min")).expect("valid");
        let mut longest = 0;
        for turn in 0..700 {
            policy.set_quota(quota(if turn % 2 == 0 { "400d" } else { "min" }));
            let _ = limiter.check(policy.charge("alice", 1)).await.expect("a decision");
            let key = format!("plim:{{=alice}}:turns:{tag}");
            let length: usize = server.ask(&format!("STRLEN {key}"));
            longest = longest.max(length);
            // -2 if the key is gone: the minute of a narrow window may end at any time.
            let millis = server.ask::<i64>(&format!("PTTL {key}"));
            assert_ne!(millis, -1, "the key never expires");
            let days = millis / 86_400_000;
            let most = match tag {
                "l4" | "f3" => 450,
                // A bucket of a quarter of a window ends before the window begins.
                "b4" => 550,
                _ => 850,
            };
            assert!(days <= most, "{quota:?}: {days} days", quota = policy.quota());
        }
        assert!(longest <= 2_500, "{tag}: {longest} bytes");
    }
}

/// Whatever is done to several keys, a foreign value in the last of them stops all of it.
#[tokio::test]
async fn nothing_is_written_before_a_foreign_key() {
    let server = Server::start();
    let limiter = limiter(&server, Resilience::none()).await;
    let mut connection = server.client().get_connection().expect("a connection");
    let broken = policy("broken", "100/min token-bucket(50)");
    for (quota, tag) in each() {
        // No unit comes back during the test.
        let sound = policy("sound", &quota.replace("min", "400d"));
        let left = async || {
            let peek = limiter.peek(sound.charge(tag, 0)).await.expect("a decision");
            peek.outcomes().next().expect("an outcome").standing().remaining
        };
        let charges = || [sound.charge(tag, 5), broken.charge(tag, 1)];
        let Reserved::Held(held) = limiter.reserve(charges()).await.expect("a decision") else {
            panic!("{quota}: denied")
        };
        let before = left().await;
        set(&mut connection, &format!("plim:{{={tag}}}:broken:t2"), b"of another program");
        assert!(limiter.check(charges()).await.is_err(), "{quota}: a check");
        let trials = limiter.check(charges().map(Charge::trial)).await;
        assert!(trials.is_err(), "{quota}: a check of trials");
        assert!(limiter.penalize(charges()).await.is_err(), "{quota}: a penalty");
        assert!(limiter.reset(charges()).await.is_err(), "{quota}: a reset");
        assert!(held.refund().await.is_err(), "{quota}: a refund");
        let after = left().await;
        assert_eq!(after, before, "{quota}");
    }
}
