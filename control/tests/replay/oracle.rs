//! Random logs, judged by the replay and by definitions that keep every request.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_testing::seed;
use proptest::{collection::vec, prelude::*};

use super::{Log, START, candidate};

const SECOND: u64 = 1_000_000;

/// Time, key and cost.
type Request = (u64, u64, u64);

/// Returns whether one more request of a key is admitted, by the admitted ones before it.
type Admits = fn(admitted: &[Request], request: Request, limit: u64, window: u64) -> bool;

fn sum(requests: impl Iterator<Item = Request>) -> u64 {
    requests.map(|(_, _, cost)| cost).sum()
}

fn sliding_log(admitted: &[Request], (at, _, cost): Request, limit: u64, window: u64) -> bool {
    let counting = admitted.iter().filter(|it| at < it.0 + window).copied();
    sum(counting) + cost <= limit
}

/// A request counts from the end of its sixtieth of a window on for a window.
fn sliding_buckets(admitted: &[Request], (at, _, cost): Request, limit: u64, window: u64) -> bool {
    let end = |time: u64| ((time * 60 / window + 1) * window).div_ceil(60);
    let counting = admitted.iter().filter(|it| at < end(it.0) + window).copied();
    sum(counting) + cost <= limit
}

fn sliding_counter(admitted: &[Request], (at, _, cost): Request, limit: u64, window: u64) -> bool {
    let of = |period: u64| sum(admitted.iter().filter(|it| it.0 / window == period).copied());
    let left = window - at % window;
    of(at / window) + (of(at / window - 1) * left).div_ceil(window) + cost <= limit
}

/// The debt, in millionths of what refills in a microsecond, after each admitted request.
fn token_bucket(admitted: &[Request], (at, _, cost): Request, limit: u64, window: u64) -> bool {
    let (mut debt, mut last) = (0_u64, 0);
    for (time, cost) in admitted.iter().map(|it| (it.0, it.2)).chain([(at, cost)]) {
        debt = debt.saturating_sub((time - last) * limit) + cost * window;
        last = time;
    }
    debt <= limit * window
}

fn fixed_window(admitted: &[Request], (at, _, cost): Request, limit: u64, window: u64) -> bool {
    let same = admitted.iter().filter(|it| it.0 / window == at / window).copied();
    sum(same) + cost <= limit
}

/// Returns the number of denied requests, and of denied keys.
fn judge(requests: &[Request], limit: u64, window: u64, admits: Admits) -> (u64, u64) {
    let mut admitted: BTreeMap<u64, Vec<Request>> = BTreeMap::new();
    let (mut denied, mut keys) = (0, BTreeSet::new());
    for request in requests {
        let before = admitted.entry(request.1).or_default();
        if admits(before, *request, limit, window) {
            before.push(*request);
        } else {
            denied += 1;
            keys.insert(request.1);
        }
    }
    (denied, keys.len() as u64)
}

#[test]
fn a_replay_denies_what_the_definitions_deny() {
    // Many steps are edges of windows and of buckets.
    let step = prop_oneof![
        0_u64..3,
        0..SECOND,
        (0_u64..30).prop_map(|tenths| tenths * SECOND / 10),
        Just(SECOND / 60),
        Just(3 * SECOND),
    ];
    let steps = vec((step, 0_u64..3, 0_u64..4), 1..120);
    let strategy = (steps, 1_u64..9, prop_oneof![Just(1_u64), Just(3)]);
    let config = ProptestConfig::with_cases(60);
    seed::property("a_replay_denies_what_the_definitions_deny", config, strategy, |case| {
        let (steps, limit, seconds) = case;
        let mut at = START;
        let requests: Vec<Request> = steps
            .into_iter()
            .map(|(step, key, cost)| {
                at += step;
                (at, key, cost)
            })
            .collect();
        let log = Log::new(
            requests.iter().map(|(at, key, cost)| (*at, format!("192.0.2.{key}"), "/", *cost)),
        );
        let quota = format!("{limit}/{seconds}s");
        let report = log.replay(&["--cost", "field:units", "--limit", &quota]);
        let algorithms: [(&str, Admits); 5] = [
            ("sliding-log", sliding_log),
            ("sliding-buckets", sliding_buckets),
            ("sliding-counter", sliding_counter),
            ("token-bucket", token_bucket),
            ("fixed-window", fixed_window),
        ];
        for (name, admits) in algorithms {
            let row = candidate(&report, name);
            let found = [&row["denied"], &row["denied_keys"]].map(|it| it.as_u64().unwrap());
            let (denied, keys) = judge(&requests, limit, seconds * SECOND, admits);
            prop_assert_eq!(found, [denied, keys], "{} under {}", name, quota);
        }
        Ok(())
    });
}
