//! Redis servers with TLS and passwords, as their operators set them up.

use plimsoll_testing::servers::{Certificates, Cluster, Guarded, Server, free_port};

use crate::support::{Service, program};

const PASSWORD: &str = "s3cret-of-redis";

/// Asserts that two services with these variables have one budget, and log no password.
fn assert_share_one_budget(variables: &[(&str, &str)]) {
    let services = [(); 2].map(|()| Service::start_with(&[], variables));
    for key in ["alice", "bob", "carol"] {
        let reply = services[0].check("demo", key, 3);
        assert_eq!((reply.status, reply.json()["source"].clone()), (200, "shared".into()));
        assert_eq!(services[1].check("demo", key, 3).status, 429, "{key}");
    }
    for service in &services {
        assert!(!service.log().contains(PASSWORD), "{}", service.log());
    }
}

fn protect(server: &Server) {
    server.ask::<()>(&format!("CONFIG SET masterauth {PASSWORD} requirepass {PASSWORD}"));
}

/// Returns the error of a service that does not start.
fn error(variables: &[(&str, &str)]) -> String {
    let listeners = ["--http", "127.0.0.1:0", "--grpc", "off", "--admin", "off"];
    let output = program().args(listeners).envs(variables.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_redis_with_tls_and_a_password_decides() {
    let (certificates, port) = (Certificates::make(), free_port());
    let arguments = certificates.arguments(port);
    let server = Server::start_with(&arguments.each_ref().map(String::as_str));
    protect(&server);
    let authority = certificates.authority();
    let url = format!("rediss://:{PASSWORD}@localhost:{port}/");
    let trusted = ("SSL_CERT_FILE", &*authority);
    assert_share_one_budget(&[("PLIMSOLL_REDIS", &*url), trusted]);
    // A server that the machine does not trust, and a wrong password.
    let error_of = |url: &str, authority: &str| {
        error(&[("PLIMSOLL_REDIS", url), ("SSL_CERT_FILE", authority)])
    };
    assert!(error_of(&url, "/dev/null").contains("error: "));
    let wrong = error_of(&url.replace("s3cret", "wrong"), &authority);
    assert!(wrong.contains("error: ") && !wrong.contains("wrong-of-redis"), "{wrong}");
}

#[test]
fn a_cluster_with_a_password_decides() {
    let cluster = Cluster::start();
    cluster.nodes.iter().for_each(protect);
    let nodes = cluster.nodes.iter().map(|it| format!("redis://:{PASSWORD}@127.0.0.1:{}", it.port));
    let nodes = nodes.collect::<Vec<_>>().join(",");
    assert_share_one_budget(&[("PLIMSOLL_REDIS_CLUSTER", &nodes)]);
}

#[test]
fn a_primary_of_sentinels_with_a_password_decides() {
    let guarded = Guarded::steady();
    let name = Guarded::NAME;
    guarded.sentinel.ask::<()>(&format!("SENTINEL SET {name} auth-pass {PASSWORD}"));
    protect(&guarded.primary);
    let (sentinels, primary) = (guarded.urls().join(","), format!("redis://:{PASSWORD}@{name}/0"));
    let variables =
        [("PLIMSOLL_REDIS_SENTINELS", &*sentinels), ("PLIMSOLL_REDIS_PRIMARY", &primary)];
    assert_share_one_budget(&variables);
}
