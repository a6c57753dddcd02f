//! The load generators, and medians.

use std::{env, fs, path::Path, process::Command};

use plimsoll_testing::servers::directory;

/// Returns the seconds of one run.
pub(crate) fn seconds() -> u32 {
    let variable = env::var("PLIMSOLL_BENCH_SECONDS").ok();
    variable.map_or(2, |seconds| seconds.parse().expect("a number of seconds"))
}

/// The load on a service.
#[derive(Clone, Copy)]
pub(crate) enum Load {
    /// 4 connections of 32 calls each, as many as the service answers.
    Calls,
    /// Calls at a fixed rate, over 4 connections.
    CallsPerSecond(usize),
    /// Checks over 32 connections of HTTP/1, as many as the service answers.
    Checks,
}

/// Returns the requests per second with a body, and their number.
pub(crate) fn h2load(load: Load, port: u16, body: &Path) -> (f64, f64) {
    let path = match load {
        Load::Calls | Load::CallsPerSecond(_) => {
            "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        }
        Load::Checks => "v1/check",
    };
    let mut command = Command::new("h2load");
    command.arg(format!("--duration={}", seconds())).arg("--threads=1");
    let header = match load {
        Load::Calls => {
            command.args(["--clients=4", "--max-concurrent-streams=32", "--header=te: trailers"]);
            "--header=content-type: application/grpc"
        }
        Load::CallsPerSecond(rate) => {
            command.args(["--clients=4", "--max-concurrent-streams=32", "--header=te: trailers"]);
            command.arg(format!("--rps={}", rate / 4));
            "--header=content-type: application/grpc"
        }
        Load::Checks => {
            command.args(["--h1", "--clients=32"]);
            "--header=content-type: application/json"
        }
    };
    let output = command
        .arg(header)
        .arg("--data")
        .arg(body)
        .arg(format!("http://127.0.0.1:{port}/{path}"))
        .output()
        .expect("h2load is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(" 0 failed, 0 errored"), "{text}");
    let rate = text.split("finished in ").nth(1).and_then(|it| it.split(", ").nth(1));
    let rate = rate.and_then(|it| it.split_whitespace().next()).expect("a rate");
    let done = text.split(" done, ").nth(1).and_then(|it| it.split_whitespace().next());
    let number = |text: &str| text.parse().expect("a number");
    (number(rate), number(done.expect("a count")))
}

/// The requests per second through Envoy, of all connections: far below what Envoy can do, because the time in a
/// queue before a busy Envoy would hide the time of the filter.
pub(crate) const REQUESTS_PER_SECOND: usize = 2_000;
pub(crate) const CONNECTIONS: usize = 8;

/// Returns the median and the 99th percentile of requests at a fixed rate, in milliseconds.
pub(crate) fn at_fixed_rate(port: u16) -> (f64, f64) {
    let log = directory().join("requests");
    let output = Command::new("h2load")
        .arg("--h1")
        .arg(format!("--duration={}", seconds()))
        .arg(format!("--clients={CONNECTIONS}"))
        .arg(format!("--rps={}", REQUESTS_PER_SECOND / CONNECTIONS))
        .args(["--threads=1", "--header=x-user: alice"])
        .arg(format!("--log-file={}", log.display()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .output()
        .expect("h2load is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(" 0 failed, 0 errored"), "{text}");
    // Each line has the start, the status, and the time of the request in microseconds.
    let lines = fs::read_to_string(&log).expect("a log");
    let mut times: Vec<f64> = lines
        .lines()
        .map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            assert_eq!(fields[1], "200", "{line}");
            fields[2].parse::<f64>().expect("microseconds") / 1_000.0
        })
        .collect();
    let expected = REQUESTS_PER_SECOND * seconds() as usize;
    assert!(times.len() > expected * 9 / 10, "{} of {expected} requests", times.len());
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
