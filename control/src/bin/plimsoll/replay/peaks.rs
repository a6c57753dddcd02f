//! The busiest window of each key, and of all keys together.

use std::{collections::VecDeque, time::Duration};

use plimsoll::{Algorithm, Error, Policy, Quota};

use super::{requests::Request, simulation::Simulation};

/// The largest limit of a sliding log. A key that asks for more in a window counts as this.
const MOST: u64 = 1 << 31;

/// The parts of a window in which times are told apart, as a sliding log of a large limit does.
const RESOLUTION: u64 = 10_000;

/// The most units that each key, and all keys together, have asked for in any window.
pub(super) struct Peaks {
    /// A sliding log that denies nothing. So its units are those of the window that ends now.
    policy: Policy,
    by_key: Vec<u64>,
    units: Trailing,
    requests: Trailing,
    active: Active,
}

impl Peaks {
    /// Creates the peaks of a window. `name` is the name of the policy that counts them.
    ///
    /// # Errors
    ///
    /// Returns an error if no quota has this window, or no policy this name.
    pub(super) fn new(window: Duration, name: &str) -> Result<Self, Error> {
        let quota = Quota::new(MOST, window, Algorithm::SlidingLog)?;
        let trailing = Trailing::new(window.as_micros() as u64);
        Ok(Self {
            policy: Policy::new(name, quota)?,
            by_key: Vec::new(),
            units: trailing.clone(),
            requests: trailing,
            active: Active::default(),
        })
    }

    pub(super) fn window(&self) -> Duration {
        self.policy.quota().window()
    }

    pub(super) fn record(
        &mut self,
        simulation: &Simulation,
        request: &Request,
    ) -> Result<(), Error> {
        let judged = simulation.judge(&self.policy, request)?;
        let units = if judged.is_denied { MOST } else { MOST - judged.remaining };
        let peak = at(&mut self.by_key, request.number);
        *peak = units.max(*peak);
        self.units.add(request.at, request.cost);
        self.requests.add(request.at, 1);
        self.active.add(request.number, request.at / self.units.window);
        Ok(())
    }

    /// Returns the peak of a key by its number.
    pub(super) fn of(&self, number: u32) -> u64 {
        self.by_key.get(number as usize).copied().unwrap_or_default()
    }

    /// Returns the peaks of all keys, the smallest first.
    pub(super) fn sorted(&self) -> Vec<u64> {
        let mut peaks = self.by_key.clone();
        peaks.sort_unstable();
        peaks
    }

    /// Returns the most units of all keys together.
    pub(super) fn whole(&self) -> u64 {
        self.units.peak
    }

    /// Returns the most requests a second, as the mean of a window.
    pub(super) fn requests_per_second(&self) -> f64 {
        self.requests.peak as f64 / self.window().as_secs_f64()
    }

    /// Returns the most keys with a request in the same window.
    pub(super) fn active_keys(&self) -> u64 {
        self.active.most
    }
}

/// The sum of the window that ends now, and its largest value.
#[derive(Debug, Clone)]
struct Trailing {
    window: u64,
    /// The ends of parts of the window, and their units.
    parts: VecDeque<(u64, u64)>,
    sum: u64,
    peak: u64,
}

impl Trailing {
    fn new(window: u64) -> Self {
        Self { window, parts: VecDeque::new(), sum: 0, peak: 0 }
    }

    fn add(&mut self, at: u64, units: u64) {
        while let Some((end, old)) = self.parts.front().copied()
            && end + self.window <= at
        {
            self.sum -= old;
            self.parts.pop_front();
        }
        let end = at.next_multiple_of((self.window / RESOLUTION).max(1));
        match self.parts.back_mut().filter(|part| part.0 == end) {
            Some((_, part)) => *part += units,
            None => self.parts.push_back((end, units)),
        }
        self.sum += units;
        self.peak = self.peak.max(self.sum);
    }
}

/// The keys with a request in the same window, from one multiple of the window to the next.
#[derive(Debug, Default)]
struct Active {
    /// For each key, the number of the window of its last request.
    last: Vec<u64>,
    window: u64,
    keys: u64,
    most: u64,
}

impl Active {
    fn add(&mut self, key: u32, window: u64) {
        if window != self.window {
            (self.window, self.keys) = (window, 0);
        }
        let last = at(&mut self.last, key);
        if *last != window {
            *last = window;
            self.keys += 1;
            self.most = self.most.max(self.keys);
        }
    }
}

/// Returns the number of a key, which is 0 at first.
fn at(numbers: &mut Vec<u64>, key: u32) -> &mut u64 {
    let index = key as usize;
    if numbers.len() <= index {
        numbers.resize(index + 1, 0);
    }
    &mut numbers[index]
}

#[cfg(test)]
mod tests {
    use plimsoll::Key;

    use super::*;

    #[test]
    fn a_peak_is_the_largest_sum_of_any_window() {
        let window = Duration::from_secs(10);
        let mut peaks = Peaks::new(window, "peaks").unwrap();
        let simulation = Simulation::new();
        // Two keys in turn, each 3 units at the seconds 5, 12, 14 and 15.
        for second in [5, 12, 14, 15] {
            for number in 0..2 {
                let key = Key::from(u64::from(number));
                let at = 1_000_000_000 + second * 1_000_000;
                peaks.record(&simulation, &Request { at, key, number, cost: 3 }).unwrap();
            }
        }
        assert_eq!((peaks.sorted(), peaks.whole()), (vec![9, 9], 18));
        assert_eq!((peaks.active_keys(), peaks.requests_per_second()), (2, 0.6));
    }
}
