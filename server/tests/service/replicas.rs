//! Several instances over one Redis.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use plimsoll_testing::servers::{Cluster, Server, directory};
use serde_json::json;

use crate::{
    checks::until,
    support::{Service, send},
};

const SECRETS: [(&str, &str); 2] = [
    ("PLIMSOLL_RECEIPT_SECRET", "the-secret-of-all-instances"),
    ("PLIMSOLL_ADMIN_TOKEN", "the-token-of-the-operator"),
];

struct Replicas {
    _redis: Server,
    services: Vec<Service>,
    folder: std::path::PathBuf,
}

impl Drop for Replicas {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Writes limits to a file, with a deadline that a busy machine does not reach, so that Redis decides all checks.
fn written(folder: &Path, limits: &str) -> String {
    let file = folder.join("limits.toml");
    let limits = format!("{limits}\nresilience = {{ deadline = '20s', breaker = false }}\n");
    std::fs::write(&file, limits).unwrap();
    file.to_str().unwrap().to_owned()
}

fn start(limits: &str, flags: &[&str]) -> Replicas {
    let (redis, folder) = (Server::start(), directory());
    let (file, url) = (written(&folder, limits), redis.url());
    let flags = [&["--config", &*file, "--redis", &*url], flags].concat();
    let services = (0..2).map(|_| Service::start_with(&flags, &SECRETS)).collect();
    Replicas { _redis: redis, services, folder }
}

#[test]
fn two_instances_admit_one_budget() {
    let replicas = start("policies.api = '200/h'", &["--on-failure", "deny"]);
    let admitted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for task in 0..8 {
            let (service, admitted) = (&replicas.services[task % 2], &admitted);
            scope.spawn(move || {
                for _ in 0..60 {
                    match service.check("api", "alice", 1).status {
                        200 => drop(admitted.fetch_add(1, Ordering::Relaxed)),
                        429 => {}
                        other => panic!("status {other}"),
                    }
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::Relaxed), 200);
}

#[test]
fn a_receipt_of_one_instance_is_used_once_at_all() {
    let replicas = start("policies = { api = '100/h', exports = '1 concurrent' }", &[]);
    let [first, second] = &replicas.services[..] else { panic!("two") };
    let body = json!({"charges": [{"policy": "api", "key": "alice", "cost": 10}]}).to_string();
    for _ in 0..10 {
        let receipt =
            json!({"receipt": first.post("/v1/reserve", &body).field("receipt")}).to_string();
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let (service, receipt) = (&replicas.services[task % 2], &receipt);
                    scope.spawn(move || service.post("/v1/refund", receipt).status)
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|it| **it == 200).count(), 1, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|it| **it == 409).count(), 7, "{statuses:?}");
    }
    let left = second.check("api", "alice", 0).json()["charges"][0]["remaining"].clone();
    assert_eq!(left, json!(100));
    // A slot is renewed and released at another instance.
    let body = json!({"charges": [{"policy": "exports", "key": "alice"}]}).to_string();
    let slot = first.post("/v1/slots/acquire", &body).field("slot");
    assert_eq!(second.post("/v1/slots/acquire", &body).status, 429);
    let renewed = second.post("/v1/slots/renew", &json!({"slot": slot}).to_string());
    let slot = json!({"slot": renewed.field("slot")}).to_string();
    assert_eq!(second.post("/v1/slots/acquire", &body).status, 429);
    assert_eq!(first.post("/v1/slots/release", &slot).json(), json!({"units": 1}));
    // The other instance may remember the denial for 50 ms.
    until(|| second.post("/v1/slots/acquire", &body).status == 200);
    replicas._redis.assert_all_keys_expire();
}

#[test]
fn an_override_and_a_reset_act_on_all_instances() {
    let replicas = start("policies.api = '1/h'", &[]);
    let token = format!("Bearer {}", SECRETS[1].1);
    let [first, second] = &replicas.services[..] else { panic!("two") };
    assert_eq!(first.check("api", "alice", 1).status, 200);
    assert_eq!(second.check("api", "alice", 1).status, 429);
    let headers = [("content-type", "application/json"), ("authorization", &*token)];
    let body = json!({"policy": "api", "quota": "3/h", "reason": "a test"}).to_string();
    let reply = send(&first.admin, "PUT", "/api/overrides", &headers, body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    until(|| second.check("api", "alice", 1).status == 200);
    let keys = json!({"keys": [{"policy": "api", "key": "alice"}]}).to_string();
    assert_eq!(second.post("/v1/reset", &keys).json(), json!({"keys": 1}));
    until(|| first.check("api", "alice", 3).status == 200);
}

#[test]
fn a_cluster_counts_for_all_instances() {
    let cluster = Cluster::start();
    let nodes: Vec<_> = cluster.nodes.iter().map(Server::url).collect();
    let nodes = nodes.join(",");
    let variables = [("PLIMSOLL_REDIS_CLUSTER", &*nodes), SECRETS[0]];
    let folder = directory();
    let file = written(&folder, "policies.demo = '5/h'");
    let flags = ["--config", &*file];
    let services = [(); 2].map(|()| Service::start_with(&flags, &variables));
    for key in ["alice", "bob", "carol", "dave"] {
        assert_eq!(services[0].check("demo", key, 3).status, 200, "{key}");
        assert_eq!(services[1].check("demo", key, 3).status, 429, "{key}");
    }
    assert!(services[0].log().contains("--overrides-redis"), "{}", services[0].log());
    let _ = std::fs::remove_dir_all(folder);
}
