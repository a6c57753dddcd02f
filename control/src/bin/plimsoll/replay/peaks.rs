//! The busiest window of each key, and of all keys together.

use std::{collections::VecDeque, mem, time::Duration};

use super::requests::Request;

/// The number of times of a window that are kept exactly. Further times are rounded up to parts of the window.
const MAX_TIMES: usize = 10_000;

/// The most units that each key, and all keys together, have asked for in any window.
pub(super) struct Peaks {
    window: u64,
    by_key: Vec<Trailing>,
    units: Trailing,
    requests: Trailing,
    active: Active,
}

impl Peaks {
    /// Creates the peaks of a window of at least 1 microsecond.
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window: (window.as_micros() as u64).max(1),
            by_key: Vec::new(),
            units: Trailing::default(),
            requests: Trailing::default(),
            active: Active::default(),
        }
    }

    pub(super) fn window(&self) -> Duration {
        Duration::from_micros(self.window)
    }

    pub(super) fn record(&mut self, request: &Request) {
        let Request { at, number, cost, .. } = *request;
        of_key(&mut self.by_key, number).add(self.window, at, cost);
        self.units.add(self.window, at, cost);
        self.requests.add(self.window, at, 1);
        self.active.add(number, at / self.window);
    }

    /// Returns the peak of a key by its number. No window of the key has more units.
    pub(super) fn of(&self, number: u32) -> u64 {
        self.by_key.get(number as usize).map_or(0, |key| key.peak)
    }

    /// Returns the peaks of the keys that have asked for units, the smallest first.
    pub(super) fn sorted(&self) -> Vec<u64> {
        let peaks = self.by_key.iter().map(|key| key.peak);
        let mut peaks: Vec<_> = peaks.filter(|peak| *peak > 0).collect();
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

/// The sum of the window that ends now, and its largest value: 64 bytes, and 16 bytes for each further time in the
/// window.
#[derive(Debug, Default)]
struct Trailing {
    /// The last time, and its units.
    last: (u64, u64),
    /// The times before it.
    older: VecDeque<(u64, u64)>,
    sum: u64,
    peak: u64,
}

impl Trailing {
    fn add(&mut self, window: u64, at: u64, units: u64) {
        if self.last.0 + window <= at {
            *self = Self { peak: self.peak, ..Self::default() };
        }
        while let Some((time, old)) = self.older.front().copied()
            && time + window <= at
        {
            // A sum at the largest number has made the peak so, too.
            self.sum = self.sum.saturating_sub(old);
            self.older.pop_front();
        }
        let is_exact = self.older.len() < MAX_TIMES;
        let part = if is_exact { 1 } else { (window / MAX_TIMES as u64).max(1) };
        // A time that was rounded up may be later than the next one.
        let time = at.next_multiple_of(part).max(self.last.0);
        if time != self.last.0 {
            let last = mem::replace(&mut self.last, (time, 0));
            if last.1 > 0 {
                self.older.push_back(last);
            }
        }
        self.last.1 = self.last.1.saturating_add(units);
        self.sum = self.sum.saturating_add(units);
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
        let last = of_key(&mut self.last, key);
        if *last != window {
            *last = window;
            self.keys += 1;
            self.most = self.most.max(self.keys);
        }
    }
}

/// Returns the place of a key.
fn of_key<T: Default>(places: &mut Vec<T>, key: u32) -> &mut T {
    let index = key as usize;
    if places.len() <= index {
        places.resize_with(index + 1, T::default);
    }
    &mut places[index]
}

#[cfg(test)]
mod tests {
    use plimsoll::Key;

    use super::*;

    #[test]
    fn a_peak_is_the_largest_sum_of_any_window() {
        let mut peaks = Peaks::new(Duration::from_secs(10));
        // Two keys in turn, each 3 units at these seconds. From 5 to 15 it is a window, so both ends never count.
        for second in [5, 12, 14, 15] {
            for number in 0..2 {
                let key = Key::from(u64::from(number));
                let at = 1_000_000_000 + second * 1_000_000;
                peaks.record(&Request { at, key, number, cost: 3 });
            }
        }
        assert_eq!((peaks.sorted(), peaks.whole()), (vec![9, 9], 18));
        assert_eq!((peaks.active_keys(), peaks.requests_per_second()), (2, 0.6));
    }

    #[test]
    fn a_sum_beyond_the_largest_number_stays_there() {
        let mut trailing = Trailing::default();
        // At 11 two of three costs leave the window. Together they are more than the sum that was kept.
        for at in [0, 1, 10, 11] {
            trailing.add(10, 1_000 + at, u64::MAX);
        }
        assert_eq!(trailing.peak, u64::MAX);
    }

    #[test]
    fn a_peak_of_many_times_is_never_too_low() {
        let (mut trailing, window) = (Trailing::default(), 1_000_000);
        for step in 0..100_000 {
            trailing.add(window, 1 << 40 | (step * 13), 1);
        }
        let exact = window / 13 + 1;
        assert!((exact..=exact + exact / 5_000).contains(&trailing.peak), "{}", trailing.peak);
        assert!(trailing.older.len() <= 2 * MAX_TIMES);
    }
}
