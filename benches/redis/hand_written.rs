//! Checks per second of 64 tasks, beside an EVALSHA of a script that one would write by hand for one algorithm,
//! over one multiplexed connection.

use std::sync::Arc;

use plimsoll::{Key, Limiter, Policy, RedisStore, Resilience};
use redis::{Cmd, Script, Value};

use crate::{
    server::Server,
    server_time::{GCRA, ZSET},
    throughput::{Measurements, median, round},
};

const TASKS: usize = 64;
const ROUNDS: usize = 7;

/// An algorithm, and the script that it is compared with.
pub(crate) struct Rival {
    pub(crate) name: &'static str,
    pub(crate) quota: &'static str,
    pub(crate) script: &'static str,
    pub(crate) arguments: &'static [u64],
    /// The least ratio of the rates.
    bar: f64,
}

pub(crate) const RIVALS: [Rival; 2] = [
    Rival {
        name: "token bucket",
        quota: "1000000/s token-bucket(1000000)",
        script: GCRA,
        arguments: &[1_000_000, 1_000_000, 1_000_000, 1],
        bar: 1.3,
    },
    // So short that most is admitted, and each admission drops what has left.
    Rival {
        name: "sliding log",
        quota: "1000/10ms",
        script: ZSET,
        arguments: &[1_000, 10_000, 1],
        bar: 1.0,
    },
];

pub(crate) async fn run(seconds: f64) {
    println!(
        "{TASKS} tasks, 1000 checks/s, beside a hand-written script; medians of {ROUNDS} rounds"
    );
    println!("{:<34} {:>9} {:>9} {:>6} {:>7}", "", "ours", "theirs", "ratio", "bar");
    for rival in &RIVALS {
        for keys in [1, 1_000] {
            compare(rival, keys, seconds).await;
        }
    }
}

async fn compare(rival: &Rival, keys: u64, seconds: f64) {
    let server = Server::start();
    let policy = Arc::new(Policy::new("rival", rival.quota).expect("valid"));
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = server.client();
    let raw = client.get_multiplexed_async_connection_with_config(&options);
    let raw = raw.await.expect("a connection");
    let _: String = server.ask(&["SCRIPT", "LOAD", rival.script]);
    let sha: Arc<str> = Script::new(rival.script).get_hash().into();
    let arguments = rival.arguments;
    let ours = move |key: u64| {
        let (limiter, policy) = (limiter.clone(), Arc::clone(&policy));
        async move {
            let decision = limiter.check(policy.charge(Key::from(key), 1)).await;
            drop(decision.expect("an answer"));
        }
    };
    let theirs = move |key: u64| {
        let (mut raw, sha) = (raw.clone(), Arc::clone(&sha));
        async move {
            let mut command = Cmd::new();
            let name = format!("raw:{{{key:022}}}:rival");
            command.arg("EVALSHA").arg(&*sha).arg(1).arg(name).arg(arguments);
            let _: Value = command.query_async(&mut raw).await.expect("an answer");
        }
    };
    let [mut our_rounds, mut their_rounds] = [(); 2].map(|()| Measurements::default());
    for _ in 0..ROUNDS {
        round(TASKS, seconds, keys, &mut our_rounds, ours.clone()).await;
        round(TASKS, seconds, keys, &mut their_rounds, theirs.clone()).await;
    }
    let pairs = our_rounds.rates.iter().zip(&their_rounds.rates);
    let ratios: Vec<_> = pairs.map(|(ours, theirs)| ours / theirs).collect();
    println!(
        "{:<34} {:>9.1} {:>9.1} {:>6.2} {:>7}",
        format!("{}, {keys} keys", rival.name),
        median(&our_rounds.rates) / 1e3,
        median(&their_rounds.rates) / 1e3,
        median(&ratios),
        format!(">= {}", rival.bar),
    );
}
