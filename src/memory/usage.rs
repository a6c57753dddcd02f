//! The usage of a memory store: what its shards hold together, and what they had to forget.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::{algorithm::MemoryBudget, store::MemoryStats};

/// The counters behind [`MemoryStats`], and the bounds of the store.
///
/// They change when a key is added or removed, or a log grows. Each check reads other fields of the
/// store, so the counters have a pair of cache lines of their own: some processors fetch lines in pairs.
/// On a shared line, threads that add keys would halve the speed of the checks of others
/// (`benches/scaling.rs`).
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Usage {
    keys: AtomicUsize,
    max_keys: usize,
    bytes: AtomicUsize,
    max_bytes: usize,
    evicted: AtomicU64,
    forgiven: AtomicU64,
}

impl Usage {
    pub(super) fn new(max_keys: usize, max_bytes: usize) -> Self {
        Self {
            keys: AtomicUsize::new(0),
            max_keys: max_keys.max(1),
            bytes: AtomicUsize::new(0),
            max_bytes,
            evicted: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
        }
    }

    /// Returns the current figures.
    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.keys.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            evicted: self.evicted.load(Relaxed),
            forgiven: self.forgiven.load(Relaxed),
        }
    }

    /// Returns the maximum number of keys, and of bytes.
    pub(super) fn bounds(&self) -> (usize, usize) {
        (self.max_keys, self.max_bytes)
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Returns whether there is room for `new_keys` more keys.
    pub(super) fn has_room_for_keys(&self, new_keys: usize) -> bool {
        self.keys.load(Relaxed) + new_keys <= self.max_keys
    }

    pub(super) fn add_key(&self) {
        self.keys.fetch_add(1, Relaxed);
    }

    pub(super) fn remove_key(&self) {
        self.keys.fetch_sub(1, Relaxed);
    }

    /// Records that something has grown or shrunk from `before` to `after` bytes.
    pub(super) fn resize(&self, before: usize, after: usize) {
        if after > before {
            self.bytes.fetch_add(after - before, Relaxed);
        } else if before > after {
            self.bytes.fetch_sub(before - after, Relaxed);
        }
    }

    /// Counts the eviction of a key that had spent `units`.
    pub(super) fn count_eviction(&self, units: u64) {
        self.evicted.fetch_add(1, Relaxed);
        self.forgiven.fetch_add(units, Relaxed);
    }
}

impl MemoryBudget for Usage {
    fn allows(&self, bytes: usize) -> bool {
        self.bytes.load(Relaxed) + bytes <= self.max_bytes
    }

    fn resized(&self, before: usize, after: usize) {
        self.resize(before, after);
    }
}

/// Returns a size as text: `1000000 keys, 256 MiB`.
pub(crate) fn size_text(keys: usize, bytes: usize) -> String {
    format!("{keys} keys, {} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size_text(1_000_000, 256 << 20), "1000000 keys, 256 MiB");
        assert_eq!(size_text(2, 5 << 17), "2 keys, 0.625 MiB");
    }
}
