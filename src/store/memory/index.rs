//! Where the keys of a shard lie among its entries.
//!
//! A byte of each digest, its tag, rules out nearly all others. The tags lie beside the lock, so
//! that looking for a key takes one access to memory beyond it: to the key's own entry.

use hashbrown::HashTable;

use super::shard::Digest;

/// Words of eight tags.
const WORDS: usize = 10;
/// How many entries have a tag: nearly always all of a shard.
const TAGGED: usize = 8 * WORDS;

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

#[derive(Debug, Default)]
pub(super) struct Index {
    tags: [u64; WORDS],
    /// The positions from [`TAGGED`] on.
    others: Option<Box<HashTable<u16>>>,
}

impl Index {
    /// The position of this digest among `len` entries; `is` says whether it is there.
    #[inline(always)]
    pub(super) fn find(
        &self,
        digest: Digest,
        len: usize,
        is: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let wanted = u64::from(tag(digest)) * ONES;
        for (first, word) in (0..len).step_by(8).zip(&self.tags) {
            let differing = word ^ wanted;
            // The high bit of each byte that is zero, and perhaps of some above one that is.
            let mut equal = differing.wrapping_sub(ONES) & !differing & HIGHS;
            while equal != 0 {
                let position = first + equal.trailing_zeros() as usize / 8;
                if position < len && is(position) {
                    return Some(position);
                }
                equal &= equal - 1;
            }
        }
        let found = self.others.as_ref()?.find(digest.0, |&at| is(at.into()))?;
        Some((*found).into())
    }

    /// Notes that this digest is at a position; `digest_at` knows those of the others.
    pub(super) fn put(
        &mut self,
        position: usize,
        digest: Digest,
        digest_at: impl Fn(usize) -> Digest,
    ) {
        if position < TAGGED {
            let (word, shift) = (&mut self.tags[position / 8], position % 8 * 8);
            *word = *word & !(0xff << shift) | u64::from(tag(digest)) << shift;
        } else {
            let others = self.others.get_or_insert_default();
            others.insert_unique(digest.0, position as u16, |&at| digest_at(at.into()).0);
        }
    }

    /// Forgets a position, at which this digest was. A tag may stay: nobody looks at it.
    pub(super) fn remove(&mut self, position: usize, digest: Digest) {
        let Some(others) = &mut self.others else { return };
        let is = |&at: &u16| usize::from(at) == position;
        if let Ok(found) = others.find_entry(digest.0, is) {
            found.remove();
        }
        if others.is_empty() {
            self.others = None;
        }
    }

    /// Gives back memory that is not needed any more; `digest_at` knows the digests.
    pub(super) fn shrink(&mut self, digest_at: impl Fn(usize) -> Digest) {
        if let Some(others) = &mut self.others {
            others.shrink_to(others.len() * 2, |&at| digest_at(at.into()).0);
        }
    }

    /// Bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |table: &HashTable<u16>| size_of_val(table) + table.allocation_size();
        self.others.as_deref().map_or(0, bytes)
    }
}

fn tag(digest: Digest) -> u8 {
    (digest.1 >> 56) as u8
}
