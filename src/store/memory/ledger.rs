//! What the shards of one store hold together, and what has been forgotten for want of room.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::algorithm::MemoryBudget;

#[derive(Debug)]
pub(super) struct Ledger {
    keys: AtomicUsize,
    max_keys: usize,
    bytes: AtomicUsize,
    max_bytes: usize,
    evicted: AtomicU64,
    forgiven: AtomicU64,
    overflowed: AtomicU64,
}

impl Ledger {
    pub(super) fn new(max_keys: usize, max_bytes: usize) -> Self {
        Self {
            keys: AtomicUsize::new(0),
            max_keys: max_keys.max(1),
            bytes: AtomicUsize::new(0),
            max_bytes,
            evicted: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
        }
    }

    /// Whether there is room for so many keys more.
    pub(super) fn admits(&self, newcomers: usize) -> bool {
        self.keys() + newcomers <= self.max_keys
    }

    pub(super) fn enter(&self) {
        self.keys.fetch_add(1, Relaxed);
    }

    pub(super) fn leave(&self) {
        self.keys.fetch_sub(1, Relaxed);
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Something grew or shrank from `before` to `after` bytes.
    pub(super) fn count(&self, before: usize, after: usize) {
        if after > before {
            self.bytes.fetch_add(after - before, Relaxed);
        } else if before > after {
            self.bytes.fetch_sub(before - after, Relaxed);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(super) fn forgive(&self, units: u64) {
        self.evicted.fetch_add(1, Relaxed);
        self.forgiven.fetch_add(units, Relaxed);
    }

    pub(super) fn overflow(&self) {
        self.overflowed.fetch_add(1, Relaxed);
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    pub(super) fn forgiven(&self) -> u64 {
        self.forgiven.load(Relaxed)
    }

    pub(super) fn overflowed(&self) -> u64 {
        self.overflowed.load(Relaxed)
    }
}

impl MemoryBudget for Ledger {
    fn allows(&self, bytes: usize) -> bool {
        self.bytes() + bytes <= self.max_bytes
    }

    fn resized(&self, before: usize, after: usize) {
        self.count(before, after);
    }
}
