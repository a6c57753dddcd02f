//! The cost of a whole request: an axum server at a fixed rate, far from its capacity, with and without a
//! layer. Each server is a process of its own, and so is the load.
//!
//! `./scripts/bench request` prints the processor time of a request, in the server and in Redis, and its
//! latency. The servers take turns, a few seconds each, because a machine's speed drifts. The additional time
//! over the bare server is the median over the turns.

mod load;
mod server;

use plimsoll_testing::servers::Server as Redis;
use server::{Server, VARIANTS, Variant};

/// Requests a second.
const RATE: u32 = 4_000;
/// More than half of a second passes between two requests of a client.
const MANY: u32 = 1_000;
/// Each client sends so many requests that a lease pays for most of them.
const FEW: u32 = 10;
const TURNS: usize = 7;
const SECONDS_PER_TURN: u32 = 2;
/// The requests before each turn, which are not counted.
const WARM_UP_SECONDS: u32 = 1;
/// The most additional time over the bare server with five headers, in microseconds.
const BAR: f64 = 2.5;

/// The figures of one turn of a server.
struct Turn {
    /// Processor time of the server and of Redis a request, in microseconds.
    cpu: f64,
    redis: f64,
    latencies: Vec<f64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, serve, name, url] = &*arguments
        && serve == "--serve"
    {
        return server::serve(name, url);
    }
    if arguments.iter().any(|argument| argument == "--bench") {
        measure();
    }
}

fn measure() {
    let redis = Redis::start();
    let servers = VARIANTS.each_ref().map(|variant| Server::start(variant, &redis.url()));
    let turns = (0..TURNS).map(|_| {
        let one = |(variant, server)| turn(variant, server, &redis);
        VARIANTS.iter().zip(&servers).map(one).collect()
    });
    let turns: Vec<Vec<Turn>> = turns.collect();
    println!("\nA request to an axum server at {RATE} requests a second, in microseconds");
    println!(
        "{:<46} {:>7} {:>9} {:>7} {:>6} {:>6} {:>6}",
        "", "CPU", "over bare", "Redis", "p50", "p99", "p99.9"
    );
    for (index, variant) in VARIANTS.iter().enumerate() {
        let over = |figure: fn(&Turn) -> f64| median(turns.iter().map(|it| figure(&it[index])));
        let added = median(turns.iter().map(|turn| turn[index].cpu - turn[0].cpu));
        let latencies = turns.iter().flat_map(|turn| turn[index].latencies.iter().copied());
        let latencies = sorted(latencies);
        let [half, most, nearly_all] = [0.5, 0.99, 0.999].map(|at| quantile(&latencies, at));
        let bar = match (variant.has_bar, added <= BAR) {
            (false, _) => "",
            (true, true) => " <= 2.5 ok",
            (true, false) => " <= 2.5 MISS",
        };
        println!(
            "{:<46} {:>7.2} {added:>9.2} {:>7.2} {half:>6.0} {most:>6.0} {nearly_all:>6.0}{bar}",
            variant.what,
            over(|turn| turn.cpu),
            over(|turn| turn.redis),
        );
    }
}

fn turn(variant: &Variant, server: &Server, redis: &Redis) -> Turn {
    load::run(server.port, variant.clients, WARM_UP_SECONDS);
    let (before, redis_before) = (server.cpu_micros(), redis_micros(redis));
    let latencies = load::run(server.port, variant.clients, SECONDS_PER_TURN);
    let requests = latencies.len() as f64;
    Turn {
        cpu: (server.cpu_micros() - before) / requests,
        redis: (redis_micros(redis) - redis_before) / requests,
        latencies,
    }
}

/// Returns the processor time that Redis has used.
fn redis_micros(redis: &Redis) -> f64 {
    let seconds = |name| redis.info("cpu", name).parse().unwrap_or(0.0);
    1e6 * (seconds("used_cpu_user") + seconds("used_cpu_sys"))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

fn quantile(sorted: &[f64], at: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}
