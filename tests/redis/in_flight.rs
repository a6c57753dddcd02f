//! A concurrency limit over several processes: clients hang up, handlers panic, bodies are dropped, one process
//! is killed and one is stopped for longer than the expiry.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use plimsoll::{Limiter, Quota, RedisConfig, RedisStore, Reserve, Resilience};
use plimsoll_testing::{
    role::{Role, end_of_input},
    seed::Random,
    servers::Server,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{patient, policy};

const UNITS: u64 = 20;
const QUOTA: &str = "20 concurrent expires(2s)";
const EXPIRY: Duration = Duration::from_secs(2);
/// The number of requests of all processes.
const REQUESTS: u64 = 100_000;

/// Adds a number to the field of a process, and returns the sum of all fields: the requests in flight, which
/// Redis counts without the limiter. At the end of a request, returns the number of all requests. Requests whose field is gone do not count any more.
const COUNT: &str = "if ARGV[2] == '1' or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then \
    redis.call('HINCRBY', KEYS[1], ARGV[1], ARGV[2]) end \
    local sum = 0 \
    for _, number in ipairs(redis.call('HVALS', KEYS[1])) do sum = sum + number end \
    if ARGV[2] == '-1' then return redis.call('INCR', 'total') end \
    return sum";

/// The longest time between two counts of a process that runs.
const STOPPED: Duration = Duration::from_millis(1_000);

async fn limiter(url: &str) -> Limiter {
    let config = RedisConfig::url(url).with_settings(patient());
    Limiter::with(RedisStore::connect_with(config).await.expect("a store"), Resilience::none())
}

/// Not a test of its own: what each of the processes does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let Ok(url) = std::env::var("PLIMSOLL_TEST_URL") else { return };
    let number: u64 =
        std::env::var("PLIMSOLL_TEST_NUMBER").expect("set").parse().expect("a number");
    let limiter = limiter(&url).await;
    let client = redis::Client::open(url.as_str()).expect("an address");
    let options = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let counter = client.get_multiplexed_async_connection_with_config(&options).await;
    let counter = counter.expect("a connection");
    // After a stop, the process counts in another field.
    let begin = Instant::now();
    let (last, epoch) =
        (&*Box::leak(Box::new(AtomicU64::new(0))), &*Box::leak(Box::new(AtomicU64::new(0))));
    let field = move || {
        let now = begin.elapsed().as_millis() as u64;
        if now.saturating_sub(last.fetch_max(now, Ordering::SeqCst)) > STOPPED.as_millis() as u64 {
            epoch.fetch_add(1, Ordering::SeqCst);
        }
        format!("{number}:{}", epoch.load(Ordering::SeqCst))
    };
    let (most, is_over) =
        (&*Box::leak(Box::new(AtomicU64::new(0))), &*Box::leak(Box::new(AtomicBool::new(false))));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (limiter, mut counter) = (limiter.clone(), counter.clone());
            let jobs = policy("jobs", QUOTA);
            tokio::spawn(async move {
                let mut random = Random(number * 100 + task);
                while !is_over.load(Ordering::Relaxed) {
                    let reserve = limiter.reserve(jobs.charge("all", 1));
                    // Some clients hang up while the check is on its way.
                    let patience = if random.below(20) == 0 { random.below(3) } else { 60_000 };
                    let patience = Duration::from_millis(patience);
                    let asked = Instant::now();
                    let Ok(reserved) = timeout(patience, reserve).await else { continue };
                    let Reserve::Held(held) = reserved.expect("an answer") else {
                        sleep(Duration::from_millis(1)).await;
                        continue;
                    };
                    let field = field();
                    // The process was stopped before it could count its unit, which may have expired.
                    if asked.elapsed() > STOPPED {
                        continue;
                    }
                    let mut count = async |by: i64| -> u64 {
                        let mut command = redis::cmd("EVAL");
                        command.arg(COUNT).arg(1).arg("count").arg(&field).arg(by);
                        command.query_async(&mut counter).await.expect("a sum")
                    };
                    most.fetch_max(count(1).await, Ordering::Relaxed);
                    match random.below(1_000) {
                        // Longer than the expiry.
                        0 => sleep(Duration::from_millis(2_500)).await,
                        1..100 => sleep(Duration::from_millis(random.below(5))).await,
                        _ => {}
                    }
                    let total = count(-1).await;
                    match random.below(50) {
                        0 => {
                            let panics = tokio::spawn(async move {
                                let _held = held;
                                std::panic::resume_unwind(Box::new("a handler"));
                            });
                            assert!(panics.await.is_err());
                        }
                        1 => drop(held.refund().await.expect("an answer")),
                        _ => drop(held),
                    }
                    if total >= REQUESTS {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    println!("\nruns");
    for task in tasks {
        task.await.expect("no panic");
    }
    limiter.close().await.expect("all units are released");
    println!("\nmost {}", most.load(Ordering::Relaxed));
    end_of_input().await;
}

fn signal(role: &Role, name: &str) {
    let status = Command::new("kill").args([name, &role.pid().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

async fn free(limiter: &Limiter) -> u64 {
    let jobs = policy("jobs", QUOTA);
    let peek = limiter.peek(jobs.charge("all", 0)).await.expect("an answer");
    peek.binding().expect("a charge").standing().remaining()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_hold_no_more_than_the_limit() {
    let server = Server::start();
    let mut roles: Vec<_> = (0..4)
        .map(|number| {
            let number = format!("{number}");
            let environment =
                [("PLIMSOLL_TEST_URL", server.url()), ("PLIMSOLL_TEST_NUMBER", number)];
            let environment: Vec<_> =
                environment.iter().map(|(name, it)| (*name, it.as_str())).collect();
            Role::start("in_flight::worker", &environment)
        })
        .collect();
    roles.iter_mut().for_each(|role| drop(role.says("runs")));
    sleep(Duration::from_millis(500)).await;
    // One is killed: its requests are over, and its units expire.
    signal(&roles[3], "-KILL");
    sleep(Duration::from_millis(100)).await;
    server.ask::<()>("HDEL count 3:0");
    drop(roles.pop());
    // One is stopped. It counts until the units that it has renewed last expire, at 3/8 of the expiry or later.
    sleep(Duration::from_millis(500)).await;
    signal(&roles[2], "-STOP");
    sleep(EXPIRY * 3 / 8).await;
    server.ask::<()>("HDEL count 2:0");
    sleep(2 * EXPIRY).await;
    signal(&roles[2], "-CONT");
    let mut most = 0;
    for role in &mut roles {
        most = most.max(role.says("most ").parse::<u64>().expect("a number"));
    }
    // All units are free again. Those of the process that was killed have expired.
    let limiter = limiter(&server.url()).await;
    let start = Instant::now();
    while free(&limiter).await < UNITS && start.elapsed() < Duration::from_millis(300) {
        sleep(Duration::from_millis(5)).await;
    }
    let (left, total) = (free(&limiter).await, server.ask::<u64>("GET total"));
    eprintln!(
        "{total} requests, at most {most} in flight, {left} of {UNITS} units free at the end"
    );
    assert!(total >= REQUESTS);
    assert!(most <= UNITS, "{most} in flight");
    assert!(most > UNITS / 2, "the limit was made use of: {most}");
    assert_eq!(left, UNITS, "units that nothing holds");
    let expiry: Quota = QUOTA.parse().expect("valid");
    assert_eq!(expiry.window(), EXPIRY);
    roles.into_iter().for_each(|role| drop(role.end()));
}
