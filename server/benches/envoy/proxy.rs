//! Envoy, with or without the filter.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use plimsoll_testing::servers::directory;

/// Envoy with a response of its own, so that its upstream takes no time.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    child: Child,
}

impl Proxy {
    /// Starts Envoy. `limiter` is the port of the rate limit service, if there is one.
    pub(crate) fn start(folder: &str, port: u16, limiter: Option<u16>) -> Self {
        let config = include_str!("envoy.yaml").replace("@PORT@", &port.to_string());
        let config = match limiter {
            Some(limiter) => config.replace("@LIMITER@", &limiter.to_string()),
            // The lines of the filter end with this mark.
            None => config
                .lines()
                .filter(|line| !line.ends_with("# filter"))
                .collect::<Vec<_>>()
                .join("\n"),
        };
        let file = directory().join("envoy.yaml");
        fs::write(&file, config.replace("# filter", "")).expect("a file");
        let child = Command::new(format!("{folder}/envoy"))
            .args(["--concurrency", "1", "--use-dynamic-base-id", "--disable-hot-restart"])
            .args(["--log-level", "error", "--config-path"])
            .arg(file)
            .stdin(Stdio::null())
            .spawn()
            .expect("Envoy is installed");
        // A process that does not start ends with this.
        let started = Self { port, child };
        for _ in 0..1_500 {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return started;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("Envoy does not start");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
