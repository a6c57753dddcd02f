//! The load generators, and medians.

use std::{env, path::Path, process::Command};

/// Returns the seconds of one run.
pub(crate) fn seconds() -> u32 {
    let variable = env::var("PLIMSOLL_BENCH_SECONDS").ok();
    variable.map_or(2, |seconds| seconds.parse().expect("a number of seconds"))
}

/// Returns the requests per second of gRPC calls with a body, and their number.
pub(crate) fn h2load(port: u16, body: &Path) -> (f64, f64) {
    let url = format!(
        "http://127.0.0.1:{port}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
    );
    let output = Command::new("h2load")
        .arg(format!("--duration={}", seconds()))
        .args(["--clients=4", "--max-concurrent-streams=32", "--threads=1"])
        .args(["--header=content-type: application/grpc", "--header=te: trailers"])
        .arg("--data")
        .arg(body)
        .arg(url)
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

/// Returns the median and the 99th percentile of requests, in milliseconds.
pub(crate) fn wrk(port: u16) -> (f64, f64) {
    let output = Command::new("wrk")
        .args(["--latency", "--duration", &format!("{}s", seconds())])
        .args(["--connections", "4", "--threads", "1"])
        .args(["--header", "x-user: alice"])
        .arg(format!("http://127.0.0.1:{port}/"))
        .output()
        .expect("wrk is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("Non-2xx"), "{text}");
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)).expect("a line");
        let line = line.trim();
        let (number, unit) =
            line.split_at(line.find(|it: char| it.is_alphabetic()).expect("a unit"));
        let factor = match unit {
            "us" => 0.001,
            "ms" => 1.0,
            _ => 1_000.0,
        };
        number.parse::<f64>().expect("a number") * factor
    };
    (line("50%"), line("99%"))
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
