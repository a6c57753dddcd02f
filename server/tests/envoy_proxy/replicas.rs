//! Two replicas that share one Redis.

use std::fs;

use plimsoll_testing::servers::Server;

use crate::{
    limits::{LIMITS, filter, written},
    proxy::Proxy,
    service::Service,
};

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_admit_exactly_one_budget() {
    let redis = Server::start();
    let file = written(LIMITS);
    // A busy machine does not reach this deadline, so that Redis decides all checks.
    let store = file.with_file_name("store.toml");
    fs::write(&store, "policies = {}\nresilience = { deadline = '20s', breaker = false }\n")
        .unwrap();
    let more = ["--config", store.to_str().unwrap()];
    let [one, other] = [(); 2].map(|()| Service::start_with(&file, Some(&redis.url()), &more));
    let proxy = Proxy::start(filter(&[one.port, other.port])).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = proxy.client().await;
        clients.push(tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..20 {
                let status = client.get_with("/", &[("x-tenant", "acme")]).await.status;
                assert!(status == 200 || status == 429, "{status}");
                admitted += usize::from(status == 200);
            }
            admitted
        }));
    }
    let mut admitted = 0;
    for client in clients {
        admitted += client.await.unwrap();
    }
    assert_eq!(admitted, 40);
    assert_eq!(proxy.counter("ratelimit.error").await, 0);
    // Both have decided: Envoy asks them in turns.
    assert!(proxy.counter("ratelimit.over_limit").await >= 100);
    redis.assert_all_keys_expire();
}
