//! Random histories of checks whose times never run backward.

use std::time::Duration;

use plimsoll::{Algorithm, Quota};
use plimsoll_testing::{
    algorithms::{Parameter, Returns, returns, with_parameter},
    micros,
    seed::Random,
};

use crate::model::{Decided, Line, proven};

/// The cost of a charge, and the most units of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) cost: u64,
    pub(crate) most: u64,
}

/// The quotas of up to three keys.
pub(crate) fn quotas(random: &mut Random) -> Vec<Quota> {
    let count = random.one(&[1, 1, 2, 3]);
    (0..count).map(|_| quota(random)).collect()
}

fn quota(random: &mut Random) -> Quota {
    let algorithm = random.one(&proven());
    let is_huge = random.below(4) == 0;
    let (limits, windows): (&[u64], &[u64]) = match (returns(algorithm), is_huge) {
        // Above a limit of 10,000, and with more than 10,000 microseconds, a log rounds its times.
        (Returns::AfterWindow, true) => {
            (&[10_000, 10_001, 60_000, 2_000_000_000], &[10_000, 10_001, 1_000_000, 60_000_007])
        }
        // Products of these exceed 2^53.
        (Returns::ByPeriod | Returns::AtRate, true) => {
            (&[105_001, 1_000_003, 999_999_999_989], &[34_000_000_000_003, 34_559_999_900_000])
        }
        (_, false) => (
            &[1, 2, 3, 5, 8, 13, 100, 1_000],
            &[1_000, 1_337, 60_000, 1_000_000, 60_000_000, 86_400_000_000],
        ),
    };
    let (limit, window) = (random.one(limits), random.one(windows));
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => random.one(&[1, 2, 3, 7, 10, 1_000]),
        Parameter::Burst if is_huge => limit,
        Parameter::Burst => random.one(&[1, 2, 5, 10, 50]),
    });
    let window = Duration::from_micros(window);
    let quota = Quota::new(limit, window, algorithm).unwrap_or_else(|_| Quota::per_second(5));
    let longest = quota.window().as_millis() as u64 / 10;
    let lease = Duration::from_millis(random.one(&[1, 2, longest / 3, longest]));
    if random.below(2) == 0 { quota } else { quota.leased(lease).unwrap_or(quota) }
}

/// Returns the time of the next check, which depends on the last decision: around the ends of its waits,
/// around the edges of periods, and anywhere.
pub(crate) fn next_time(random: &mut Random, now: u64, quotas: &[Quota], last: &[Line]) -> u64 {
    let window = micros(quotas[random.below(quotas.len() as u64) as usize].window());
    let any_wait = |random: &mut Random| {
        let line = last.get(random.below(last.len().max(1) as u64) as usize)?;
        let waits = [line.next_after, line.reset_after, line.retry_after?];
        Some(random.one(&waits))
    };
    match random.below(10) {
        0..3 => now,
        3 => now + random.below(3),
        4 => now + random.below(window / 3 + 1),
        5 => now + random.below(3 * window),
        6 => {
            let edge = (now / window + 1) * window;
            (edge + random.below(3) - 1).max(now)
        }
        _ => match any_wait(random) {
            Some(wait) => (now + wait + random.below(2)).saturating_sub(1).max(now),
            None => now + random.below(window / 10 + 1),
        },
    }
}

/// Returns the charges of the next check. `free` is what each key has.
pub(crate) fn asks(random: &mut Random, quotas: &[Quota], free: &[u64]) -> Vec<Ask> {
    let charged = random.below(quotas.len() as u64) as usize;
    let asks = quotas.iter().zip(free).enumerate().map(|(index, (quota, &free))| {
        let capacity = quota.counted().capacity();
        let cost = match random.below(8) {
            _ if index != charged && random.below(3) == 0 => 0,
            0 => free,
            1 => free + 1,
            2 => capacity + random.below(2),
            3 => random.below(capacity + 1),
            _ => 1 + random.below(capacity.div_ceil(4)),
        };
        let more = if cost > 0 && random.below(3) == 0 { random.below(capacity) } else { 0 };
        Ask { cost, most: cost + more }
    });
    asks.collect()
}

/// The cases that the histories have to reach.
pub(crate) const CASES: &[&str] = &[
    "admitted",
    "denied",
    "over capacity",
    "several keys, denied by one",
    "same time as the check before",
    "the wait of the last denial has passed: admitted",
    "a microsecond less than the wait: denied",
    "lease granted",
    "counted for a lease",
    "all that was free",
    "product beyond 2^53",
    "rounded times of a log",
    "nothing left",
];

/// Returns the cases that a decision is one of.
pub(crate) fn cases(
    quotas: &[Quota],
    asks: &[Ask],
    free: &[u64],
    (admitted, lines): &Decided,
) -> Vec<&'static str> {
    let each = || quotas.iter().zip(asks).zip(free).zip(lines);
    let any = |holds: fn(&Quota, Ask, u64, &Line) -> bool| {
        each().any(|(((quota, ask), free), line)| holds(quota, *ask, *free, line))
    };
    let fits = each().filter(|(((_, ask), free), _)| ask.cost <= **free).count();
    let found = [
        ("admitted", *admitted),
        ("denied", !admitted),
        ("over capacity", any(|quota, ask, _, _| ask.cost > quota.counted().capacity())),
        ("several keys, denied by one", !admitted && fits > 0 && fits + 1 == asks.len()),
        ("lease granted", any(|_, ask, _, line| line.units > ask.cost)),
        ("counted for a lease", any(|quota, _, _, _| quota.counted() != *quota)),
        ("all that was free", any(|_, _, free, line| free > 0 && line.units == free)),
        (
            "product beyond 2^53",
            any(|quota, _, _, line| {
                u128::from(line.remaining) * quota.window().as_micros() > 1 << 53
            }),
        ),
        (
            "rounded times of a log",
            any(|quota, _, _, line| {
                quota.algorithm() == Algorithm::SlidingLog
                    && quota.limit() > 10_000
                    && micros(quota.window()) > 10_000
                    && line.units > 0
            }),
        ),
        ("nothing left", any(|_, _, _, line| line.remaining == 0)),
    ];
    found.iter().filter(|(_, holds)| *holds).map(|(case, _)| *case).collect()
}
