//! The faults of a database that its clients meet: it crashes, is slow, is shared and is read.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use plimsoll::{
    Limiter, Policy, Resilience,
    error::{Effect, ErrorKind},
    store::Source,
};
use plimsoll_postgres::{PostgresConfig, PostgresStore};
use plimsoll_testing::{
    policy,
    postgres::Postgres,
    role::{Role, end_of_input},
    servers::PATIENCE,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_postgres::{Client, NoTls};

fn config(server: &Postgres) -> PostgresConfig {
    PostgresConfig::url(&server.url()).expect("a URL").timeout(PATIENCE)
}

async fn limiter(config: PostgresConfig) -> Limiter {
    let store = PostgresStore::connect(config).await.expect("a store");
    Limiter::with_resilience(store, Resilience::none())
}

async fn client(server: &Postgres) -> Client {
    let (client, driver) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a server");
    tokio::spawn(driver);
    client
}

async fn count(client: &Client, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    client.query_one(&sql, &[]).await.expect("a table").get(0)
}

async fn remaining(limiter: &Limiter, policy: &Policy) -> u64 {
    let decision = limiter.peek(policy.charge("alice", 0)).await.expect("an answer");
    decision.outcomes().next().expect("an outcome").standing().remaining
}

/// The server is killed without warning, between requests and during them.
#[tokio::test]
async fn budgets_outlast_the_server_and_calls_recover() {
    let mut server = Postgres::start_with(&[]);
    let limiter = limiter(config(&server).timeout(Duration::from_secs(5))).await;
    let day = policy("day", "1000/day fixed-window");
    let mut sure = 0;
    for round in 0..3 {
        let checks = (0..20).map(|_| {
            let (limiter, day) = (limiter.clone(), day.clone());
            tokio::spawn(async move { limiter.check(day.charge("alice", 1)).await.map(|_| ()) })
        });
        let checks: Vec<_> = checks.collect();
        if round == 1 {
            sleep(Duration::from_millis(1)).await;
            server.kill();
        }
        let mut doubtful = 0;
        for check in checks {
            match check.await.expect("no panic") {
                Ok(()) => sure += 1,
                Err(error) if error.effect() == Effect::Unknown => doubtful += 1,
                Err(error) => assert!(error.is_unavailable(), "{error}"),
            }
        }
        server.kill();
        let error = limiter.check(day.charge("alice", 1)).await.expect_err("the server is gone");
        assert!(error.is_unavailable() && error.kind() != ErrorKind::BreakerOpen, "{error}");
        assert!(!error.to_string().contains("alice"), "{error}");
        server.run();
        let left = timeout(PATIENCE, async {
            while limiter.peek(day.charge("alice", 0)).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            remaining(&limiter, &day).await
        });
        let left = left.await.expect("calls recover");
        let spent = 1000 - left;
        assert!((sure..=sure + doubtful).contains(&spent), "{spent} of {sure} and {doubtful}");
        // Charges of which the caller does not know are spent from now on, or never.
        sure = spent;
    }
    assert!(sure >= 40, "{sure}");
}

/// A limiter with the resilience of every remote store has its fallback meanwhile.
#[tokio::test]
async fn the_fallback_decides_while_the_server_is_gone() {
    let mut server = Postgres::start();
    let store = PostgresStore::connect(config(&server)).await.expect("a store");
    let limiter =
        Limiter::with_resilience(store, Resilience::default().deadline(Duration::from_secs(2)));
    let day = policy("day", "10/day");
    let source = async || limiter.check(day.charge("alice", 1)).await.expect("no error").source();
    assert_eq!(source().await, Source::Shared);
    server.kill();
    assert_eq!(source().await, Source::Fallback);
    server.run();
    let recovers = async {
        while source().await != Source::Shared {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, recovers).await.expect("it recovers");
}

/// A store that is created before its database answers when the database does.
#[tokio::test]
async fn a_lazy_store_waits_for_its_server() {
    let mut server = Postgres::start();
    server.kill();
    let config = config(&server);
    assert!(PostgresStore::connect(config.clone()).await.is_err());
    let store = PostgresStore::lazy(config).expect("a valid table");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let day = policy("day", "10/day");
    let error = limiter.check(day.charge("alice", 1)).await.expect_err("no server");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    server.run();
    assert!(limiter.check(day.charge("alice", 1)).await.expect("an answer").is_allowed());
}

const LIMIT: u64 = 500;

/// Checks two keys in both orders, until the limit is reached, and prints how many were admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a role: two_processes_admit_exactly_the_limit"]
async fn role_of_a_process() {
    let url = std::env::var("POSTGRES").expect("it is set");
    let config = PostgresConfig::url(&url).expect("a URL").timeout(PATIENCE);
    let limiter = limiter(config).await;
    println!("\nready");
    end_of_input().await;
    let each = policy("each", &format!("{LIMIT}/day fixed-window"));
    let both = policy("both", &format!("{LIMIT}/day token-bucket({LIMIT})"));
    let tasks = (0..16).map(|task| {
        let (limiter, each, both) = (limiter.clone(), each.clone(), both.clone());
        tokio::spawn(async move {
            let mut admitted = 0_u64;
            loop {
                let (one, other) = (each.charge("a", 1), both.charge("b", 1));
                let charges = if task % 2 == 0 { [one, other] } else { [other, one] };
                match limiter.check(charges).await.expect("an answer").is_allowed() {
                    true => admitted += 1,
                    false => return admitted,
                }
            }
        })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.expect("no panic");
    }
    println!("\nadmitted {admitted}");
}

#[tokio::test]
async fn two_processes_admit_exactly_the_limit() {
    let server = Postgres::start();
    let url = server.url();
    let start = || Role::start("role_of_a_process", &[("POSTGRES", &url)]);
    let mut roles = [start(), start()];
    roles.iter_mut().for_each(|role| drop(role.says("ready")));
    let go = Arc::new(Barrier::new(2));
    let outputs = roles.map(|role| {
        let go = Arc::clone(&go);
        std::thread::spawn(move || {
            go.wait();
            role.end()
        })
    });
    let admitted = outputs.map(|output| {
        let output = output.join().expect("no panic");
        let line = output.lines().find_map(|line| line.strip_prefix("admitted "));
        line.unwrap_or_else(|| panic!("{output}")).parse::<u64>().expect("a number")
    });
    assert_eq!(admitted.iter().sum::<u64>(), LIMIT, "{admitted:?}");
    let limiter = limiter(config(&server)).await;
    let both = policy("both", &format!("{LIMIT}/day token-bucket({LIMIT})"));
    let left = limiter.peek(both.charge("b", 0)).await.expect("an answer");
    let left = left.outcomes().next().expect("an outcome").standing().remaining;
    assert!(left <= 1, "{left}: all or nothing");
}

/// Another client holds the rows for ever: no wait is without an end, and nothing is spent.
#[tokio::test]
async fn a_row_that_is_locked_is_an_error_in_time() {
    let server = Postgres::start();
    let limiter = limiter(config(&server).timeout(Duration::from_millis(300))).await;
    let day = policy("day", "10/day");
    assert!(limiter.check(day.charge("alice", 1)).await.expect("an answer").is_allowed());
    let other = client(&server).await;
    other.batch_execute("BEGIN; LOCK TABLE plimsoll").await.expect("a lock");
    let check = limiter.check(day.charge("alice", 1));
    let error = timeout(PATIENCE, check).await.expect("in time").expect_err("it is locked");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None), "{error}");
    other.batch_execute("ROLLBACK").await.expect("no lock");
    assert_eq!(remaining(&limiter, &day).await, 9);
}

#[tokio::test]
async fn neither_keys_nor_policies_are_in_the_database_and_secrets_part_stores() {
    let server = Postgres::start();
    let first = limiter(config(&server)).await;
    let day = policy("daily-limit", "10/day");
    assert!(first.check(day.charge("alice", 4)).await.expect("an answer").is_allowed());
    let second = limiter(config(&server)).await;
    assert_eq!(remaining(&second, &day).await, 6, "all instances share the units");
    let other = limiter(config(&server).secret([1, 2])).await;
    assert_eq!(remaining(&other, &day).await, 10, "another secret has other names");

    let client = client(&server).await;
    let rows = client.query("SELECT id, state FROM plimsoll", &[]).await.expect("rows");
    assert_eq!(rows.len(), 1);
    for column in 0..2 {
        let bytes: &[u8] = rows[0].get(column);
        for text in ["alice", "daily-limit"] {
            assert!(!bytes.windows(text.len()).any(|it| it == text.as_bytes()), "{text}");
        }
    }
}

/// Rows leave some time after their state has expired, and only those.
#[tokio::test]
async fn rows_of_expired_keys_are_removed_a_few_at_a_time() {
    let server = Postgres::start();
    let limiter = limiter(config(&server).connections(1)).await;
    let (second, day) = (policy("second", "10/s"), policy("day", "10/day"));
    for key in 0..50_u64 {
        assert!(limiter.check(second.charge(key, 1)).await.expect("an answer").is_allowed());
    }
    let client = client(&server).await;
    assert_eq!(count(&client, "plimsoll").await, 50, "they are kept for ten minutes");
    client.execute("UPDATE plimsoll SET keep_until = keep_until - 4", &[]).await.expect("older");
    for _ in 0..40 {
        let _ = limiter.check(day.charge("alice", 1)).await.expect("an answer");
    }
    assert_eq!(count(&client, "plimsoll").await, 1);
    assert_eq!(remaining(&limiter, &day).await, 0);
}

/// Processes that start together create one table, and a role without rights on the schema can use it.
#[tokio::test]
async fn a_table_is_created_once_by_any_of_several_processes() {
    let server = Postgres::start();
    let client = client(&server).await;
    client.batch_execute("CREATE SCHEMA limits; CREATE ROLE weak LOGIN").await.expect("done");
    let stores = (0..8)
        .map(|_| tokio::spawn(PostgresStore::connect(config(&server).table("limits.plimsoll"))));
    for store in stores.collect::<Vec<_>>() {
        store.await.expect("no panic").expect("a store");
    }
    let grant = "GRANT USAGE ON SCHEMA limits TO weak; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON limits.plimsoll TO weak";
    client.batch_execute(grant).await.expect("granted");
    let url = server.url().replace("plimsoll@", "weak@");
    let weak = |table| PostgresConfig::url(&url).expect("a URL").timeout(PATIENCE).table(table);
    let limiter = limiter(weak("limits.plimsoll")).await;
    let day = policy("day", "10/day");
    assert!(limiter.check(day.charge("alice", 1)).await.expect("an answer").is_allowed());
    let error = PostgresStore::connect(weak("limits.other")).await.expect_err("no right");
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
}

/// One key, in many tasks: each has its turn, and no connection waits for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_a_key_and_a_dropped_future_spends_nothing_later() {
    let server = Postgres::start();
    let limiter = limiter(config(&server)).await;
    let day = policy("day", "200/day fixed-window");
    let tasks = (0..300).map(|_| {
        let (limiter, day) = (limiter.clone(), day.clone());
        tokio::spawn(async move {
            limiter.check(day.charge("alice", 1)).await.expect("an answer").is_allowed()
        })
    });
    let mut verdicts = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        verdicts.push(task.await.expect("no panic"));
    }
    assert_eq!(verdicts.iter().filter(|is_allowed| **is_allowed).count(), 200);
    assert_eq!(verdicts.into_iter().collect::<BTreeSet<_>>().len(), 2);
}

/// Forwards a connection to the server. Returns its address, and the number of times that requests have arrived. Those
/// that arrive within 50 ms arrive together.
async fn slow_way_to(port: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, arrivals) = (listener.local_addr().expect("an address"), Arc::default());
    let count = Arc::clone(&arrivals);
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.expect("a client");
        let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
        let mut bytes = vec![0; 1 << 20];
        while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
            AtomicUsize::fetch_add(&count, 1, SeqCst);
            sleep(Duration::from_millis(50)).await;
            to_server.write_all(&bytes[..read]).await.expect("the server");
        }
    });
    (address.port(), arrivals)
}

/// The commit of a batch and the beginning of the next one travel together.
#[tokio::test]
async fn a_batch_among_others_is_one_round_trip() {
    const BATCHES: usize = 8;
    let server = Postgres::start();
    let (port, arrivals) = slow_way_to(server.port).await;
    let url = server.url().replace(&server.port.to_string(), &port.to_string());
    let config = PostgresConfig::url(&url).expect("a URL").timeout(PATIENCE).connections(1);
    let (limiter, day) = (limiter(config).await, policy("day", "5/day"));
    let before = arrivals.load(SeqCst);
    let checks: Vec<_> = (0..32 * BATCHES)
        .map(|key| {
            let (limiter, day) = (limiter.clone(), day.clone());
            tokio::spawn(async move { limiter.check(day.charge(key, 1)).await.map(|_| ()) })
        })
        .collect();
    for check in checks {
        check.await.expect("no panic").expect("a decision");
    }
    let exchanges = arrivals.load(SeqCst) - before;
    assert!((BATCHES..=BATCHES + 3).contains(&exchanges), "{exchanges} for {BATCHES} batches");
    // A check alone is two.
    let before = arrivals.load(SeqCst);
    assert!(limiter.check(day.charge(0, 1)).await.expect("a decision").is_allowed());
    assert_eq!(arrivals.load(SeqCst) - before, 2);
}
