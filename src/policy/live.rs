//! A quota that many threads read and few change.
//!
//! A sequence lock: readers write nothing, so they do not disturb each other, and a reader that
//! met a change reads again. The words are atomics; what a reader might have read half of is
//! thrown away before it is taken for a quota.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering, fence},
};

use crate::quota::Quota;

#[derive(Debug)]
pub(super) struct Live {
    /// Twice the number of changes; odd while one is being made.
    sequence: AtomicU64,
    words: [AtomicU64; Quota::WORDS],
    /// Held while changing.
    change: Mutex<()>,
}

impl Live {
    pub(super) fn new(quota: Quota) -> Self {
        let words = quota.to_words().map(AtomicU64::new);
        Self { sequence: AtomicU64::new(0), words, change: Mutex::new(()) }
    }

    #[inline]
    pub(super) fn load(&self) -> Quota {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            // The words are read before the sequence is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.sequence.load(Ordering::Relaxed) {
                return Quota::from_words(words);
            }
            self.wait();
        }
    }

    pub(super) fn store(&self, quota: Quota) {
        let _changing = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // The sequence is odd before the first word changes.
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(quota.to_words()) {
            word.store(new, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    pub(super) fn version(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) / 2
    }

    /// Waits for whoever is changing the quota, who may not be running just now.
    #[cold]
    fn wait(&self) {
        drop(self.change.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
