//! Decisions of the service, with the processor time of each: over gRPC beside a bare service of tonic and beside a
//! service that sends one EVALSHA per call, over HTTP beside a bare service of axum; and the time that the service adds to
//! a request through Envoy.
//!
//! `cargo bench -p plimsoll-server --bench envoy` prints the tables. The services run in processes of their own,
//! in turns, and the figures are medians of the rounds. It needs redis-server, h2load, and Envoy from
//! `scripts/envoy`. `server/scripts/bench` prints all figures of the service, these among them.
//! `PLIMSOLL_BENCH_SECONDS` is the time of one run.
#![allow(missing_docs, reason = "a benchmark")]

mod load;
mod proxy;
mod services;

use std::{env, fs, path::Path, process::Command};

use plimsoll_testing::servers::{Server, directory, free_port};

use self::{
    load::{CONNECTIONS, Load, REQUESTS_PER_SECOND, at_fixed_rate, h2load, median},
    proxy::Proxy,
    services::{Process, ROLE},
};

const ROUNDS: usize = 7;
/// Calls per second, far below what the services can do.
const RATE: usize = 4_000;

fn main() {
    if let Ok(role) = env::var(ROLE) {
        return services::serve(&role);
    }
    let redis = Server::start();
    decisions(&redis);
    through_envoy(&redis);
}

fn decisions(redis: &Server) {
    let grpc = ["bare", "evalsha", "memory", "not leased", "leased"];
    let body = directory().join("request");
    fs::write(&body, services::framed_request()).expect("a file");
    let services = grpc.map(|role| Process::start(role, redis));
    // Each service answers rightly before it is measured.
    services.iter().for_each(Process::assert_admits);
    println!("decisions over gRPC, h2load, 4 connections of 32 streams, {ROUNDS} rounds");
    measure(&grpc, &services, Load::Calls, &body);
    println!("\ndecisions over gRPC, h2load, {RATE} a second on 4 connections, {ROUNDS} rounds");
    measure(&grpc, &services, Load::CallsPerSecond(RATE), &body);
    drop(services);
    let http = ["bare HTTP", "memory HTTP", "not leased HTTP"];
    let body = directory().join("check");
    fs::write(&body, services::CHECK).expect("a file");
    let services = http.map(|role| Process::start(role, redis));
    println!("\ndecisions over HTTP, h2load, 32 connections of HTTP/1, {ROUNDS} rounds");
    measure(&http, &services, Load::Checks, &body);
}

/// Prints the table of services that take turns under a load.
fn measure(roles: &[&str], services: &[Process], load: Load, body: &Path) {
    let (mut rates, mut costs) = (vec![Vec::new(); roles.len()], vec![Vec::new(); roles.len()]);
    for round in 0..=ROUNDS {
        for ((service, rates), costs) in services.iter().zip(&mut rates).zip(&mut costs) {
            let before = service.cpu_micros();
            let (rate, count) = h2load(load, service.port, body);
            if round > 0 {
                rates.push(rate);
                costs.push((service.cpu_micros() - before) / count);
            }
        }
    }
    println!("| service | per second | x bare | lowest to highest | x EVALSHA | processor time |");
    println!("|---|---|---|---|---|---|");
    for ((role, of_role), costs) in roles.iter().zip(&rates).zip(&costs) {
        let to = |other: usize| {
            let mut ratios: Vec<_> =
                of_role.iter().zip(&rates[other]).map(|(a, b)| a / b).collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let bare = to(0);
        let evalsha = roles.iter().position(|it| *it == "evalsha");
        println!(
            "| {role} | {:.0} | {:.2} | {:.2} to {:.2} | {} | {:.1} us |",
            median(of_role),
            median(&bare),
            bare[0],
            bare[bare.len() - 1],
            evalsha.map_or(String::new(), |it| format!("{:.2}", median(&to(it)))),
            median(costs)
        );
    }
}

fn through_envoy(redis: &Server) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/envoy");
    let output = Command::new(script).output().expect("the script");
    let folder = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    let service = Process::start("not leased", redis);
    let leased = Process::start("leased", redis);
    let ways = [
        ("without the filter", None),
        ("filter", Some(service.port)),
        ("filter, leased", Some(leased.port)),
    ];
    let proxies = ways.map(|(name, limiter)| (name, Proxy::start(&folder, free_port(), limiter)));
    let mut figures = vec![(Vec::new(), Vec::new()); proxies.len()];
    for round in 0..=ROUNDS {
        for ((_, proxy), (medians, highs)) in proxies.iter().zip(&mut figures) {
            let (p50, p99) = at_fixed_rate(proxy.port);
            if round > 0 {
                medians.push(p50);
                highs.push(p99);
            }
        }
    }
    println!(
        "\nmilliseconds of a request through Envoy, h2load, {REQUESTS_PER_SECOND} requests per second on \
         {CONNECTIONS} connections, {ROUNDS} rounds"
    );
    println!("| Envoy | median | added | p99 | added | lowest and highest p99 |");
    println!("|---|---|---|---|---|---|");
    let without = (median(&figures[0].0), median(&figures[0].1));
    for ((name, _), (medians, highs)) in proxies.iter().zip(&mut figures) {
        highs.sort_by(f64::total_cmp);
        let (p50, p99) = (median(medians), median(highs));
        println!(
            "| {name} | {p50:.2} | {:.2} | {p99:.2} | {:.2} | {:.2} to {:.2} |",
            p50 - without.0,
            p99 - without.1,
            highs[0],
            highs[highs.len() - 1]
        );
    }
}
