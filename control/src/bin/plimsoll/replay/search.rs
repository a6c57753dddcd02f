//! The search for a limit: the denied share of many limits over one window.

use std::{collections::HashMap, time::Duration};

use plimsoll::{Algorithm, Error, Policy, Quota};

use super::{peaks::Peaks, requests::Request, simulation::Simulation};

/// The most limits of a search, each with a bit in a number.
const MAX_POINTS: usize = 128;

/// Limits below this are all judged.
const FINE: u64 = 20;

/// The steps from one power of ten to the next, each of about a tenth.
const STEPS: [u64; 29] = [
    100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200, 220, 240, 260, 280, 300, 330, 360, 390,
    420, 460, 500, 550, 600, 660, 720, 790, 860, 930,
];

/// The steps where the curve alone needs points.
const COARSE_STEPS: [u64; 6] = [100, 150, 200, 300, 500, 700];

/// The steps of logs that can be read only once.
const ONCE_STEPS: [u64; 3] = [100, 200, 500];

/// The largest limit of a sliding log.
const MOST: u64 = 1 << 31;

/// The limits of logs that can be read only once.
const READ_ONCE: std::ops::RangeInclusive<u64> = 1..=1_000_000;

/// The denials of many limits over one window, under a sliding log.
pub(super) struct Search {
    points: Vec<Point>,
    /// For each denied key, one bit for each limit that has denied it.
    denied: HashMap<u32, u128>,
    requests: u64,
}

/// One limit of a search.
pub(super) struct Point {
    pub(super) limit: u64,
    policy: Policy,
    pub(super) denied: u64,
    pub(super) denied_keys: u64,
}

impl Search {
    /// Creates the search of logs whose [peaks](Peaks) are known: in small steps from the smallest limit that denies
    /// less than 1 % of the keys to the largest peak, and in large steps below it.
    pub(super) fn new(peaks: &Peaks) -> Result<Self, Error> {
        let sorted = peaks.sorted();
        let largest = sorted.last().copied().unwrap_or(1).clamp(1, MOST);
        let fitting = fitting(&sorted);
        let mut limits: Vec<u64> = (1..=FINE.min(largest)).chain(series(&STEPS)).collect();
        limits.retain(|limit| *limit >= fitting && *limit < largest);
        limits.extend([fitting, largest]);
        let least = sorted.get(sorted.len() / 2).map_or(1, |median| (median / 4).max(1));
        limits.extend(series(&COARSE_STEPS).filter(|limit| (least..fitting).contains(limit)));
        limits.sort_unstable();
        limits.dedup();
        // There are no more limits than bits: each second one is left out.
        while limits.len() > MAX_POINTS {
            let last = limits.len() - 1;
            let mut index = 0..;
            limits.retain(|_| index.next().is_some_and(|at| at % 2 == 0 || at == last));
        }
        Self::over(limits, peaks.window())
    }

    /// Creates the search of logs that can be read only once: the limits 1, 2, 5, 10 and so on to a million.
    pub(super) fn once(window: Duration) -> Result<Self, Error> {
        let limits = series(&ONCE_STEPS).filter(|limit| READ_ONCE.contains(limit));
        Self::over(limits.collect(), window)
    }

    fn over(limits: Vec<u64>, window: Duration) -> Result<Self, Error> {
        let points = limits.into_iter().map(|limit| {
            let quota = Quota::new(limit, window, Algorithm::SlidingLog)?;
            let policy = Policy::new(&format!("search-{}-{limit}", window.as_micros()), quota)?;
            Ok(Point { limit, policy, denied: 0, denied_keys: 0 })
        });
        let points = points.collect::<Result<_, Error>>()?;
        Ok(Self { points, denied: HashMap::new(), requests: 0 })
    }

    /// Judges a request of a key whose peak is known, or is [`u64::MAX`]. A limit that the peak does not exceed
    /// never denies the key, so it is left out.
    pub(super) fn record(
        &mut self,
        simulation: &Simulation,
        request: &Request,
        peak: u64,
    ) -> Result<(), Error> {
        self.requests += 1;
        let mut bits = 0;
        for (index, point) in self.points.iter_mut().enumerate() {
            if point.limit >= peak {
                break;
            }
            if simulation.judge(&point.policy, request)?.is_denied {
                point.denied += 1;
                bits |= 1_u128 << index;
            }
        }
        if bits != 0 {
            let denied = self.denied.entry(request.number).or_default();
            let first = bits & !*denied;
            *denied |= bits;
            let is_first = |index: usize| first >> index & 1 == 1;
            let points = self.points.iter_mut().enumerate();
            points.filter(|(index, _)| is_first(*index)).for_each(|(_, it)| it.denied_keys += 1);
        }
        Ok(())
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns the number of requests that were judged.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the smallest limit that denies less than 0.1 % of the requests and less than 1 % of the keys.
    pub(super) fn recommended(&self, keys: u64) -> Option<Quota> {
        let fits =
            |point: &&Point| point.denied * 1_000 < self.requests && point.denied_keys * 100 < keys;
        self.points.iter().find(fits).map(|point| point.policy.quota())
    }
}

/// Returns the smallest limit that denies less than 1 % of the keys with these peaks.
pub(super) fn fitting(sorted_peaks: &[u64]) -> u64 {
    // The most keys that are less than 1 %.
    let denied = sorted_peaks.len().saturating_sub(1) / 100;
    let last = sorted_peaks.len().checked_sub(1 + denied);
    last.map_or(1, |last| sorted_peaks[last].clamp(1, MOST))
}

/// Returns these steps from 1 to the largest limit of a sliding log.
fn series(steps: &[u64]) -> impl Iterator<Item = u64> {
    let powers = (0..10).map(|power| 10_u64.pow(power));
    let all = powers.flat_map(|power| steps.iter().map(move |step| step * power / 100));
    // Below 100, a step may be no whole number.
    all.filter(|limit| (1..=MOST).contains(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_fits_denies_less_than_one_percent_of_the_keys() {
        for keys in [1, 2, 99, 100, 101, 200, 201, 1_000, 1_001] {
            let peaks: Vec<u64> = (1..=keys).collect();
            let limit = fitting(&peaks);
            let denied = |limit| peaks.iter().filter(|peak| **peak > limit).count() as u64;
            assert!(denied(limit) * 100 < keys, "{keys} keys: {limit}");
            assert!(limit == 1 || denied(limit - 1) * 100 >= keys, "{keys} keys: {limit}");
        }
    }

    #[test]
    fn a_step_is_at_most_a_tenth() {
        let limits: Vec<_> = series(&STEPS).filter(|limit| *limit >= 10).collect();
        for pair in limits.windows(2) {
            assert!(pair[1] * 100 <= pair[0] * 110 && pair[1] >= pair[0], "{pair:?}");
        }
    }
}
