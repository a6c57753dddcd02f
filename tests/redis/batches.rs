//! Checks that share a call decide as if each had one of its own.

use std::{collections::BTreeMap, iter, time::Duration};

use futures_util::future::join_all;
use plimsoll::{
    Algorithm, Charge, Decision, Key, Limiter, MemoryStore, Policy, Quota, RedisStore, Resilience,
    clock::ManualClock,
    error::{Effect, ErrorKind},
    memory::MemoryConfig,
    redis::RedisConfig,
    store::{Request, Store},
};
use plimsoll_testing::{
    algorithms::with_parameters,
    calm::eventually,
    seed::{self, Random},
    servers::{Cluster, Server},
};

use crate::{
    differential::{quota, view},
    patient, policy,
    recovery::Frozen,
};

/// One connection, so that what was sent first is decided first.
fn in_order() -> RedisConfig {
    patient().connections(1)
}

fn bare(store: RedisStore) -> Limiter {
    Limiter::with_resilience(store, Resilience::none())
}

/// Returns the calls of the script on these servers.
fn calls(servers: &[Server]) -> u64 {
    let of = |server: &Server| {
        let stats: String = server.ask("INFO commandstats");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.and_then(|line| line.split(',').next()?.parse::<u64>().ok());
        calls.unwrap_or(0)
    };
    servers.iter().map(of).sum()
}

const CASES: &[&str] = &[
    "allowed",
    "denied",
    "some of a group denied, some not",
    "several charges",
    "shadow",
    "trial",
    "more than one call takes",
    "a key several times in a group",
];

/// Compares groups of checks that arrive together with the embedded store, which decides them one by
/// one.
async fn groups(servers: &[Server], shared: RedisStore, histories: u64, test: &str) {
    let clock = ManualClock::default();
    let memory = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
    let shared = bare(shared.with_test_clock(clock.clone()));
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    // Checks that wait for a connection to open are sent in any order: open one to each server.
    let warm = policy("warm", "1/s");
    for key in 0..64_u64 {
        let _ = shared.check(warm.charge(key, 0)).await.expect("an answer");
    }
    let (mut checks, before) = (0, calls(servers));
    for history in seed::histories(test, histories) {
        let seed = history.seed;
        let random = &mut Random(seed);
        let policies: Vec<Policy> = (0..3)
            .map(|number| {
                let algorithm = random.below(Algorithm::EACH.len() as u64) as usize;
                Policy::new(&format!("g{number}"), quota(random, algorithm)).expect("a valid name")
            })
            .collect();
        let mut now = 1_700_000_000_000_000 + random.below(1_000_000_000);
        for _ in 0..8 {
            let window = policies[0].quota().window().as_micros() as u64;
            now += random.one(&[0, 1, window / 7, window / 2, window]);
            clock.set(now);
            let size = random.one(&[2, 3, 10, 40, 90]);
            let group: Vec<Vec<Charge<'_>>> =
                (0..size).map(|_| check(&policies, seed, random)).collect();
            let together = join_all(group.iter().map(|charges| shared.check(charges.clone())));
            let together = together.await;
            let (mut allowed, mut denied) = (false, false);
            for (number, (charges, theirs)) in group.iter().zip(together).enumerate() {
                let ours = memory.check(charges.clone()).await.expect("memory");
                let theirs = theirs.expect("redis");
                assert_eq!(
                    view(&ours),
                    view(&theirs),
                    "seed {seed:#x}, {number} of {size}: {group:?}"
                );
                allowed |= ours.is_allowed();
                denied |= !ours.is_allowed();
                for (case, holds) in [
                    ("allowed", ours.is_allowed()),
                    ("denied", !ours.is_allowed()),
                    ("several charges", ours.outcomes().len() > 1),
                    ("shadow", charges.iter().any(|it| !it.is_live() && !it.is_trial())),
                    ("trial", charges.iter().any(Charge::is_trial)),
                ] {
                    *tally.entry(case).or_default() += u64::from(holds);
                }
            }
            let keys = group.iter().flatten().map(|it| (it.policy().name(), *it.key()));
            let keys: Vec<_> = keys.collect();
            let twice = (1..keys.len()).any(|at| keys[..at].contains(&keys[at]));
            let lines: usize = group.iter().map(Vec::len).sum();
            for (case, holds) in [
                ("some of a group denied, some not", allowed && denied),
                ("more than one call takes", lines > 65),
                ("a key several times in a group", twice),
            ] {
                *tally.entry(case).or_default() += u64::from(holds);
            }
            checks += size;
        }
    }
    let calls = calls(servers) - before;
    eprintln!("{checks} checks in {calls} calls: {tally:?}");
    for case in CASES {
        assert!(tally[case] > 0, "never reached: {case}");
    }
    assert!(calls * 8 < checks, "{checks} checks took {calls} calls");
}

fn check<'p>(policies: &'p [Policy], seed: u64, random: &mut Random) -> Vec<Charge<'p>> {
    let tag = format!("t{seed}");
    (0..random.one(&[1, 1, 1, 2, 3]))
        .map(|_| {
            let policy = &policies[random.below(policies.len() as u64) as usize];
            let key = Key::from(format!("{seed}-{}", random.below(4))).tagged(&tag);
            let capacity = policy.quota().capacity();
            let cost = random.one(&[0, 1, 1, 1, 2, capacity / 3, capacity, capacity + 1]);
            let charge = policy.charge(key, cost);
            match random.below(5) {
                0 => charge.shadow(),
                1 => charge.trial(),
                _ => charge,
            }
        })
        .collect()
}

#[tokio::test]
async fn a_group_decides_as_one_by_one() {
    let servers = [Server::start()];
    let store =
        RedisStore::connect_with(RedisConfig::url(servers[0].url()).with_settings(in_order()))
            .await;
    groups(&servers, store.expect("a store"), 150, "batches_standalone").await;
    servers[0].assert_all_keys_expire();
}

#[tokio::test]
async fn a_group_in_one_slot_of_a_cluster_decides_as_one_by_one() {
    let Cluster { nodes } = Cluster::start();
    let urls: Vec<_> = nodes.iter().map(Server::url).collect();
    let store = RedisStore::connect_with(RedisConfig::cluster(urls).with_settings(in_order()))
        .await
        .expect("a store");
    groups(&nodes, store, 50, "batches_cluster").await;
    nodes.iter().for_each(Server::assert_all_keys_expire);
}

#[tokio::test]
async fn checks_of_other_slots_have_calls_of_their_own() {
    let Cluster { nodes } = Cluster::start();
    let urls: Vec<_> = nodes.iter().map(Server::url).collect();
    let limiter = bare(
        RedisStore::connect_with(RedisConfig::cluster(urls).with_settings(patient()))
            .await
            .expect("a store"),
    );
    let policy = policy("slots", "2/h");
    for round in 0..3 {
        let checks = (0..200_u64).map(|key| limiter.check(policy.charge(key, 1)));
        let admitted = join_all(checks).await;
        let admitted = admitted.iter().filter(|it| it.as_ref().expect("an answer").is_allowed());
        assert_eq!(admitted.count(), if round < 2 { 200 } else { 0 });
    }
}

/// Many tasks check one key: exactly the limit is admitted, in few calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_is_exact_and_takes_few_calls() {
    let servers = [Server::start()];
    let limiter = bare(
        RedisStore::connect_with(RedisConfig::url(servers[0].url()).with_settings(patient()))
            .await
            .expect("a store"),
    );
    let policy = policy("hot", "1000/h");
    let tasks: Vec<_> = (0..256)
        .map(|_| {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..20 {
                    let decision = limiter.check(policy.charge("alice", 1)).await;
                    admitted += u64::from(decision.expect("an answer").is_allowed());
                }
                admitted
            })
        })
        .collect();
    let admitted = join_all(tasks).await.into_iter().map(|task| task.expect("no panic"));
    assert_eq!(admitted.sum::<u64>(), 1_000);
    let calls = calls(&servers);
    assert!(calls * 4 < 256 * 20, "{calls} calls");
}

#[tokio::test]
async fn without_batching_each_check_has_its_call() {
    let servers = [Server::start()];
    let config = patient().batching(false);
    let store = RedisStore::connect_with(RedisConfig::url(servers[0].url()).with_settings(config))
        .await
        .expect("a store");
    let (limiter, policy) = (bare(store), policy("each", "1000/h"));
    let _ = limiter.check(policy.charge("warm", 1)).await.expect("an answer");
    let before = calls(&servers);
    let checks = join_all((0..50_u64).map(|key| limiter.check(policy.charge(key, 1)))).await;
    assert!(checks.iter().all(|it| it.as_ref().expect("an answer").is_allowed()));
    assert_eq!(calls(&servers) - before, 50);
}

/// Keys that hold something else fail their own check, and no other.
#[tokio::test]
async fn a_check_that_cannot_be_decided_harms_no_other() {
    for algorithm in Algorithm::EACH {
        let algorithm = with_parameters(*algorithm, 4, 3);
        let quota = Quota::per_hour(3).with_algorithm(algorithm).expect("a quota");
        let server = Server::start();
        let config = in_order().plain_keys(true);
        let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
            .await
            .expect("a store");
        let (limiter, policy) = (bare(store), Policy::new("mixed", quota).expect("a policy"));
        let other = crate::policy("other", "3/h");
        for key in ["list", "text"] {
            assert!(limiter.check(policy.charge(key, 1)).await.expect("an answer").is_allowed());
        }
        for key in server.keys() {
            let key = String::from_utf8(key).expect("plain");
            server.ask::<()>(&format!("DEL {key}"));
            let fill = if key.contains("list") { "LPUSH" } else { "SET" };
            server.ask::<()>(&format!("{fill} {key} something"));
        }
        let sound = (false, vec![policy.charge("alice", 1)]);
        let broken = [
            vec![policy.charge("list", 1)],
            vec![policy.charge("text", 1)],
            // All or nothing: the other charge is not spent either.
            vec![other.charge("alice", 1), policy.charge("list", 1)],
        ];
        let group = iter::once(sound).chain(broken.map(|charges| (true, charges)));
        let group: Vec<(bool, Vec<Charge<'_>>)> = group.cycle().take(40).collect();
        let answers = join_all(
            group
                .into_iter()
                .map(async |(is_broken, charges)| (is_broken, limiter.check(charges).await)),
        );
        let mut admitted = 0;
        for (is_broken, answer) in answers.await {
            if is_broken {
                let error = answer.expect_err("the key holds something else");
                assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
            } else {
                admitted += u64::from(answer.expect("an answer").is_allowed());
            }
        }
        assert_eq!(admitted, quota.limit(), "{algorithm}");
        let Ok(Decision::Allowed(left)) = limiter.peek(other.charge("alice", 0)).await else {
            panic!("nothing was spent");
        };
        assert_eq!(left.remaining(), Some(3));
    }
}

/// Checks that are dropped in the queue are not charged; the others of their batch are decided.
///
/// Tokio's clock stands still, so that no check leaves the queue before, however slow the process is.
#[tokio::test]
async fn a_check_that_is_dropped_in_the_queue_is_not_charged() {
    let server = Server::start();
    let limiter = bare(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
            .await
            .expect("a store"),
    );
    let policy = policy("patient", "100/h");
    let _ = limiter.check(policy.charge("warm", 1)).await.expect("an answer");
    let frozen = Frozen::freeze(&[&server]);
    tokio::time::pause();
    let spawn = || {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tokio::spawn(async move {
            let decision = limiter.check(policy.charge("alice", 1)).await;
            decision.expect("an answer").is_allowed()
        })
    };
    // One on its way, ten that wait for it.
    let mut tasks: Vec<_> = (0..11).map(|_| spawn()).collect();
    tokio::task::yield_now().await;
    for task in tasks.drain(1..6) {
        task.abort();
        assert!(task.await.expect_err("it is dropped").is_cancelled());
    }
    tokio::time::resume();
    drop(frozen);
    for task in tasks {
        assert!(task.await.expect("no panic"));
    }
    let Ok(Decision::Allowed(left)) = limiter.peek(policy.charge("alice", 0)).await else {
        panic!("there are units left");
    };
    assert_eq!(left.remaining(), Some(94));
}

/// A check that is dropped after its batch was decided, and before it has seen its outcome, removes no check
/// that is queued later.
#[tokio::test]
async fn a_check_that_is_dropped_after_its_batch_harms_no_other() {
    let server = Server::start();
    let config = RedisConfig::url(server.url()).with_settings(in_order());
    let limiter = bare(RedisStore::connect_with(config).await.expect("a store"));
    let policy = policy("late", "100/h");
    let check = || Box::pin(limiter.check(policy.charge("alice", 1)));
    let _ = check().await.expect("an answer");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let idle = tasks();
    let (mut alone, mut queued) = (check(), check());
    assert!(futures_util::poll!(&mut alone).is_pending());
    assert!(futures_util::poll!(&mut queued).is_pending());
    let _ = alone.await.expect("an answer");
    assert!(tasks() > idle, "the end of the first call begins a batch");
    eventually("the batch is decided", async || tasks() <= idle).await;
    let (mut later, mut behind) = (check(), check());
    assert!(futures_util::poll!(&mut later).is_pending());
    assert!(futures_util::poll!(&mut behind).is_pending());
    drop(queued);
    for check in [later, behind] {
        assert!(check.await.expect("an answer").is_allowed());
    }
}

/// A check that times out in the queue of a batch is not charged, and its error says so. One that
/// was sent may have been charged.
///
/// Tokio's clock goes from one timer to the next, so that the check times out before its batch is sent,
/// however slow the process is.
#[tokio::test]
async fn a_check_that_times_out_in_the_queue_is_not_charged() {
    let server = Server::start();
    let config = RedisConfig::url(server.url()).with_settings(patient());
    let store = RedisStore::connect_with(config).await.expect("a store");
    let (limiter, policy) = (bare(store.clone()), policy("late", "100/h"));
    let _ = limiter.check(policy.charge("warm", 1)).await.expect("an answer");
    let frozen = Frozen::freeze(&[&server]);
    tokio::time::pause();
    let charges = [policy.charge("alice", 1)];
    let start = tokio::time::Instant::now();
    let check = |millis| {
        let deadline = start + Duration::from_millis(millis);
        store.call(Request::Acquire(&charges), Some(deadline.into_std()))
    };
    let (sent, queued) = tokio::join!(check(50), check(3));
    tokio::time::resume();
    drop(frozen);
    assert_eq!(sent.expect_err("no reply in time").effect(), Effect::Unknown);
    assert_eq!(queued.expect_err("no reply in time").effect(), Effect::None);
    let Ok(Decision::Allowed(left)) = limiter.peek(policy.charge("alice", 0)).await else {
        panic!("there are units left");
    };
    assert_eq!(left.remaining(), Some(99), "only the check that was sent is charged");
}

/// A call whose checks were all dropped delays no other check and leaves no task behind.
#[tokio::test]
async fn a_call_that_hangs_delays_no_other_check() {
    let server = Server::start();
    // A call that is left would end long after the test.
    let config = RedisConfig::default().response_timeout(Duration::from_secs(600));
    let limiter = bare(
        RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(config))
            .await
            .expect("a store"),
    );
    let policy = policy("stuck", "100/h");
    let _ = limiter.check(policy.charge("warm", 1)).await.expect("an answer");
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // One task for each connection tests whether a silent connection has died.
    let most = alive() + 2;
    let frozen = Frozen::freeze(&[&server]);
    let hasty = |_| {
        let check = limiter.check(policy.charge("alice", 1));
        tokio::time::timeout(Duration::from_millis(50), check)
    };
    let hasty = join_all((0..30).map(hasty)).await;
    assert!(hasty.iter().all(Result::is_err), "the server does not answer");
    eventually("no task is left", async || alive() <= most).await;
    drop(frozen);
    let decision = limiter.check(policy.charge("bob", 1)).await.expect("an answer");
    assert!(decision.is_allowed());
}

/// A check behind one that hangs is sent after a few milliseconds, also if no other check arrives.
#[tokio::test]
async fn a_check_behind_one_that_hangs_is_sent() {
    let server = Server::start();
    let config = RedisConfig::url(server.url()).with_settings(patient());
    let limiter = bare(RedisStore::connect_with(config).await.expect("a store"));
    let policy = policy("stuck", "100/h");
    let _ = limiter.check(policy.charge("warm", 1)).await.expect("an answer");
    // The best of some, because the machine may be late. Without this rule, each would wait for 30 s.
    let mut best = Duration::MAX;
    for _ in 0..10 {
        // Asked, and then not looked at: it is on its way for as long as this is.
        let mut hangs = Box::pin(limiter.check(policy.charge("alice", 1)));
        assert!(futures_util::poll!(&mut hangs).is_pending());
        let start = tokio::time::Instant::now();
        let next = limiter.check(policy.charge("bob", 1));
        let next = tokio::time::timeout(Duration::from_secs(5), next).await;
        best = best.min(start.elapsed());
        assert!(next.expect("it goes without the other").expect("an answer").is_allowed());
        assert!(hangs.await.expect("an answer").is_allowed());
        if best < Duration::from_millis(500) {
            break;
        }
    }
    assert!(best < Duration::from_millis(500), "{best:?}");
}

/// A denial writes nothing, so a server that cannot write fails only the checks that pass.
#[tokio::test]
async fn a_full_server_still_denies() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(in_order()))
        .await
        .expect("a store");
    let (limiter, policy) = (bare(store), policy("full", "1/h"));
    assert!(limiter.check(policy.charge("spent", 1)).await.expect("an answer").is_allowed());
    server.ask::<()>("CONFIG SET maxmemory 1");
    let keys = (0..20_u64).map(|number| if number % 2 == 0 { "spent" } else { "fresh" });
    let checks = keys.map(|key| limiter.check(policy.charge(key, 1)));
    for (number, answer) in join_all(checks).await.into_iter().enumerate() {
        if number % 2 == 0 {
            assert!(!answer.expect("a denial").is_allowed());
        } else {
            assert_eq!(answer.expect_err("no room").kind(), ErrorKind::OutOfMemory);
        }
    }
}

/// Checks that do not fit into the batch that waited for a connection do not wait for a call that
/// hangs.
#[tokio::test]
async fn checks_that_a_late_batch_leaves_are_sent() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(in_order()))
        .await
        .expect("a store");
    let (limiter, policy) = (bare(store), policy("left", "1000/h"));
    let _ = limiter.check(policy.charge("warm", 1)).await.expect("an answer");
    // Sent, and then not polled: it is in flight for as long as it is kept.
    let mut hangs = Box::pin(limiter.check(policy.charge("alice", 1)));
    assert!(futures_util::poll!(&mut hangs).is_pending());
    // The next connection takes some time.
    let pid = server.info("server", "process_id");
    server.ask::<()>("CLIENT KILL TYPE normal SKIPME yes");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let signal = |signal: &str| {
        let status = std::process::Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("kill runs").success());
    };
    signal("-STOP");
    let checks = join_all((0..100_u64).map(|key| limiter.check(policy.charge(key, 1))));
    // A check that waited for the call that hangs would wait for its response timeout of 30 s.
    let decisions = tokio::time::timeout(Duration::from_secs(15), async {
        let resume = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            signal("-CONT");
        };
        tokio::join!(checks, resume).0
    });
    let decisions = decisions.await.expect("none is left behind");
    assert!(decisions.into_iter().all(|decision| decision.expect("an answer").is_allowed()));
    drop(hangs);
}
