//! The shared store against what one would write by hand, in one run, interleaved.
//!
//! `cargo bench --features bb8 --bench redis` starts a redis-server of its own on a free loopback port.
//! Read the ratios: absolute figures depend on the machine.

mod concurrency;
mod hand_written;
mod latency;
mod layer;
mod leases;
mod server;
mod server_time;
mod three_policies;
mod throughput;
mod trial;

fn main() {
    let seconds = std::env::var("SECONDS_PER_ROUND").ok().and_then(|text| text.parse().ok());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wants = |name: &str| only.as_deref().is_none_or(|only| only == name);
    runtime.block_on(async {
        if wants("latency") {
            // In a task, as a service runs its checks.
            tokio::spawn(latency::run()).await.expect("no panic");
        }
        if wants("three-policies") {
            three_policies::run(seconds.unwrap_or(1.0)).await;
        }
        if wants("trial") {
            trial::run(seconds.unwrap_or(1.0)).await;
        }
        if wants("throughput") {
            throughput::run(seconds.unwrap_or(1.0)).await;
        }
        if wants("hand-written") {
            tokio::spawn(hand_written::run(seconds.unwrap_or(1.0))).await.expect("no panic");
        }
        if wants("layer") {
            tokio::spawn(layer::run(seconds.unwrap_or(1.0))).await.expect("no panic");
        }
        if wants("concurrency") {
            tokio::spawn(concurrency::run(seconds.unwrap_or(1.0))).await.expect("no panic");
        }
        if wants("leases") {
            // In a task, as a service runs its checks.
            tokio::spawn(leases::run(seconds.unwrap_or(1.0))).await.expect("no panic");
        }
        if wants("server-time") {
            server_time::run().await;
        }
    });
}
