//! The cost of a check on the server, by the statistics of the server.

use std::sync::Arc;

use plimsoll::{
    Charge, Decision, Key, Limiter, Policy, RedisStore, limiter::Reserved, redis::RedisConfig,
};
use redis::{Cmd, Script, Value, aio::MultiplexedConnection};

use crate::server::Server;

/// A script for one algorithm alone: reads the time and the state, decides, writes, answers.
const FIXED_WINDOW: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local count, start = 0, now - now % window
local state = redis.call('GET', KEYS[1])
if state then
  local counted, from = struct.unpack('<I7I7', state)
  if from == start then count = counted end
end
local reset = start + window - now
if count + cost > limit then return {0, limit - count, reset, reset} end
count = count + cost
redis.call('SET', KEYS[1], struct.pack('<I7I7', count, start), 'PX', math.ceil(reset / 1000))
return {1, limit - count, reset, 0}";

pub(crate) const GCRA: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, window, burst, cost =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local interval = window / limit
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
if tat < now then tat = now end
local new = tat + cost * interval
local allow_at = new - burst * interval
if allow_at > now then
  return {0, math.floor((burst * interval - (tat - now)) / interval), tat - now, allow_at - now}
end
redis.call('SET', KEYS[1], string.format('%d', new), 'PX', math.ceil((new - now) / 1000))
return {1, math.floor((burst * interval - (new - now)) / interval), new - now, 0}";

const COUNTER: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local start = now - now % window
local current, previous = 0, 0
local state = redis.call('GET', KEYS[1])
if state then
  local c, p, from = struct.unpack('<I7I7I7', state)
  if from == start then current, previous = c, p
  elseif from == start - window then previous = c end
end
local left = start + window - now
local used = math.ceil(previous * left / window) + current
if used + cost > limit then return {0, limit - used, left, left} end
current = current + cost
redis.call('SET', KEYS[1], struct.pack('<I7I7I7', current, previous, start), 'PX',
  math.ceil((left + window) / 1000))
return {1, limit - used - cost, left, 0}";

/// A sorted set with a member for each unit.
pub(crate) const ZSET: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local count = redis.call('ZCARD', KEYS[1])
if count + cost > limit then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return {0, limit - count, oldest[2] + window - now}
end
for unit = 1, cost do
  redis.call('ZADD', KEYS[1], now, now .. ':' .. count .. ':' .. unit)
end
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return {1, limit - count - cost, 0}";

const ROUNDS: usize = 7;

struct Bench {
    server: Server,
    limiter: Limiter,
    raw: MultiplexedConnection,
}

#[derive(Default)]
struct Sum {
    samples: Vec<f64>,
}

impl Sum {
    fn mean(&self) -> f64 {
        let mut samples = self.samples.clone();
        samples.sort_unstable_by(f64::total_cmp);
        samples[samples.len() / 2]
    }
}

impl Bench {
    async fn scripted(
        &self,
        script: &str,
        prefix: &str,
        keys: u64,
        calls: u64,
        arguments: &[u64],
    ) -> f64 {
        let sha: Arc<str> = Script::new(script).get_hash().into();
        let _: String = self.server.ask(&["SCRIPT", "LOAD", script]);
        self.server.ask::<()>(&["CONFIG", "RESETSTAT"]);
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let (mut raw, sha) = (self.raw.clone(), Arc::clone(&sha));
                let (prefix, arguments) = (prefix.to_owned(), arguments.to_vec());
                tokio::spawn(async move {
                    for call in 0..calls / 16 {
                        let key =
                            format!("{prefix}:{{{:022}}}:eightlet", (call * 16 + task) % keys);
                        let mut command = Cmd::new();
                        command.arg("EVALSHA").arg(&*sha).arg(1).arg(key).arg(&arguments);
                        let _: Value = command.query_async(&mut raw).await.expect("an answer");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let (usec, calls) = self.server.evalsha();
        usec / calls
    }

    async fn ours(&self, policies: &[Policy], keys: u64, calls: u64, cost: u64) -> f64 {
        self.server.ask::<()>(&["CONFIG", "RESETSTAT"]);
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let (limiter, policies) = (self.limiter.clone(), policies.to_vec());
                tokio::spawn(async move {
                    for call in 0..calls / 16 {
                        let key = Key::from((call * 16 + task) % keys);
                        let charges: Vec<Charge<'_>> =
                            policies.iter().map(|policy| policy.charge(key, cost)).collect();
                        let _ = limiter.check(charges).await.expect("an answer");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let (usec, calls) = self.server.evalsha();
        usec / calls
    }
}

fn policy(name: &str, quota: &str) -> Policy {
    Policy::new(name, quota).expect("valid")
}

fn report(what: &str, ours: &Sum, other: &Sum, most: f64) {
    let ratio = ours.mean() / other.mean();
    let verdict = if ratio <= most { "holds" } else { "MISSED" };
    println!(
        "{what:<52} {:>7.2} {:>7.2} {ratio:>6.2} <= {most:<5} {verdict}",
        ours.mean(),
        other.mean()
    );
}

pub(crate) async fn run() {
    let server = Server::start();
    let limiter = Limiter::with_resilience(
        // A call for each check: it is calls that the server's statistics count.
        RedisStore::connect_with(RedisConfig::url(server.url()).batching(false))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    );
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = server.client();
    let raw = client.get_multiplexed_async_connection_with_config(&options);
    let raw = raw.await.expect("a connection");
    let bench = Bench { server, limiter, raw };
    println!("server time per call in microseconds: ours, the other, ratio; medians of {ROUNDS}");

    let quotas = [
        (
            "token bucket",
            "1000000/min token-bucket(1000000)",
            GCRA,
            &[1_000_000, 60_000_000, 1_000_000, 1][..],
        ),
        ("sliding counter", "1000000/min sliding-counter", COUNTER, &[1_000_000, 60_000_000, 1]),
        ("fixed window", "1000000/min fixed-window", FIXED_WINDOW, &[1_000_000, 60_000_000, 1]),
    ];
    for (name, quota, script, arguments) in quotas {
        let policies: Vec<Policy> =
            (0..8).map(|number| policy(&format!("eightle{number}"), quota)).collect();
        let [mut one, mut three, mut eight, mut other] = [(); 4].map(|()| Sum::default());
        for _ in 0..ROUNDS {
            one.samples.push(bench.ours(&policies[..1], 1_000, 8_000, 1).await);
            other.samples.push(bench.scripted(script, name, 1_000, 8_000, arguments).await);
            three.samples.push(bench.ours(&policies[..3], 1_000, 8_000, 1).await);
            eight.samples.push(bench.ours(&policies, 1_000, 8_000, 1).await);
        }
        report(&format!("{name}, one charge / hand-written"), &one, &other, 1.25);
        report(&format!("{name}, three charges / one"), &three, &one, 2.2);
        report(&format!("{name}, eight charges / one"), &eight, &one, 6.0);
    }

    let [mut admit, mut admit_z, mut deny, mut deny_z, mut cost, mut cost_z] =
        [(); 6].map(|()| Sum::default());
    // So short that all is admitted and each admission drops what has left, about one.
    let rolling = policy("rolling", "1000/10ms");
    let full = policy("full-log", "1000/h");
    let weighted = policy("weighted", "10000/s");
    for round in 0..ROUNDS {
        admit.samples.push(bench.ours(std::slice::from_ref(&rolling), 1, 16_000, 1).await);
        admit_z.samples.push(bench.scripted(ZSET, "rolling", 1, 16_000, &[1_000, 10_000, 1]).await);
        if round == 0 {
            bench.ours(std::slice::from_ref(&full), 1, 1_600, 1).await;
            bench.scripted(ZSET, "full", 1, 1_600, &[1_000, 3_600_000_000, 1]).await;
        }
        deny.samples.push(bench.ours(std::slice::from_ref(&full), 1, 8_000, 1).await);
        deny_z
            .samples
            .push(bench.scripted(ZSET, "full", 1, 8_000, &[1_000, 3_600_000_000, 1]).await);
        bench.server.ask::<()>(&["FLUSHALL"]);
        bench.ours(std::slice::from_ref(&full), 1, 1_600, 1).await;
        bench.scripted(ZSET, "full", 1, 1_600, &[1_000, 3_600_000_000, 1]).await;
        cost.samples.push(bench.ours(std::slice::from_ref(&weighted), 64, 1_600, 100).await);
        cost_z
            .samples
            .push(bench.scripted(ZSET, "weighted", 64, 1_600, &[10_000, 1_000_000, 100]).await);
    }
    report("sliding log, admit and prune / ZSET", &admit, &admit_z, 0.9);
    report("sliding log, shallow denial / ZSET", &deny, &deny_z, 0.7);
    report("sliding log, cost 100 of 10,000 / ZSET", &cost, &cost_z, 0.06);
    short(&bench).await;
    high_limits(&bench).await;
    worst(&bench).await;
}

/// Logs above a limit of 10,000 beside one of 10,000.
async fn high_limits(bench: &Bench) {
    let logs = ["10000/min", "60000/min", "1000000/min"]
        .map(|quota| (policy(&quota.replace('/', "-"), quota), Sum::default()));
    let [mut exact, mut high, mut million] = logs;
    for _ in 0..ROUNDS {
        bench.server.ask::<()>(&["FLUSHALL"]);
        for (policy, sum) in [&mut exact, &mut high, &mut million] {
            sum.samples.push(bench.ours(std::slice::from_ref(policy), 1, 8_000, 1).await);
        }
    }
    report("sliding log, 60,000 a minute / 10,000", &high.1, &exact.1, 1.25);
    report("sliding log, 10^6 a minute / 10,000", &million.1, &exact.1, 1.25);
}

/// Logs of up to 8 and of up to 40 requests.
async fn short(bench: &Bench) {
    let log = policy("short", "1000/h");
    for requests in [8, 40] {
        let (keys, calls) = (8_000 / requests, 8_000);
        let [mut ours, mut zset] = [(); 2].map(|()| Sum::default());
        for _ in 0..ROUNDS {
            bench.server.ask::<()>(&["FLUSHALL"]);
            ours.samples.push(bench.ours(std::slice::from_ref(&log), keys, calls, 1).await);
            let arguments = &[1_000, 3_600_000_000, 1];
            zset.samples.push(bench.scripted(ZSET, "short", keys, calls, arguments).await);
        }
        report(&format!("sliding log, up to {requests} requests / ZSET"), &ours, &zset, 1.0);
    }
}

/// An entry of the slow log: number, time, microseconds, command, client, name.
type Entry = (u64, u64, u64, Vec<Vec<u8>>, Value, Value);

/// The slowest single calls on a log of 10,000 entries.
async fn worst(bench: &Bench) {
    bench.server.ask::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    bench.server.ask::<()>(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    let slowest = || {
        let log: Vec<Entry> = bench.server.ask(&["SLOWLOG", "GET", "100000"]);
        bench.server.ask::<()>(&["SLOWLOG", "RESET"]);
        let scripted = log.iter().filter(|entry| entry.3[0] == b"EVALSHA");
        scripted.map(|entry| entry.2).max().unwrap_or(0)
    };
    let mut grow = Vec::new();
    let (mut window, mut refund, mut deep) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..5 {
        let long = policy(&format!("long{round}"), "10000/h");
        slowest();
        let first = bench.limiter.reserve(long.charge("a", 1)).await.expect("an answer");
        for _ in 1..10_000 {
            let decision = bench.limiter.check(long.charge("a", 1)).await.expect("an answer");
            assert!(matches!(decision, Decision::Allowed(_)));
        }
        grow.push(slowest());
        for cost in [2, 5_000, 9_999] {
            let _ = bench.limiter.check(long.charge("a", cost)).await.expect("an answer");
        }
        deep.push(slowest());
        let Reserved::Held(first) = first else { panic!("denied") };
        first.refund().await.expect("an answer");
        refund.push(slowest());
        // A longer window, and another charge.
        long.set_quota("10000/2h".parse().expect("valid"));
        let _ = bench.limiter.check(long.charge("a", 1)).await.expect("an answer");
        window.push(slowest());
    }
    println!("slowest single call at 10,000 entries, microseconds, in each of 5 runs:");
    println!("  charges up to 10,000 entries {grow:?} (at most 1000)");
    println!("  deep denials {deep:?} (at most 1000)");
    println!("  a charge after the window grew {window:?} (at most 1000)");
    println!("  a refund of the oldest of 10,000 {refund:?} (at most 2000)");
}
