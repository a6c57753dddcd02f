//! The [decisions](Decision) that are counted, and the weight of each.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};

use plimsoll::{Decision, clock::Timestamp};

/// One in so many admitted checks is counted, and one in so many denials of a flood.
pub(super) const SAMPLE: u64 = 64;

/// The denials of a thread in one period that are all counted.
pub(super) const COUNTED: u64 = 256;

/// The length of a period is 2 to this power, in microseconds: 66 ms. So a thread counts 3,900 denials a
/// second before it begins to pick some.
const PERIOD_BITS: u32 = 16;

/// The state of a thread. All counts of a process share it: a [decision](Decision) that two of them record is
/// picked by each with the same chance.
struct Sampler {
    until_allowed: Cell<u64>,
    until_denied: Cell<u64>,
    /// The period of the last denial.
    period: Cell<u64>,
    /// The denials of the period that are still counted without a choice.
    left: Cell<u64>,
    random: Cell<u64>,
}

thread_local! {
    static SAMPLER: Sampler = const {
        Sampler {
            until_allowed: Cell::new(0),
            until_denied: Cell::new(0),
            period: Cell::new(0),
            left: Cell::new(0),
            random: Cell::new(0),
        }
    };
}

/// Returns the number of decisions that this one stands for, or `None` if it is not counted.
pub(super) fn weight(decision: &Decision<'_>) -> Option<u64> {
    SAMPLER.with(|sampler| {
        if decision.is_allowed() {
            return sampler.pick(&sampler.until_allowed);
        }
        sampler.weight_of_denied(decision.time())
    })
}

impl Sampler {
    /// Returns the weight of a denied request at `time`, if it is part of the sample. The decision has the
    /// time, so no clock is read. Only its differences matter.
    fn weight_of_denied(&self, time: Timestamp) -> Option<u64> {
        let period = time.as_micros() >> PERIOD_BITS;
        if self.period.get() != period {
            self.period.set(period);
            self.left.set(COUNTED);
        }
        match self.left.get() {
            0 => self.pick(&self.until_denied),
            left => {
                self.left.set(left - 1);
                Some(1)
            }
        }
    }

    /// Picks one in [`SAMPLE`] at random.
    fn pick(&self, until: &Cell<u64>) -> Option<u64> {
        let left = until.get();
        if left > 1 {
            until.set(left - 1);
            return None;
        }
        until.set(1 + self.random() % (2 * SAMPLE - 1));
        Some(SAMPLE)
    }

    /// Returns a random number, which need not be secret: xorshift, by Marsaglia.
    fn random(&self) -> u64 {
        let mut state = self.random.get();
        if state == 0 {
            state = RandomState::new().hash_one(()) | 1;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random.set(state);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_counted_one_by_one_until_there_are_many() {
        let period = 1 << PERIOD_BITS;
        let weight = |micros| {
            SAMPLER.with(|sampler| sampler.weight_of_denied(Timestamp::from_micros(micros)))
        };
        // A denial each millisecond for an hour.
        for millis in 0..3_600_000 {
            assert_eq!(weight(1_000_000 + millis * 1_000), Some(1));
        }
        // A flood in one period. What is picked stands for the others.
        let start = 5_000_000 * period;
        let flood = 1_000_000;
        let weights: Vec<_> = (0..flood).filter_map(|_| weight(start)).collect();
        assert!(weights.iter().take(COUNTED as usize).all(|weight| *weight == 1));
        assert!(weights.len() < 20_000, "{}", weights.len());
        // The standard deviation of the sum is about 5,000.
        let sum: u64 = weights.iter().sum();
        assert!(sum.abs_diff(flood) < 50_000, "{sum}");
        // After the flood, the next one is counted.
        assert_eq!(weight(start + period), Some(1));
        // A clock that is set back begins a period too.
        assert_eq!(weight(0), Some(1));
    }
}
