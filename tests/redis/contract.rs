//! The contract of every store, tested with the shared one: on a server, over a pool, behind Sentinel
//! and on a cluster.

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicU64, Ordering},
};

use bb8_redis::RedisConnectionManager;
use plimsoll::{Limiter, RedisStore, clock::ManualClock, redis::RedisConfig, store::Store};
use plimsoll_testing::{
    Counted, Fixture,
    servers::{Cluster, Guarded, Server},
};

use crate::patient;

plimsoll_testing::store_contract!(on_a_server, crate::contract::on_one);
plimsoll_testing::store_contract!(over_a_pool, crate::contract::pooled);
plimsoll_testing::store_contract!(behind_sentinel, crate::contract::guarded);
plimsoll_testing::store_contract!(on_a_cluster, crate::contract::on_several);
plimsoll_testing::store_contract!(wrapped_on_a_server, crate::contract::wrapped_on_one);
plimsoll_testing::store_contract!(wrapped_on_a_cluster, crate::contract::wrapped_on_several);

mod shared_on_a_server {
    plimsoll_testing::shared_suite!(crate::contract::on_one);
}
mod shared_on_a_cluster {
    plimsoll_testing::shared_suite!(crate::contract::on_several);
}
mod wrapped_shared_on_a_server {
    plimsoll_testing::shared_suite!(crate::contract::wrapped_on_one);
}
mod wrapped_shared_on_a_cluster {
    plimsoll_testing::shared_suite!(crate::contract::wrapped_on_several);
}

/// Tests that run at the same time share servers; each has a prefix of its own.
struct Shared<T: Servers>(Mutex<Weak<Checked<T>>>);

struct Checked<T: Servers>(T);

trait Servers {
    fn check(&self);
}

impl Servers for Server {
    fn check(&self) {
        self.assert_all_keys_expire();
    }
}

impl Servers for Guarded {
    fn check(&self) {
        self.primary.assert_all_keys_expire();
    }
}

impl Servers for Cluster {
    fn check(&self) {
        self.nodes.iter().for_each(Server::assert_all_keys_expire);
    }
}

impl<T: Servers> Drop for Checked<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.check();
        }
    }
}

impl<T: Servers> Shared<T> {
    const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    fn get(&self, start: impl FnOnce() -> T) -> Arc<Checked<T>> {
        let mut shared = self.0.lock().expect("no panic");
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Checked(start()));
        *shared = Arc::downgrade(&started);
        started
    }
}

static SERVER: Shared<Server> = Shared::new();
static GUARDED: Shared<Guarded> = Shared::new();
static CLUSTER: Shared<Cluster> = Shared::new();

fn config() -> RedisConfig {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
    patient().prefix(prefix)
}

fn fixture<T: Servers + Send + Sync + 'static>(
    store: RedisStore,
    servers: Arc<Checked<T>>,
) -> Fixture {
    fixture_over(store, servers, |store| store)
}

fn fixture_over<T: Servers + Send + Sync + 'static, S: Store>(
    store: RedisStore,
    servers: Arc<Checked<T>>,
    wrap: impl FnOnce(RedisStore) -> S,
) -> Fixture {
    let clock = ManualClock::default();
    let store = wrap(store.with_test_clock(clock.clone()));
    let limiter = Limiter::with_resilience(store, plimsoll::Resilience::none());
    Fixture::new(limiter, move |micros| {
        let _keep = &servers;
        clock.set(micros);
    })
}

async fn on_one() -> Fixture {
    let server = SERVER.get(Server::start);
    let store =
        RedisStore::connect_with(RedisConfig::url(server.0.url()).with_settings(config())).await;
    fixture(store.expect("a store"), server)
}

async fn pooled() -> Fixture {
    let server = SERVER.get(Server::start);
    let manager = RedisConnectionManager::new(server.0.url()).expect("a valid address");
    let pool = bb8::Pool::builder().max_size(2).build(manager).await.expect("a pool");
    let store = RedisStore::connect_with(RedisConfig::pool(pool).with_settings(config())).await;
    fixture(store.expect("a store"), server)
}

async fn guarded() -> Fixture {
    let servers = GUARDED.get(Guarded::steady);
    let sentinels = [servers.0.sentinel.url()];
    let store = RedisStore::connect_with(
        RedisConfig::sentinel(sentinels, Guarded::NAME).with_settings(config()),
    )
    .await;
    fixture(store.expect("a store"), servers)
}

async fn on_several() -> Fixture {
    let cluster = CLUSTER.get(Cluster::start);
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.0.urls()).with_settings(config()))
            .await;
    fixture(store.expect("a store"), cluster)
}

async fn wrapped_on_one() -> Fixture {
    let server = SERVER.get(Server::start);
    let config = RedisConfig::url(server.0.url()).with_settings(config());
    let store = RedisStore::connect_with(config).await;
    fixture_over(store.expect("a store"), server, Counted::new)
}

async fn wrapped_on_several() -> Fixture {
    let cluster = CLUSTER.get(Cluster::start);
    let config = RedisConfig::cluster(cluster.0.urls()).with_settings(config());
    let store = RedisStore::connect_with(config).await;
    fixture_over(store.expect("a store"), cluster, Counted::new)
}
