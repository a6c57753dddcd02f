//! Envoy with a configuration of the test, and an upstream behind it.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread::sleep,
    time::Duration,
};

use axum::{Router, routing::get};
use plimsoll_testing::{
    servers::{directory, free_port},
    web::{self, Client, Reply},
};

/// Envoy, until it is dropped.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    admin: u16,
    child: Child,
}

/// Settings of the rate limit filter.
pub(crate) struct Filter<'f> {
    pub(crate) limiters: &'f [u16],
    pub(crate) denies_on_failure: bool,
    pub(crate) timeout: &'f str,
}

/// Returns the folder of `envoy` and `python3`. It installs them at the first call.
pub(crate) fn programs() -> &'static str {
    static FOLDER: OnceLock<String> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/envoy");
        let output = Command::new(script).stderr(Stdio::inherit()).output().expect("the script");
        assert!(output.status.success(), "scripts/envoy fails");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    })
}

impl Proxy {
    /// Starts Envoy with `configs/proxy.yaml` in front of an upstream of this process.
    pub(crate) async fn start(filter: Filter<'_>) -> Self {
        let upstream = Router::new().fallback(get(|| async { "hello" }));
        let upstream = web::serve(upstream).await.port();
        let endpoint = |port: &u16| {
            format!(
                "{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }} }}"
            )
        };
        let limiters: Vec<_> = filter.limiters.iter().map(endpoint).collect();
        let (port, admin) = (free_port(), free_port());
        let config = include_str!("configs/proxy.yaml")
            .replace("@PORT@", &port.to_string())
            .replace("@ADMIN@", &admin.to_string())
            .replace("@UPSTREAM@", &endpoint(&upstream))
            .replace("@LIMITERS@", &limiters.join(", "))
            .replace("@TIMEOUT@", filter.timeout)
            .replace("@DENIES@", &filter.denies_on_failure.to_string());
        Self::start_with(&config, port, admin)
    }

    /// Starts Envoy with a configuration that has these ports.
    pub(crate) fn start_with(config: &str, port: u16, admin: u16) -> Self {
        let file = directory().join("envoy.yaml");
        fs::write(&file, config).expect("a file");
        let log = fs::File::create(file.with_extension("log")).expect("a file");
        let child = Command::new(format!("{}/envoy", programs()))
            .args(["--concurrency", "1", "--use-dynamic-base-id", "--disable-hot-restart"])
            .args(["--service-node", "proxy", "--service-cluster", "proxy"])
            .args(["--log-level", "warning", "--config-path"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Envoy is installed");
        let proxy = Self { port, admin, child };
        for _ in 0..6_000 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return proxy;
            }
            sleep(Duration::from_millis(10));
        }
        let log = fs::read_to_string(file.with_extension("log")).unwrap_or_default();
        panic!("Envoy does not start: {log}");
    }

    pub(crate) async fn client(&self) -> Client {
        web::http1(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))).await
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        self.client().await.get_with(path, headers).await
    }

    /// Returns a counter of Envoy.
    pub(crate) async fn counter(&self, name: &str) -> u64 {
        let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin));
        let reply = web::http1(admin).await.get(&format!("/stats?filter={name}")).await;
        let text = String::from_utf8(reply.body.to_vec()).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|it| it.0.ends_with(name)).filter_map(|it| it.1.parse::<u64>().ok()).sum()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
