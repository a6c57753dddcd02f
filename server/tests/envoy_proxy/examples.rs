//! An example with all features of the filter and of the configuration: nested descriptors, replaced limits,
//! shadow mode, quota mode, looks and reports, and metadata that chooses the upstream.
//!
//! With `PLIMSOLL_ENVOY_RATELIMIT=folder`, the folder of a copy of envoyproxy/ratelimit, the same steps run with
//! its own example: `examples/ratelimit/config` and `examples/envoy/proxy.yaml`, unchanged. They have fixed names
//! and ports, so the test runs in namespaces of its own (`unshare`, as root).

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use axum::{Router, routing::get};
use plimsoll_testing::servers::{directory, free_port};
use tokio::net::TcpListener;

use crate::{proxy::Proxy, service::Service};

/// Requests of one kind, and what becomes of each.
struct Step {
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    expected: &'static [Expected],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Admitted,
    /// Admitted, with nothing left.
    Last,
    /// Admitted, by the upstream of this number.
    By(u8),
    Denied,
}

use Expected::{Admitted as A, By, Denied as D, Last as L};

macro_rules! steps {
    ($($path:literal [$($name:literal: $value:literal),*] => $($expected:expr),+;)+) => {
        &[$(Step { path: $path, headers: &[$(($name, $value)),*], expected: &[$($expected),+] }),+]
    };
}

/// Groups of steps. The service is started anew for each.
const OURS: &[&[Step]] = &[
    steps! {
        "/cluster" [] => A, D;
        "/tenant" ["x-tenant": "acme"] => A, L, D;
        "/pair" ["x-tenant": "t1", "x-plan": "known"] => A, A, L, D;
        "/pair" ["x-tenant": "t1", "x-plan": "dark"] => A, A, L, L, L;
        "/pair" ["x-tenant": "t1", "x-op": "banned"] => D, D;
        "/pair" ["x-tenant": "t1", "x-op": "other"] => A, A, L, D;
        "/pair" ["x-tenant": "t1", "x-plan": "open"] => A, A, A;
        // The ban is replaced by the limit of the second descriptor.
        "/four" ["x-tenant": "t2", "x-op": "banned", "x-from": "gate", "x-to": "pardon"] => A, A, D;
        "/four" ["x-tenant": "t2", "x-op": "special", "x-from": "gate", "x-to": "special"] => A, A, D;
        // The replaced limit was not counted.
        "/four" ["x-tenant": "t2", "x-op": "special", "x-from": "gate", "x-to": "unknown"] => A, D;
        "/four" ["x-tenant": "t2", "x-op": "special", "x-from": "gate", "x-to": "special"] => D;
        "/five" ["x-tenant": "t3", "x-op": "special", "x-from": "gate", "x-to": "fake", "x-class": "staff"] => A, A, A, A, D;
        "/pair" ["x-tenant": "t4", "x-op": "special"] => A, D;
        "/free" [] => A, A, A;
        "/detailed" ["x-detailed": "v"] => A, A, D;
    },
    steps! { "/quota" [] => A, A, D; },
    steps! { "/used" [] => A, A, D; },
    steps! { "/pools" [] => By(1), By(2), By(2), D, D; },
];

/// The same for the example of envoyproxy/ratelimit. In it, a look at a used budget admits one request more.
const THEIRS: &[&[Step]] = &[
    steps! {
        "/test" [] => A, D;
        "/header" ["foo": "foo"] => A, L, D;
        "/twoheader" ["foo": "pelle", "baz": "not-so-shady"] => A, A, L, D;
        "/twoheader" ["foo": "pelle", "baz": "shady"] => A, A, L, L, L;
        "/twoheader" ["foo": "foo", "bar": "banned"] => D, D;
        "/twoheader" ["foo": "foo", "bar": "other"] => A, A, L, D;
        "/twoheader" ["foo": "foo", "bay": "x"] => A, A, A;
        "/fourheader" ["foo": "one", "bar": "banned", "source_cluster": "proxy", "destination_cluster": "override"] => A, A, D;
        "/fourheader" ["foo": "one", "bar": "bkthomps", "source_cluster": "proxy", "destination_cluster": "bkthomps"] => A, A, D;
        "/fourheader" ["foo": "one", "bar": "bkthomps", "source_cluster": "proxy", "destination_cluster": "unknown"] => A, D;
        "/fourheader" ["foo": "one", "bar": "bkthomps", "source_cluster": "proxy", "destination_cluster": "bkthomps"] => D;
        "/fiveheader" ["foo": "two", "bar": "bkthomps", "source_cluster": "proxy", "destination_cluster": "fake", "category": "account"] => A, A, A, A, D;
        "/twoheader" ["foo": "three", "bar": "bkthomps"] => A, D;
        "/unspec" ["unspec": "v"] => A, A, D;
    },
    steps! { "/quota" [] => A, A, D; },
    steps! { "/tokenquota" [] => A, A, D; },
    steps! { "/multiservice-tokenquota" [] => By(1), By(2), By(2), D, D; },
];

/// The time in which Envoy reports what a request has used.
const REPORT: Duration = Duration::from_millis(200);

async fn upstream(number: u8, port: u16) -> SocketAddr {
    let app = Router::new().fallback(get(move || async move { format!("service {number}") }));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn run(groups: &[&[Step]], config: &Path, port: u16, start: impl Fn() -> Proxy) {
    for group in groups {
        let _service = Service::start_at(port, config, None, &[]);
        let proxy = start();
        for Step { path, headers, expected } in *group {
            for (number, expected) in expected.iter().enumerate() {
                let reply = proxy.get(path, headers).await;
                let text = String::from_utf8_lossy(&reply.body);
                let found = (reply.status, &*text);
                let at = format!(
                    "request {number} of {path} {headers:?}: {found:?} {:?}",
                    reply.headers
                );
                match expected {
                    A => assert_eq!(reply.status, 200, "{at}"),
                    D => assert_eq!(reply.status, 429, "{at}"),
                    By(service) => assert_eq!(found, (200, &*format!("service {service}")), "{at}"),
                    L => {
                        assert_eq!(reply.status, 200, "{at}");
                        assert_eq!(reply.headers["x-ratelimit-remaining"], "0", "{at}");
                    }
                }
                if group.len() == 1 {
                    tokio::time::sleep(REPORT).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_example_with_all_features() {
    let config = directory().join("limits.yaml");
    fs::write(&config, include_str!("configs/example_limits.yaml")).unwrap();
    let [one, other] = [upstream(1, 0).await, upstream(2, 0).await];
    let limiter = free_port();
    run(OURS, &config, limiter, || {
        let (port, admin) = (free_port(), free_port());
        let envoy = include_str!("configs/example_proxy.yaml")
            .replace("@PORT@", &port.to_string())
            .replace("@ADMIN@", &admin.to_string())
            .replace("@LIMITER@", &limiter.to_string())
            .replace("@ONE@", &one.port().to_string())
            .replace("@OTHER@", &other.port().to_string());
        Proxy::start_with(&envoy, port, admin)
    })
    .await;
}

const INSIDE: &str = "PLIMSOLL_TEST_IN_NAMESPACE";

#[test]
fn the_example_of_envoyproxy_ratelimit_runs_unchanged() {
    let Ok(folder) = env::var("PLIMSOLL_ENVOY_RATELIMIT") else { return };
    if env::var(INSIDE).is_ok() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(originals(PathBuf::from(folder)));
    }
    crate::proxy::programs();
    let hosts = directory().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost ratelimit envoy-mock\n").unwrap();
    let script = "mount --bind \"$1\" /etc/hosts && ip link set lo up && shift && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "--net", "sh", "-c", script, "sh"])
        .args([hosts, env::current_exe().unwrap()])
        .args([
            "--exact",
            "examples::the_example_of_envoyproxy_ratelimit_runs_unchanged",
            "--nocapture",
        ])
        .env(INSIDE, "yes")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
}

async fn originals(folder: PathBuf) {
    upstream(1, 9_999).await;
    upstream(2, 10_001).await;
    let envoy = fs::read_to_string(folder.join("examples/envoy/proxy.yaml")).unwrap();
    let config = folder.join("examples/ratelimit/config");
    run(THEIRS, &config, 8_081, || Proxy::start_with(&envoy, 8_888, 8_001)).await;
}
