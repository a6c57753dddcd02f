//! The contract of every store, on a real server.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use plimsoll::{Limiter, Resilience, clock::ManualClock};
use plimsoll_postgres::{PostgresConfig, PostgresStore};
use plimsoll_testing::{Fixture, postgres::Postgres, servers::PATIENCE};

plimsoll_testing::store_contract!(on_a_server, crate::fixture);

mod shared_on_a_server {
    plimsoll_contract::shared_suite!(crate::fixture);
}

/// Tests that run at the same time share a server; each has a table of its own.
static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
static TABLES: AtomicU64 = AtomicU64::new(0);

async fn fixture() -> Fixture {
    let server = {
        let mut shared = SERVER.lock().expect("no panic");
        let server = shared.upgrade().unwrap_or_else(|| Arc::new(Postgres::start()));
        *shared = Arc::downgrade(&server);
        server
    };
    let clock = ManualClock::default();
    let config = PostgresConfig::url(&server.url())
        .expect("a URL")
        .table(format!("t{}", TABLES.fetch_add(1, Relaxed)))
        .connections(2)
        .timeout(PATIENCE)
        .test_clock(clock.clone());
    let store = PostgresStore::connect(config).await.expect("a store");
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let set = move |micros| {
        let _keep = &server;
        clock.set(micros);
    };
    Fixture::new(limiter, set).shared()
}
