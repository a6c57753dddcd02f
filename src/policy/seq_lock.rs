//! A lock whose readers take nothing: they read again if a writer was at work. And the quota of a policy,
//! which is read under it.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU64, Ordering, fence},
};

use crate::{quota::Quota, sync::Mutex};

/// A sequence lock: around atomics that are read together, each of them relaxed.
///
/// A reader writes nothing, so readers on many threads do not slow each other down. The writer owns a
/// `T`, which readers do not see.
#[derive(Debug, Default)]
pub(super) struct SeqLock<T> {
    /// Twice the number of changes, plus 1 during a change.
    sequence: AtomicU64,
    /// Held during a change.
    writer: Mutex<T>,
}

/// The only writer.
#[derive(Debug)]
pub(super) struct Writer<'l, T> {
    sequence: &'l AtomicU64,
    pub(super) owned: MutexGuard<'l, T>,
}

impl<T> SeqLock<T> {
    /// Returns the result of a `read` during which nothing changed. It may be called several times, and
    /// see half of a change.
    #[inline]
    pub(super) fn read<R>(&self, read: impl Fn() -> R) -> R {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let value = read();
            // Everything is read before the sequence is read again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.sequence.load(Ordering::Relaxed) {
                return value;
            }
            self.wait_for_writer();
        }
    }

    /// Waits until there is no other writer.
    pub(super) fn writer(&self) -> Writer<'_, T> {
        let owned = self.writer.lock();
        Writer { sequence: &self.sequence, owned }
    }

    /// Returns the number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) / 2
    }

    /// Blocks until the current change is complete. Spinning would waste time while the writing
    /// thread is not scheduled.
    #[cold]
    fn wait_for_writer(&self) {
        drop(self.writer.lock());
    }
}

impl<T> Writer<'_, T> {
    /// Makes one change, which readers see as a whole. It must not panic.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut T)) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // The sequence is odd before the first word changes.
        fence(Ordering::Release);
        change(&mut self.owned);
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

/// A quota that is read without a lock while it is replaced.
#[derive(Debug)]
pub(super) struct LiveQuota {
    lock: SeqLock<()>,
    words: [AtomicU64; Quota::WORDS],
}

impl LiveQuota {
    pub(super) fn new(quota: Quota) -> Self {
        Self { lock: SeqLock::default(), words: quota.to_words().map(AtomicU64::new) }
    }

    #[inline]
    pub(super) fn load(&self) -> Quota {
        let load = || self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        Quota::from_words(self.lock.read(load))
    }

    pub(super) fn store(&self, quota: Quota) {
        self.lock.writer().change(|()| {
            for (word, new) in self.words.iter().zip(quota.to_words()) {
                word.store(new, Ordering::Relaxed);
            }
        });
    }

    /// Returns the number of changes.
    pub(super) fn version(&self) -> u64 {
        self.lock.changes()
    }
}
