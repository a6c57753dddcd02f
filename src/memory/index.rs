//! The positions of entries in a shard.
//!
//! The index keeps one byte of each id, its tag, which rules out nearly all other entries. The tags of a usual shard
//! lie beside the lock, so that a search accesses memory once more: for the entry itself.

use smallvec::SmallVec;

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Words of eight tags each. A shard rarely holds more than 24 entries.
#[derive(Debug, Default)]
pub(super) struct Index(SmallVec<[u64; 3]>);

impl Index {
    /// Returns the position of this id among `len` entries. `is` compares it with the id at a
    /// position.
    pub(super) fn find(&self, id: u64, len: usize, is: impl Fn(usize) -> bool) -> Option<usize> {
        let wanted = u64::from(tag(id)) * ONES;
        for (first, word) in (0..len).step_by(8).zip(&self.0) {
            let differing = word ^ wanted;
            // Sets the high bit of each byte that is zero, and of some above such a byte.
            let mut equal = differing.wrapping_sub(ONES) & !differing & HIGHS;
            while equal != 0 {
                let position = first + equal.trailing_zeros() as usize / 8;
                if position < len && is(position) {
                    return Some(position);
                }
                equal &= equal - 1;
            }
        }
        None
    }

    /// Records that this id is at `position`, which is at most one beyond the last. The tag of an entry that was
    /// removed may stay, because searches end at the number of entries.
    pub(super) fn put(&mut self, position: usize, id: u64) {
        let index = position / 8;
        let shift = position % 8 * 8;
        if index == self.0.len() {
            self.0.push(0);
        }
        self.0[index] = self.0[index] & !(0xff << shift) | u64::from(tag(id)) << shift;
    }

    /// Frees the memory that `len` entries do not need.
    pub(super) fn shrink(&mut self, len: usize) {
        self.0.truncate(len.div_ceil(8));
        self.0.shrink_to_fit();
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        if self.0.spilled() { size_of::<u64>() * self.0.capacity() } else { 0 }
    }
}

fn tag(id: u64) -> u8 {
    (id >> 56) as u8
}
