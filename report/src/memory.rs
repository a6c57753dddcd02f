//! Bytes of a key in Redis: by `MEMORY USAGE` with as many requests as the limit admits, and by
//! `used_memory` of a server with very many keys.

use std::time::Duration;

use plimsoll::{Algorithm, Limiter, Policy, Quota, Resilience, clock::ManualClock};
use plimsoll_testing::{algorithms::with_parameters, servers::Server};
use redis::Cmd;

use crate::{
    load::{charge_each, patient, patient_limiter},
    redis_info::used_memory,
};

const LIMITS: [u64; 8] = [5, 10, 50, 100, 500, 1_000, 5_000, 10_000];
const BUCKETS: u16 = 60;
/// The keys of the second table.
const MANY: u64 = 1_000_000;

/// The name of a key as a program writes it: it is as long as the names of this crate, 39 bytes.
fn key_name(number: u64) -> String {
    format!("ratelimit:api:account-{number:017}")
}

/// The structures that others use.
#[derive(Debug, Clone, Copy)]
enum Other {
    /// A member for each unit, whose score is the time.
    SortedSet,
    /// A number for this period, and one for the period before.
    TwoCounters,
}

impl Other {
    fn name(self) -> &'static str {
        match self {
            Self::SortedSet => "sorted set",
            Self::TwoCounters => "counters in two keys",
        }
    }

    /// Returns the commands that write `units` units of a key.
    fn commands(self, key: &str, units: u64) -> Vec<Cmd> {
        let command = |words: &[String]| {
            let mut command = Cmd::new();
            words.iter().for_each(|word| _ = command.arg(word));
            command
        };
        let word = str::to_owned;
        match self {
            Self::SortedSet => {
                let add = |unit: u64| {
                    let time = 1_700_000_000_000_000 + 1_000 * unit;
                    let member = format!("{time}:{}", unit % 100);
                    command(&[word("ZADD"), word(key), time.to_string(), member])
                };
                let expire = command(&[word("EXPIRE"), word(key), word("3600")]);
                (0..units).map(add).chain([expire]).collect()
            }
            Self::TwoCounters => {
                let count = |period: u64| {
                    let key = format!("{key}:{period}");
                    let count = [word("SET"), key, units.to_string(), word("EX"), word("7200")];
                    command(&count)
                };
                vec![count(472_222), count(472_223)]
            }
        }
    }
}

/// Returns the quota of each algorithm with this limit.
fn quotas(limit: u64) -> Vec<Quota> {
    let quota = Quota::per_hour(limit);
    let algorithms =
        Algorithm::EACH.iter().map(|algorithm| with_parameters(*algorithm, BUCKETS, limit));
    algorithms.map(|algorithm| quota.with_algorithm(algorithm).expect("it fits")).collect()
}

/// Returns the name without its parameter.
fn short_name(quota: &Quota) -> &'static str {
    quota.algorithm().name()
}

/// Returns the bytes of all keys of the server by `MEMORY USAGE`.
fn usage(server: &Server) -> u64 {
    let mut connection = server.client().get_connection().expect("a connection");
    let mut bytes = |key: Vec<u8>| -> u64 {
        let mut command = redis::cmd("MEMORY");
        command.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        command.query(&mut connection).expect("an answer")
    };
    server.keys().into_iter().map(&mut bytes).sum()
}

fn send(server: &Server, commands: &[Cmd]) {
    let mut connection = server.client().get_connection().expect("a connection");
    let mut pipeline = redis::pipe();
    commands.iter().for_each(|command| _ = pipeline.add_command(command.clone()).ignore());
    pipeline.query::<()>(&mut connection).expect("an answer");
}

/// Prints both tables: `usage`, structure, limit, bytes; and `many`, structure, keys, bytes of the server a key.
pub(crate) async fn print() {
    println!("table,structure,limit,bytes");
    let server = Server::start();
    let clock = ManualClock::at(1_700_000_000_000_000);
    let limiter = Limiter::with_resilience(
        patient(&server.url()).await.with_test_clock(clock.clone()),
        Resilience::none(),
    );
    for limit in LIMITS {
        for quota in quotas(limit) {
            server.ask::<()>("FLUSHALL");
            let policy = Policy::new("limits", quota).expect("a valid name");
            // The buckets share the units of most of a window, of which nothing has left yet.
            let step = Duration::from_secs(3_500) / limit as u32;
            for _ in 0..limit {
                let decision = limiter.check(policy.charge("a", 1)).await.expect("an answer");
                assert!(decision.is_allowed());
                clock.advance(step);
            }
            println!("usage,{},{limit},{}", short_name(&quota), usage(&server));
        }
        for other in [Other::SortedSet, Other::TwoCounters] {
            server.ask::<()>("FLUSHALL");
            send(&server, &other.commands(&key_name(0), limit));
            println!("usage,{},{limit},{}", other.name(), usage(&server));
        }
    }
    drop(server);
    for quota in quotas(100) {
        // No period ends while the keys are charged.
        let algorithm = quota.algorithm();
        let quota = Quota::per_day(100).with_algorithm(algorithm).expect("it fits");
        let server = Server::start();
        let limiter = patient_limiter(&server.url()).await;
        let policy = Policy::new("limits", quota).expect("a valid name");
        let before = used_memory(&server);
        charge_each(&limiter, &policy, MANY).await;
        print_many(&server, short_name(&quota), before);
    }
    for other in [Other::SortedSet, Other::TwoCounters] {
        let server = Server::start();
        let before = used_memory(&server);
        let keys: Vec<_> = (0..MANY).collect();
        for keys in keys.chunks(10_000) {
            let commands = keys.iter().flat_map(|key| other.commands(&key_name(*key), 1));
            send(&server, &commands.collect::<Vec<_>>());
        }
        print_many(&server, other.name(), before);
    }
}

fn print_many(server: &Server, name: &str, before: u64) {
    let bytes = used_memory(server) - before;
    let keys: u64 = server.ask("DBSIZE");
    assert!(keys >= MANY, "{name}: {keys} keys");
    println!("many,{name},{MANY},{:.1}", bytes as f64 / MANY as f64);
}
