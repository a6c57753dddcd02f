//! The bytes on the wire, and the keys in the database.

use std::collections::BTreeSet;

use plimsoll::{Charge, Limiter, Policy, RedisStore, redis::RedisConfig};
use plimsoll_testing::{algorithms::each_quota, servers::Server};

use crate::{patient, policy};

#[tokio::test]
async fn a_check_is_one_command() {
    let server = Server::start();
    let limiter = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    );
    let each = each_quota("9/400d", 4, 9);
    let policies: Vec<Policy> =
        (0..8).map(|it| policy(&format!("p{it}"), &each[it % each.len()].0)).collect();
    let charges = |count: usize, key: &'static str| -> Vec<Charge<'_>> {
        policies[..count].iter().map(|policy| policy.charge(key, 1)).collect()
    };
    assert!(limiter.check(charges(8, "warm")).await.expect("an answer").is_allowed());
    let all = policies.iter().map(|policy| policy.charge("denied", 9));
    assert!(limiter.check(all.collect::<Vec<_>>()).await.expect("an answer").is_allowed());
    for (count, is_denied) in [(1, false), (3, false), (8, false), (2, true), (8, true)] {
        server.ask::<()>("CONFIG RESETSTAT");
        for number in 0..10 {
            let key = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"][number];
            let key = if is_denied { "denied" } else { key };
            let decision = limiter.check(charges(count, key)).await.expect("an answer");
            assert_eq!(decision.is_allowed(), !is_denied, "{count} charges");
        }
        let stats: String = server.ask("INFO commandstats");
        assert!(stats.contains("cmdstat_evalsha:calls=10,"), "{stats}");
        for other in ["cmdstat_eval:", "cmdstat_ping", "cmdstat_script"] {
            assert!(!stats.contains(other), "{stats}");
        }
    }
    server.assert_all_keys_expire();
}

/// The files of the script can be read, checked and edited one by one.
#[test]
fn each_file_of_the_script_parses_by_itself() {
    let server = Server::start();
    for entry in std::fs::read_dir("lua").expect("the scripts") {
        let path = entry.expect("a file").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let mut connection = server.client().get_connection().expect("a connection");
        let sha: redis::RedisResult<String> =
            redis::cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection);
        assert!(sha.is_ok(), "{}: {sha:?}", path.display());
    }
}

/// The script uses nothing that Redis 6.2 does not have.
#[test]
fn only_commands_of_redis_6_2() {
    let mut commands = BTreeSet::new();
    let mut functions = BTreeSet::new();
    for entry in std::fs::read_dir("lua").expect("the scripts") {
        let text = std::fs::read_to_string(entry.expect("a file").path()).expect("text");
        for line in text.lines() {
            let code = line.split("--").next().unwrap_or_default();
            let calls = code.split("call('").skip(1);
            for rest in calls.chain(code.split("read('").skip(1)) {
                commands.insert(rest.split('\'').next().expect("a name").to_owned());
            }
            for library in ["redis.", "struct.", "string.", "math.", "table.", "bit.", "cjson."] {
                for rest in code.split(library).skip(1) {
                    let name: String =
                        rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    functions.insert(format!("{library}{name}"));
                }
            }
        }
    }
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    assert_eq!(
        commands,
        ["DEL", "GET", "GETRANGE", "PEXPIRE", "PEXPIREAT", "PTTL", "SET", "SETRANGE", "TIME"],
        "all of them, and SET .. PXAT, are in Redis 6.2"
    );
    let functions: Vec<_> = functions.iter().map(String::as_str).collect();
    assert_eq!(
        functions,
        [
            "math.floor",
            "math.max",
            "math.min",
            "redis.call",
            "redis.error_reply",
            "redis.pcall",
            "string.byte",
            "string.format",
            "string.rep",
            "string.sub",
            "struct.pack",
            "struct.unpack",
            "table.concat"
        ]
    );
}

#[tokio::test]
async fn keys_are_small() {
    let server = Server::start();
    let limiter = Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    );
    for algorithm in ["token-bucket(100)", "sliding-counter", "fixed-window"] {
        server.ask::<()>("FLUSHALL");
        let policy = policy("eightlet", &format!("100/h {algorithm}"));
        let used = || server.info("memory", "used_memory").parse::<f64>().expect("a number");
        // The script, and the tables as large as they get.
        assert!(limiter.check(policy.charge("warm", 1)).await.expect("an answer").is_allowed());
        let before = used();
        for number in 0..20_000_u64 {
            assert!(limiter.check(policy.charge(number, 1)).await.expect("an answer").is_allowed());
        }
        let growth = (used() - before) / 20_000.0;
        let key = server.keys().pop().expect("a key");
        let key = String::from_utf8(key).expect("printable");
        let usage: u64 = server.ask(&format!("MEMORY USAGE {key}"));
        eprintln!("{algorithm}: {usage} bytes by MEMORY USAGE, {growth:.0} by used_memory");
        assert!(usage <= 144, "{algorithm}: {usage}");
        assert!(growth <= 210.0, "{algorithm}: {growth}");
    }
}

#[tokio::test]
async fn a_log_has_at_most_10_001_records() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let clock = plimsoll::clock::ManualClock::at(1_700_000_000_000_000);
    let limiter = Limiter::with_resilience(
        store.with_test_clock(clock.clone()),
        plimsoll::Resilience::none(),
    );
    let policy = policy("log", "60000/min");
    for _ in 0..25_000 {
        // Sixty seconds have 20,000 such times.
        clock.advance(std::time::Duration::from_millis(3));
        assert!(limiter.check(policy.charge("a", 1)).await.expect("an answer").is_allowed());
    }
    let key = String::from_utf8(server.keys().pop().expect("a key")).expect("printable");
    let bytes: u64 = server.ask(&format!("STRLEN {key}"));
    // Records of 10 bytes, and an eighth more to grow into.
    assert!((100_000..=113_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_log_of_forced_charges_has_at_most_20_001_records() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let clock = plimsoll::clock::ManualClock::at(1_700_000_000_000_000);
    let limiter = Limiter::with_resilience(
        store.with_test_clock(clock.clone()),
        plimsoll::Resilience::none(),
    );
    let policy = policy("log", "10/s");
    // Times of 1/10,000 of the window are 100 us long.
    for micros in std::iter::repeat_n(1, 11_000).chain(std::iter::repeat_n(50, 19_000)) {
        clock.advance(std::time::Duration::from_micros(micros));
        limiter.penalize(policy.charge("a", 1)).await.expect("an answer");
    }
    let key = String::from_utf8(server.keys().pop().expect("a key")).expect("printable");
    let bytes: u64 = server.ask(&format!("STRLEN {key}"));
    assert!((190_000..=226_000).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn logs_are_compact() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let clock = plimsoll::clock::ManualClock::at(1_700_000_000_000_000);
    let limiter = Limiter::with_resilience(
        store.with_test_clock(clock.clone()),
        plimsoll::Resilience::none(),
    );
    let size = |name: &str| -> f64 {
        let keys = server.keys();
        let find = |key: &&Vec<u8>| String::from_utf8_lossy(key).contains(&format!(":{name}:"));
        let key = keys.iter().find(find).expect("a key");
        server.ask::<f64>(&format!("MEMORY USAGE {}", String::from_utf8_lossy(key)))
    };
    let mut sum = 0.0;
    for entries in [300_u64, 1_000, 3_000, 10_000] {
        let policy = policy(&format!("log{entries}"), &format!("{entries}/h"));
        for _ in 0..entries {
            clock.advance(std::time::Duration::from_micros(10));
            assert!(limiter.check(policy.charge("a", 1)).await.expect("an answer").is_allowed());
        }
        let each = size(policy.name()) / entries as f64;
        eprintln!("sliding log of {entries}: {each:.2} bytes a request");
        sum += each;
    }
    eprintln!("mean: {:.2}", sum / 4.0);
    assert!(sum / 4.0 <= 12.5);
    let policy = policy("weighted", "10000/h");
    for _ in 0..100 {
        clock.advance(std::time::Duration::from_micros(10));
        assert!(limiter.check(policy.charge("a", 100)).await.expect("an answer").is_allowed());
    }
    let each = size("weighted") / 100.0;
    eprintln!("sliding log of 100 requests of 100 units: {each:.2} bytes a request");
    assert!(each <= 16.0);
}
