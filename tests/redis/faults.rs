//! Faults under load: no check exceeds the limit, and no error outlives its fault.

use std::{
    future::Future,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use plimsoll::{Decision, Limiter, Policy, RedisStore, limiter::Reserved, redis::RedisConfig};
use plimsoll_testing::{
    algorithms::each_quota,
    calm::{eventually, on_a_calm_machine},
    servers::Server,
};

use crate::{admits, patient, policy};

/// Limits that no test outlives, so that no window ends and no unit returns meanwhile.
fn each() -> impl Iterator<Item = String> {
    each_quota("100/400d", 10, 100).into_iter().map(|(quota, _)| quota)
}

/// Tasks that check as fast as they can, and their counts.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    pub(crate) admitted: Arc<AtomicU64>,
    pub(crate) errors: Arc<AtomicU64>,
    pub(crate) decided: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(limiter: &Limiter, policy: &Policy, key: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let [admitted, errors, decided] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        let tasks = (0..32)
            .map(|_| {
                let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
                let (admitted, errors, decided) =
                    (Arc::clone(&admitted), Arc::clone(&errors), Arc::clone(&decided));
                tokio::spawn(async move {
                    while !stop.load(SeqCst) {
                        match limiter.check(policy.charge(key, 1)).await {
                            Ok(Decision::Allowed(_)) => drop(admitted.fetch_add(1, SeqCst)),
                            Ok(Decision::Denied(_)) => {}
                            Err(error) => {
                                assert!(error.is_unavailable(), "{error:?}");
                                errors.fetch_add(1, SeqCst);
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                        }
                        decided.fetch_add(1, SeqCst);
                    }
                })
            })
            .collect();
        Self { stop, admitted, errors, decided, tasks }
    }

    pub(crate) async fn stop(&mut self) {
        self.stop.store(true, SeqCst);
        for task in self.tasks.drain(..) {
            task.await.expect("no panic");
        }
    }

    pub(crate) fn report(&self, title: &str) {
        let [admitted, errors, decided] =
            [&self.admitted, &self.errors, &self.decided].map(|count| count.load(SeqCst));
        eprintln!("{title}: {decided} checks, {admitted} admitted, {errors} errors");
    }
}

async fn limiter(server: &Server) -> Limiter {
    Limiter::with_resilience(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
        plimsoll::Resilience::none(),
    )
}

/// After a fault every check is answered.
pub(crate) async fn assert_healed(limiter: &Limiter) {
    let fresh = policy("fresh", "100/h");
    for _ in 0..100 {
        assert!(admits(limiter, &fresh, "bob").await);
    }
    assert!(!admits(limiter, &fresh, "bob").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_script_heals_within_the_check() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let policy = policy("p", "500/h");
    let mut load = Load::start(&limiter, &policy, "alice");
    for _ in 0..300 {
        server.ask::<()>("SCRIPT FLUSH");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load.stop().await;
    load.report("SCRIPT FLUSH every 5 ms");
    assert_eq!(load.errors.load(SeqCst), 0);
    assert_eq!(load.admitted.load(SeqCst), 500);
    let evals: String = server.ask("INFO commandstats");
    let evals = evals.lines().find(|line| line.starts_with("cmdstat_eval:")).expect("some");
    eprintln!("{evals}");
    assert_healed(&limiter).await;
    server.assert_all_keys_expire();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_are_replaced() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let policy = policy("p", "500/h");
    let mut load = Load::start(&limiter, &policy, "alice");
    for _ in 0..100 {
        server.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    load.stop().await;
    load.report("CLIENT KILL every 10 ms");
    // The load has spent most of the limit, and this the rest.
    let mut admitted = load.admitted.load(SeqCst);
    eventually("connected, and denied", async || {
        loop {
            match limiter.check(policy.charge("alice", 1)).await {
                Ok(Decision::Allowed(_)) => admitted += 1,
                Ok(Decision::Denied(_)) => return true,
                Err(_) => return false,
            }
            assert!(admitted <= 500, "{admitted} admitted");
        }
    })
    .await;
    assert_healed(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load() {
    on_a_calm_machine(restart_under_load).await;
}

async fn restart_under_load() -> Result<(), String> {
    let mut server = Server::start();
    let limiter = limiter(&server).await;
    let policy = policy("p", "500/h");
    let mut load = Load::start(&limiter, &policy, "alice");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.kill();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.run();
    }
    // The longest pause between two attempts to connect, and what a busy machine adds.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let before = load.errors.load(SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = load.errors.load(SeqCst) - before;
    load.stop().await;
    load.report("three restarts, each without the data");
    assert!(load.admitted.load(SeqCst) <= 4 * 500, "a limit for each life of the server");
    if after > 0 {
        return Err(format!("{after} errors after the fault"));
    }
    assert_healed(&limiter).await;
    Ok(())
}

/// A connection that ended while nothing was sent is noticed before the next check.
#[tokio::test]
async fn an_idle_connection_that_ended_costs_no_check() {
    let mut server = Server::start();
    let limiter = limiter(&server).await;
    let policy = policy("p", "500/h");
    for _ in 0..5 {
        assert!(admits(&limiter, &policy, "alice").await);
        server.kill();
        server.run();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Stands between the store and the server, and ends a connection instead of passing on every
/// `nth` answer after the first ones of a handshake.
fn losing_answers(server: &Server, nth: u64) -> String {
    let (target, seen) = (server.port, Arc::new(AtomicU64::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", listener.local_addr().expect("an address"));
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a connection");
            let mut upstream = TcpStream::connect(("127.0.0.1", target)).expect("the server");
            let seen = Arc::clone(&seen);
            let (mut to_server, mut from_client) =
                (upstream.try_clone().expect("a clone"), client.try_clone().expect("a clone"));
            thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
            });
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = upstream.read(&mut bytes) {
                    // An answer of the script is a string of 72 bytes or more.
                    let scripted =
                        bytes[..read].windows(5).filter(|five| five == b"$72\r\n").count();
                    let before = seen.fetch_add(scripted as u64, SeqCst);
                    if scripted > 0 && (before + scripted as u64) / nth > before / nth {
                        let _ = client.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                    if client.write_all(&bytes[..read]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_admit_no_more_than_the_limit() {
    let server = Server::start();
    for quota in each() {
        let url = losing_answers(&server, 7);
        let limiter = Limiter::with_resilience(
            RedisStore::connect_with(RedisConfig::url(&url).with_settings(patient()))
                .await
                .expect("a store"),
            plimsoll::Resilience::none(),
        );
        let policy = policy("p", &quota);
        let mut load = Load::start(&limiter, &policy, "alice");
        // Until the limit is spent, as a denial says.
        let count = |counter: &AtomicU64| counter.load(SeqCst);
        let is_spent = async || {
            // A task counts what it has decided last, so that the difference is denials.
            let decided = count(&load.decided);
            count(&load.errors) > 0 && decided > count(&load.admitted) + count(&load.errors)
        };
        eventually("all is spent, and replies are lost", is_spent).await;
        load.stop().await;
        load.report(&format!("{quota}, every 7th answer lost"));
        let (admitted, errors) = (load.admitted.load(SeqCst), load.errors.load(SeqCst));
        assert!(admitted <= 100, "{quota}");
        assert!(admitted + errors >= 100, "{quota}: what was charged was admitted or reported");
    }
}

/// A refund whose reply is lost is not repeated: it refunds once, or not at all.
#[tokio::test]
async fn a_lost_refund_is_not_repeated() {
    let server = Server::start();
    for quota in each() {
        let direct = limiter(&server).await;
        let policy = policy("p", &quota);
        assert!(direct.check(policy.charge("alice", 50)).await.expect("an answer").is_allowed());
        let config = RedisConfig::url(losing_answers(&server, 2)).with_settings(patient());
        let lossy = RedisStore::connect_with(config).await.expect("a store");
        let lossy = Limiter::with_resilience(lossy, plimsoll::Resilience::none());
        let Ok(Reserved::Held(held)) = lossy.reserve(policy.charge("alice", 10)).await else {
            panic!("the first answer comes");
        };
        let error = held.refund().await.expect_err("the second does not");
        assert!(error.to_string().contains("may have been made"), "{error}");
        let Decision::Allowed(now) =
            direct.peek(policy.charge("alice", 0)).await.expect("an answer")
        else {
            panic!("0 units")
        };
        assert_eq!(now.remaining(), Some(50), "{quota}");
        direct.reset(policy.charge("alice", 0)).await.expect("reset");
    }
}

/// Dropped at every point at which it waits, a check spends once or not at all, and all of them together no
/// more than the limit.
#[tokio::test]
async fn dropped_at_every_await() {
    let server = Server::start();
    let config = patient().connections(1);
    let limiter = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
        .await
        .expect("a store");
    let limiter = Limiter::with_resilience(limiter, plimsoll::Resilience::none());
    for quota in each() {
        let policy = policy("p", &quota);
        let (mut completed, mut denied) = (0, 0);
        for polls in 0..200 {
            if polls % 40 == 0 {
                server.ask::<()>("SCRIPT FLUSH");
            }
            let mut check = pin!(limiter.check(policy.charge("alice", 1)));
            for _ in 0..polls % 20 {
                let poll = check.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_micros(50)).await;
                if let Poll::Ready(decision) = poll {
                    match decision.expect("an answer").is_allowed() {
                        true => completed += 1,
                        false => denied += 1,
                    }
                    break;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let peek = limiter.peek(policy.charge("alice", 0)).await.expect("an answer");
        let Decision::Allowed(peek) = peek else { panic!("0 units") };
        let spent = 100 - peek.remaining().expect("a charge");
        eprintln!(
            "{quota}: 200 checks dropped: {completed} completed, {denied} denied, {spent} spent"
        );
        assert!(completed <= spent, "{quota}");
        assert!(denied > 0 && spent == 100, "{quota}: the limit was reached");
    }
}
