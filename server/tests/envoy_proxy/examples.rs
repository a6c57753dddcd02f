//! An example with all features of the filter and of the configuration: nested descriptors, replaced limits,
//! shadow mode, quota mode, looks and reports, and metadata that chooses the upstream.
//!
//! With `PLIMSOLL_ENVOY_RATELIMIT=folder`, the folder of a copy of envoyproxy/ratelimit, the same steps also run
//! with its own example: `examples/ratelimit/config` and `examples/envoy/proxy.yaml`, unchanged. They have fixed
//! names and ports, so this part runs in namespaces of its own (`unshare`, as root).

use std::{
    env, fs,
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
    // A look passes while no more requests than the limit count.
    steps! { "/used" [] => A, A, A, D; },
    steps! { "/pools" [] => By(1), By(1), By(2), By(2), By(2), D; },
];

/// The same for the example of envoyproxy/ratelimit.
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
    steps! { "/tokenquota" [] => A, A, A, D; },
    steps! { "/multiservice-tokenquota" [] => By(1), By(1), By(2), By(2), By(2), D; },
];

/// The time in which Envoy reports what a request has used.
pub(crate) const REPORT: Duration = Duration::from_millis(600);

pub(crate) async fn upstream(number: u8, port: u16) {
    let app = Router::new().fallback(get(move || async move { format!("service {number}") }));
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
    tokio::spawn(async move { axum::serve(listener, app).await });
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

const INSIDE: &str = "PLIMSOLL_TEST_IN_NAMESPACE";

/// Returns the configuration of Envoy in our example, with the ports of the proxy, of its admin listener, of the
/// limiter and of both upstreams.
pub(crate) fn envoy_config(ports: [u16; 5]) -> String {
    let names = ["@PORT@", "@ADMIN@", "@LIMITER@", "@ONE@", "@OTHER@"];
    let config = include_str!("configs/example_proxy.yaml").to_owned();
    names.iter().zip(ports).fold(config, |text, (name, port)| text.replace(name, &port.to_string()))
}

/// An example in the folders of envoyproxy/ratelimit, with the ports in its files.
struct Example {
    folder: PathBuf,
    groups: &'static [&'static [Step]],
    proxy: u16,
    admin: u16,
    limiter: u16,
    upstreams: [u16; 2],
}

impl Example {
    /// Writes our example, with free ports.
    fn ours() -> Self {
        let [proxy, admin, limiter, one, other] = [(); 5].map(|()| free_port());
        let envoy = envoy_config([proxy, admin, limiter, one, other]);
        let folder = directory();
        for (path, text) in [
            ("examples/envoy/proxy.yaml", &*envoy),
            ("examples/ratelimit/config/limits.yaml", include_str!("configs/example_limits.yaml")),
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { folder, groups: OURS, proxy, admin, limiter, upstreams: [one, other] }
    }

    /// Returns the example of a copy of envoyproxy/ratelimit.
    fn theirs(folder: PathBuf) -> Self {
        let upstreams = [9_999, 10_001];
        Self { folder, groups: THEIRS, proxy: 8_888, admin: 8_001, limiter: 8_081, upstreams }
    }

    async fn run(self) {
        let Self { folder, groups, proxy, admin, limiter, upstreams: [one, other] } = self;
        upstream(1, one).await;
        upstream(2, other).await;
        let envoy = fs::read_to_string(folder.join("examples/envoy/proxy.yaml")).unwrap();
        let config = folder.join("examples/ratelimit/config");
        run(groups, &config, limiter, || Proxy::start_with(&envoy, proxy, admin)).await;
    }
}

#[test]
fn an_example_with_all_features() {
    let theirs = env::var("PLIMSOLL_ENVOY_RATELIMIT").ok().map(PathBuf::from);
    let run = |example: Example| tokio::runtime::Runtime::new().unwrap().block_on(example.run());
    match theirs {
        Some(folder) if env::var(INSIDE).is_ok() => return run(Example::theirs(folder)),
        Some(_) => in_namespaces("examples::an_example_with_all_features"),
        None => {}
    }
    run(Example::ours());
}

/// Runs a test of this program again, in namespaces with the names of the example.
fn in_namespaces(test: &str) {
    crate::proxy::programs();
    let hosts = directory().join("hosts");
    fs::write(&hosts, "127.0.0.1 localhost ratelimit envoy-mock\n").unwrap();
    let script = "mount --bind \"$1\" /etc/hosts && ip link set lo up && shift && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "--net", "sh", "-c", script, "sh"])
        .args([hosts, env::current_exe().unwrap()])
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "yes")
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
