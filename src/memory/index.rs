//! The positions of entries in a shard.
//!
//! The index keeps one byte of each id, its tag, which rules out nearly all other entries. The tags
//! lie beside the lock, so that a search accesses memory once more: for the entry itself.

use hashbrown::HashTable;

/// The number of words. A word holds eight tags.
const WORDS: usize = 3;
/// The number of entries that have a tag. A shard rarely holds more.
const TAGGED: usize = 8 * WORDS;

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

#[derive(Debug, Default)]
pub(super) struct Index {
    tags: [u64; WORDS],
    /// The entries at [`TAGGED`] and beyond.
    others: Option<Box<HashTable<u16>>>,
}

impl Index {
    /// Returns the position of this id among `len` entries. `is` compares it with the id at a
    /// position.
    #[inline(always)]
    pub(super) fn find(&self, id: u64, len: usize, is: impl Fn(usize) -> bool) -> Option<usize> {
        let wanted = u64::from(tag(id)) * ONES;
        for (first, word) in (0..len).step_by(8).zip(&self.tags) {
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
        let found = self.others.as_ref()?.find(id, |&at| is(at.into()))?;
        Some((*found).into())
    }

    /// Records that this id is at `position`. `id_at` returns the ids of the other entries.
    pub(super) fn put(&mut self, position: usize, id: u64, id_at: impl Fn(usize) -> u64) {
        if position < TAGGED {
            let (word, shift) = (&mut self.tags[position / 8], position % 8 * 8);
            *word = *word & !(0xff << shift) | u64::from(tag(id)) << shift;
        } else {
            let others = self.others.get_or_insert_default();
            others.insert_unique(id, position as u16, |&at| id_at(at.into()));
        }
    }

    /// Removes the id at `position`. Its tag may stay: searches end at the number of entries, and
    /// [`put`](Self::put) replaces it.
    pub(super) fn remove(&mut self, position: usize, id: u64) {
        let Some(others) = &mut self.others else { return };
        let is = |&at: &u16| usize::from(at) == position;
        if let Ok(found) = others.find_entry(id, is) {
            found.remove();
        }
        if others.is_empty() {
            self.others = None;
        }
    }

    /// Frees unused memory. `id_at` returns the ids of the entries.
    pub(super) fn shrink(&mut self, id_at: impl Fn(usize) -> u64) {
        if let Some(others) = &mut self.others {
            others.shrink_to(others.len() * 2, |&at| id_at(at.into()));
        }
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |table: &HashTable<u16>| size_of_val(table) + table.allocation_size();
        self.others.as_deref().map_or(0, bytes)
    }
}

fn tag(id: u64) -> u8 {
    (id >> 56) as u8
}
