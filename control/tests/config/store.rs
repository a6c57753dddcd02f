//! The store of a configuration.

use plimsoll_control::{Config, Format, StoreKind};
use plimsoll_testing::servers::Server;

const RULES: &str = "
policies.api = '5/h'
rules = [{ policy = 'api', key = 'peer_ip' }]
";

#[tokio::test]
async fn a_limiter_counts_in_the_redis_of_the_file() {
    let server = Server::start();
    let url = server.url();
    let text = format!("{RULES}\nstore.redis = {{ url = '{url}', prefix = 'shop' }}");
    let config = Config::from_text(&text, Format::Toml).unwrap();
    assert_eq!((config.store().url(), config.store().prefix()), (Some(&*url), "shop"));
    assert!(!format!("{config:?} {:?}", config.store()).contains(&url));
    let policy = config.registry().get("api").unwrap();
    for expected in [4, 3] {
        // Each limiter is another process.
        let limiter = config.store().connect().await.unwrap();
        let decision = limiter.check(policy.policy().charge("alice", 1)).await.unwrap();
        assert!(decision.is_allowed());
        assert_eq!(decision.outcomes().next().unwrap().standing().remaining, expected);
    }
}

#[tokio::test]
async fn a_limiter_of_a_region_counts_in_two_redis() {
    let (local, home) = (Server::start(), Server::start());
    let text = format!(
        "{RULES}\n[store]\nredis.url = '{}'\nregions = {{ count = 2, share_percent = 80, home.url = '{}' }}",
        local.url(),
        home.url(),
    );
    let config = Config::from_text(&text, Format::Toml).unwrap();
    let limiter = config.store().connect().await.unwrap();
    let policy = config.registry().get("api").unwrap();
    // The share of the region is 2 units, and the pool has 1.
    for allowed in [true, true, true, false] {
        let charge = policy.policy().charge("alice", 1);
        assert_eq!(limiter.check(charge).await.unwrap().is_allowed(), allowed);
    }
}

#[tokio::test]
async fn the_smallest_memory_counts() {
    let text = format!("{RULES}\nstore.memory = {{ max_keys = 1, max_bytes = 0 }}");
    let config = Config::from_text(&text, Format::Toml).unwrap();
    let limiter = config.store().connect().await.unwrap();
    let policy = config.registry().get("api").unwrap();
    for key in ["alice", "bob", "alice"] {
        assert!(limiter.check(policy.policy().charge(key, 1)).await.unwrap().is_allowed());
    }
}

#[tokio::test]
async fn a_program_replaces_the_store_of_a_file_and_keeps_its_settings() {
    let text =
        format!("{RULES}\nstore.redis = {{ url = 'redis://127.0.0.1:1/', prefix = 'shop' }}");
    let config = Config::from_text(&text, Format::Toml).unwrap();
    let urls = ["redis://127.0.0.1:1/".to_owned(), "redis://127.0.0.1:2/".to_owned()];
    let stores = [
        (config.store().with_cluster(&urls), StoreKind::Cluster),
        (config.store().with_sentinels(&urls, "main"), StoreKind::Sentinels),
    ];
    for (store, kind) in stores {
        assert_eq!((store.kind(), store.prefix(), store.url()), (kind, "shop", None));
        assert!(!store.is_lazy());
        store.connect().await.expect_err("no server listens there");
        let lazy = store.with_lazy(true);
        assert!(lazy.is_lazy());
        lazy.connect().await.expect("it connects in the background");
    }
    let memory = Config::from_text(RULES, Format::Toml).unwrap();
    assert_eq!(memory.store().with_lazy(true).kind(), StoreKind::Memory);
}
