//! One run for each fault: three servers over one Redis, under the same load at the same time.

use std::{ops::Range, time::Duration};

use tokio::time::Instant;

use super::{
    faults::{AFTER, BEFORE, FAULT, Fault, Servers},
    load::{self, KEYS, Sample},
    proxy::Address,
    servers::{self, LIMIT, NAMES},
};

/// The length of a line of the timeline.
const LINE: Duration = Duration::from_millis(100);

/// Prints two tables. `timeline` has a line for each 100 ms, and `phase` one for the time before, during
/// and after the fault. `limit` is what the limits of all keys admit in that time at a steady rate.
pub(crate) async fn print() {
    println!(
        "table,fault,limiter,from_ms,requests,p50_ms,p999_ms,longest_ms,admitted,limit,denied,errors"
    );
    for fault in Fault::EACH {
        let mut redis = Servers::start();
        let (address, url) = Address::of(redis.primary.port).await;
        let addresses = servers::start(&url).await;
        let begin = Instant::now() + Duration::from_millis(50);
        let length = BEFORE + FAULT + AFTER;
        let loads = addresses.map(|server| tokio::spawn(load::run(server, begin, length)));
        fault.play(begin, &mut redis, &address).await;
        for (name, load) in NAMES.iter().zip(loads) {
            let samples = load.await.expect("no panic");
            let mut from = Duration::ZERO;
            while from < length {
                print_line("timeline", fault, name, &samples, from..from + LINE);
                from += LINE;
            }
            // In the first second, the clients spend the burst.
            let second = Duration::from_secs(1);
            for phase in [second..BEFORE, BEFORE..BEFORE + FAULT, BEFORE + FAULT..length] {
                print_line("phase", fault, name, &samples, phase);
            }
        }
    }
}

fn print_line(table: &str, fault: Fault, name: &str, samples: &[Sample], time: Range<Duration>) {
    let samples: Vec<_> = samples.iter().filter(|sample| time.contains(&sample.due)).collect();
    let mut took: Vec<_> = samples.iter().map(|sample| sample.took).collect();
    took.sort_unstable();
    // The smallest time that this part of the requests does not exceed.
    let quantile = |part: f64| {
        let rank = (took.len() as f64 * part).ceil() as usize;
        let time = took.get(rank.max(1) - 1).copied().unwrap_or_default();
        time.as_secs_f64() * 1e3
    };
    let count = |statuses: &[u16]| {
        samples.iter().filter(|sample| statuses.contains(&sample.status)).count()
    };
    let (admitted, denied) = (count(&[200]), count(&[429]));
    let seconds = (time.end - time.start).as_secs_f64();
    println!(
        "{table},{},{name},{},{},{:.2},{:.2},{:.2},{admitted},{:.0},{denied},{}",
        fault.name(),
        time.start.as_millis(),
        samples.len(),
        quantile(0.5),
        quantile(0.999),
        quantile(1.0),
        seconds * (u64::from(LIMIT) * KEYS) as f64,
        samples.len() - admitted - denied,
    );
}
