//! A quota that many threads read and few change.
//!
//! A sequence lock: a reader writes nothing, so readers do not contend, and a reader that overlaps
//! with a change reads again. The words are atomics, and a reader discards words of which some may
//! be older than others before it makes a [`Quota`] of them.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering, fence},
};

use crate::quota::Quota;

#[derive(Debug)]
pub(super) struct LiveQuota {
    /// Twice the number of changes, plus 1 during a change.
    sequence: AtomicU64,
    words: [AtomicU64; Quota::WORDS],
    /// Held during a change.
    writer: Mutex<()>,
}

impl LiveQuota {
    pub(super) fn new(quota: Quota) -> Self {
        let words = quota.to_words().map(AtomicU64::new);
        Self { sequence: AtomicU64::new(0), words, writer: Mutex::new(()) }
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
            self.wait_for_writer();
        }
    }

    pub(super) fn store(&self, quota: Quota) {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // The sequence is odd before the first word changes.
        fence(Ordering::Release);
        for (word, new) in self.words.iter().zip(quota.to_words()) {
            word.store(new, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Returns the number of changes.
    pub(super) fn version(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) / 2
    }

    /// Blocks until the current change is complete. Spinning would waste time while the writing
    /// thread is not scheduled.
    #[cold]
    fn wait_for_writer(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
