//! The search for a policy whose keys never come back.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{key::Key, sync::Mutex};

/// A watch over the keys of the first charges under one policy. If almost no key is charged twice, a
/// client may be inventing them. Without the feature `tracing`, it is empty.
///
/// It looks at one key in 16, chosen by the hash of the key. So a key that comes back is seen again
/// each time, and about 620 hashes are enough. They exist only during the search, and only after the first
/// `SKIPPED` charges, so a policy that is created for one request has none.
#[derive(Debug, Default)]
pub(crate) struct KeyWatch {
    has_ended: AtomicBool,
    sample: Mutex<Sample>,
}

/// The number of charges after which a policy is judged.
const CHARGES: u32 = 10_000;

/// The charges before the sample begins.
const SKIPPED: u32 = 100;

/// The sample contains one key in this many.
const ONE_OF: u64 = 16;

/// The smallest number of charges in a sample that is judged.
const MIN_SAMPLED: u32 = 400;

#[derive(Debug, Default)]
struct Sample {
    charges: u32,
    /// Charges to a key of the sample.
    sampled: u32,
    /// Charges to a key of the sample that was not seen before.
    new: u32,
    /// The hashes of the keys that were seen.
    seen: HashSet<u64>,
}

impl KeyWatch {
    /// Returns whether charges are still recorded. It reads one atomic.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        cfg!(feature = "tracing") && !self.has_ended.load(Relaxed)
    }

    /// Records the key of a charge. Returns the number of charges, once, if almost all of them had a
    /// key that was not seen before.
    #[cold]
    pub(crate) fn record(&self, key: &Key) -> Option<u32> {
        // If another request holds the lock, the charge is not counted, so that no request waits.
        let mut sample = self.sample.try_lock().filter(|_| self.is_active())?;
        sample.record(key);
        if sample.charges < CHARGES {
            return None;
        }
        self.has_ended.store(true, Relaxed);
        let is_suspicious = sample.is_suspicious();
        *sample = Sample::default();
        is_suspicious.then_some(CHARGES)
    }
}

impl Sample {
    fn record(&mut self, key: &Key) {
        self.charges += 1;
        if self.charges <= SKIPPED {
            return;
        }
        // The hash has no secret: a client that chooses its keys so as not to be seen here gains a
        // missing line in a log, and nothing else.
        let [hash, _] = key.digest_keyed([0, 0]);
        if !hash.is_multiple_of(ONE_OF) {
            return;
        }
        self.sampled += 1;
        self.new += u32::from(self.seen.insert(hash));
    }

    /// Returns whether at least 9 of 10 charges had a key that was not seen before.
    fn is_suspicious(&self) -> bool {
        self.sampled >= MIN_SAMPLED && self.new * 10 >= self.sampled * 9
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    /// Returns the result of the watch after 10,000 charges to the keys that `key` returns.
    fn judged(key: impl Fn(u64) -> u64) -> Option<u32> {
        let watch = KeyWatch::default();
        let verdicts: Vec<_> =
            (0..u64::from(CHARGES)).filter_map(|n| watch.record(&Key::from(key(n)))).collect();
        assert!(!watch.is_active() && watch.record(&Key::from(0_u64)).is_none(), "once");
        assert!(watch.sample.lock().seen.is_empty(), "the hashes are gone");
        verdicts.first().copied()
    }

    #[test]
    fn keys_that_never_come_back_are_suspicious() {
        assert_eq!(judged(|number| number), Some(10_000));
        assert_eq!(judged(|number| number << 40), Some(10_000));
    }

    #[test]
    fn keys_that_come_back_are_not() {
        for clients in [1, 2, 16, 100, 1_000, 5_000, 8_000] {
            assert_eq!(judged(|number| number % clients), None, "{clients} clients in turns");
        }
        assert_eq!(judged(|number| number / 2), None, "each comes twice");
        assert_eq!(judged(|number| if number % 4 == 0 { 7 } else { number / 2 }), None);
    }

    #[test]
    fn a_policy_of_few_charges_has_no_hashes() {
        let watch = KeyWatch::default();
        (0..u64::from(SKIPPED))
            .for_each(|number| assert!(watch.record(&Key::from(number)).is_none()));
        assert!(watch.sample.lock().seen.is_empty());
    }
}
