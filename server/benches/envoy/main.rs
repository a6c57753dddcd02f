//! Decisions per second of the gRPC service over Redis, against a bare service of tonic and against a service that
//! sends one EVALSHA per call, with the processor time that each service takes for a decision; and the time that the
//! service adds to a request through Envoy.
//!
//! `cargo bench -p plimsoll-server --bench envoy` prints the tables. The services run in processes of their own,
//! in turns, and the figures are medians of the rounds. It needs redis-server, h2load, and Envoy from
//! `scripts/envoy`. `server/scripts/bench` prints all figures of the service, these among them.
//! `PLIMSOLL_BENCH_SECONDS` is the time of one run.
#![allow(missing_docs, reason = "a benchmark")]

mod load;
mod proxy;
mod services;

use std::{env, fs, process::Command};

use plimsoll_testing::servers::{Server, directory, free_port};

use self::{
    load::{CONNECTIONS, REQUESTS_PER_SECOND, at_fixed_rate, h2load, median},
    proxy::Proxy,
    services::{Process, ROLE},
};

const ROUNDS: usize = 7;

fn main() {
    if let Ok(role) = env::var(ROLE) {
        return services::serve(&role);
    }
    let redis = Server::start();
    decisions(&redis);
    through_envoy(&redis);
}

fn decisions(redis: &Server) {
    let roles = ["bare", "evalsha", "memory", "not leased", "leased"];
    let services: Vec<_> = roles.iter().map(|role| Process::start(role, redis)).collect();
    let body = directory().join("request");
    fs::write(&body, services::framed_request()).expect("a file");
    // Each service answers rightly before it is measured.
    services.iter().for_each(|it| it.assert_admits());
    let (mut rates, mut costs) = (vec![Vec::new(); roles.len()], vec![Vec::new(); roles.len()]);
    for round in 0..=ROUNDS {
        for ((service, rates), costs) in services.iter().zip(&mut rates).zip(&mut costs) {
            let before = service.ticks();
            let (rate, count) = h2load(service.port, &body);
            if round > 0 {
                rates.push(rate);
                costs.push((service.ticks() - before) * 10_000.0 / count);
            }
        }
    }
    println!("decisions per second, h2load, 4 connections of 32 streams, {ROUNDS} rounds");
    println!(
        "| service | per second | x bare | lowest to highest | x EVALSHA | lowest to highest | processor time |"
    );
    println!("|---|---|---|---|---|---|---|");
    for ((role, of_role), costs) in roles.iter().zip(&rates).zip(&costs) {
        let to = |other: usize| {
            let mut ratios: Vec<_> =
                of_role.iter().zip(&rates[other]).map(|(a, b)| a / b).collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        };
        let (bare, evalsha) = (to(0), to(1));
        println!(
            "| {role} | {:.0} | {:.2} | {:.2} to {:.2} | {:.2} | {:.2} to {:.2} | {:.1} us |",
            median(of_role),
            median(&bare),
            bare[0],
            bare[bare.len() - 1],
            median(&evalsha),
            evalsha[0],
            evalsha[evalsha.len() - 1],
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
