//! Checks per second of 64 tasks under three policies, beside one EVALSHA of the script that one
//! would write by hand for three token buckets.

use std::sync::Arc;

use plimsoll::{Charge, Key, Limiter, Policy, RedisStore, Resilience};
use redis::{Cmd, Script, Value};

use crate::{
    server::Server,
    throughput::{Measurements, median, round},
};

const TASKS: usize = 64;
const KEYS: u64 = 1_000;
const ROUNDS: usize = 7;

/// Three token buckets, all or nothing.
const HAND_WRITTEN: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cost = tonumber(ARGV[1])
local tokens, allowed, wait = {}, 1, 0
for i = 1, 3 do
  local rate, burst = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local state = redis.call('HMGET', KEYS[i], 'tokens', 'time')
  local left = tonumber(state[1]) or burst
  left = math.min(burst, left + (now - (tonumber(state[2]) or now)) * rate)
  tokens[i] = left
  if left < cost then
    allowed = 0
    wait = math.max(wait, (cost - left) / rate)
  end
end
if allowed == 1 then
  for i = 1, 3 do
    local rate, burst = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    tokens[i] = tokens[i] - cost
    redis.call('HSET', KEYS[i], 'tokens', tokens[i], 'time', now)
    redis.call('PEXPIRE', KEYS[i], math.ceil(burst / rate / 1000))
  end
end
return { allowed, tostring(tokens[1]), tostring(tokens[2]), tostring(tokens[3]), tostring(wait) }
";

pub(crate) async fn run(seconds: f64) {
    let server = Server::start();
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = server.client();
    let raw = client.get_multiplexed_async_connection_with_config(&options).await;
    let raw = raw.expect("a connection");
    let script = Script::new(HAND_WRITTEN);
    let _: Value = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(HAND_WRITTEN)
        .query_async(&mut raw.clone())
        .await
        .expect("a valid script");
    let store = RedisStore::connect(&server.url()).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let policies = |quota: &str| -> Arc<[Policy; 3]> {
        let policy = |name: &str| Policy::new(name, quota).expect("valid");
        Arc::new([policy("first"), policy("second"), policy("third")])
    };
    // Logs of 100 ms hold as many requests as a key gets in that time.
    let cases = [
        ("three buckets", policies("1000000/s token-bucket(1000000)"), 1.3),
        ("three logs", policies("10000/100ms"), 0.8),
    ];
    let mut hand_written = Measurements::default();
    let mut measured: Vec<Measurements> = cases.iter().map(|_| Measurements::default()).collect();
    for _ in 0..ROUNDS {
        let (raw, sha) = (raw.clone(), Arc::<str>::from(script.get_hash()));
        round(TASKS, seconds, KEYS, &mut hand_written, move |key| {
            let (mut raw, sha) = (raw.clone(), Arc::clone(&sha));
            async move {
                let mut command = Cmd::new();
                command.arg("EVALSHA").arg(&*sha).arg(3);
                for name in ["first", "second", "third"] {
                    command.arg(format!("raw:{{{key:022}}}:{name}:t1"));
                }
                command.arg(1);
                for _ in 0..3 {
                    command.arg(1).arg(1_000_000);
                }
                let _: Value = command.query_async(&mut raw).await.expect("an answer");
            }
        })
        .await;
        for ((_, policies, _), measurements) in cases.iter().zip(&mut measured) {
            let (limiter, policies) = (limiter.clone(), Arc::clone(policies));
            round(TASKS, seconds, KEYS, measurements, move |key| {
                let (limiter, policies) = (limiter.clone(), Arc::clone(&policies));
                async move {
                    let key = Key::from(key);
                    let charges: [Charge<'_>; 3] = policies.each_ref().map(|it| it.charge(key, 1));
                    let decision = limiter.check(charges).await.expect("an answer");
                    assert!(decision.is_allowed());
                }
            })
            .await;
        }
    }
    println!("{TASKS} tasks, {KEYS} keys, three policies; medians of {ROUNDS} interleaved rounds");
    println!("{:<40} {:>9} {:>14} {:>5}", "", "checks/s", "x hand-written", "bar");
    let rate = median(&hand_written.rates);
    println!("{:<40} {rate:>9.0} {:>14.2}", "hand-written EVALSHA, three buckets", 1.0);
    for ((name, _, bar), measurements) in cases.iter().zip(&measured) {
        // Each round is compared with the hand-written one beside it.
        let ratios = measurements.rates.iter().zip(&hand_written.rates);
        let ratios: Vec<_> = ratios.map(|(ours, theirs)| ours / theirs).collect();
        let rate = median(&measurements.rates);
        println!("{name:<40} {rate:>9.0} {:>14.2} {bar:>5}", median(&ratios));
    }
}
