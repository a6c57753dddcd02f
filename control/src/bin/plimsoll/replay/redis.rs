//! The load and the memory of Redis under a limit, by the figures of the report of the library.

use plimsoll::{Algorithm, Quota};
use serde::Serialize;

use super::peaks::Peaks;

/// The figures of an algorithm: microseconds of a call and of a decision, bytes of a key and of each further record.
type Figures = (&'static str, [f64; 4]);

/// The rows of `docs/report/figures.csv`.
const FIGURES: [Figures; 5] = [
    ("sliding-log", [32.12, 5.24, 193.0, 11.5]),
    ("sliding-buckets", [29.65, 3.71, 193.0, 15.3]),
    ("sliding-counter", [25.45, 2.14, 177.0, 0.0]),
    ("token-bucket", [26.09, 2.20, 193.0, 0.0]),
    ("fixed-window", [24.78, 1.88, 177.0, 0.0]),
];

/// The time of a call, in seconds: checks that arrive during it share the next one.
const ROUND_TRIP: f64 = 0.0005;

/// The needs of Redis in the busiest window, for one instance of the service with a round trip of 0.5 ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct RedisPlan {
    pub(super) memory_bytes: u64,
    pub(super) commands_per_second: u64,
    pub(super) busy_cores: f64,
}

impl RedisPlan {
    /// Plans by the formulas of `report/page/plan.py`, with the keys and requests of the busiest window.
    pub(super) fn new(quota: &Quota, peaks: &Peaks) -> Self {
        let keys = peaks.active_keys() as f64;
        let rps = peaks.requests_per_second();
        let records = rps / keys.max(1.0) * quota.window().as_secs_f64();
        Self::of(quota, keys, rps, records)
    }

    fn of(quota: &Quota, keys: f64, rps: f64, records: f64) -> Self {
        let name = quota.algorithm().name();
        let row = FIGURES.iter().find(|row| row.0 == name).unwrap_or(&FIGURES[0]);
        let [call, decision, key_bytes, record_bytes] = row.1;
        let during = rps * ROUND_TRIP;
        let batch = match during {
            few if few <= 24.0 => few + (-few).exp(),
            many => (many / 2.0).clamp(24.0, 64.0),
        };
        let commands = rps / batch;
        let limit = quota.limit() as f64;
        let most = match quota.algorithm() {
            Algorithm::SlidingLog => limit,
            Algorithm::SlidingBuckets(buckets) => limit.min(f64::from(buckets) + 1.0),
            _ => 1.0,
        };
        let further = records.clamp(1.0, most.max(1.0)) - 1.0;
        Self {
            memory_bytes: (keys * (key_bytes + record_bytes * further)).round() as u64,
            commands_per_second: commands.round() as u64,
            busy_cores: (commands * call + rps * decision) / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_figures_are_the_figures_of_the_report() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/report/figures.csv");
        let text = fs::read_to_string(path).unwrap();
        let rows = text.lines().skip(1).map(|line| {
            let (name, numbers) = line.split_once(',').unwrap();
            let numbers: Vec<f64> = numbers.split(',').map(|it| it.parse().unwrap()).collect();
            (name, numbers)
        });
        let own = FIGURES.iter().map(|(name, numbers)| (*name, numbers.to_vec()));
        assert_eq!(rows.collect::<Vec<_>>(), own.collect::<Vec<_>>());
    }

    /// `python3 report/page/plan.py --quota '100/min' --keys 200k --rps 8k` and with the bucket.
    #[test]
    fn the_plan_is_the_plan_of_the_calculator() {
        for (quota, memory, commands) in
            [("100/min", 41_820_000, 1_991), ("100/min token-bucket(100)", 38_600_000, 1_991)]
        {
            let plan = RedisPlan::of(&quota.parse().unwrap(), 200_000.0, 8_000.0, 2.4);
            assert_eq!((plan.memory_bytes, plan.commands_per_second), (memory, commands));
        }
    }
}
