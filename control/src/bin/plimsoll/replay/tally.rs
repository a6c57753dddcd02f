//! The requests that one limit has denied, by key.

use std::{cmp::Reverse, collections::HashMap};

use plimsoll::Key;

use super::requests::Request;

/// The counts of one limit. Keys that are never denied take one bit each, and denied keys about 200 bytes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) denied: u64,
    /// One bit for each key by its number: the keys that were denied.
    bits: Vec<u64>,
    keys: HashMap<u32, DeniedKey>,
}

/// The denials of one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeniedKey {
    pub(super) key: Key,
    pub(super) denied: u64,
    /// The time of the first denial since the key was last admitted.
    since: Option<u64>,
    last: u64,
    longest: u64,
}

impl DeniedKey {
    /// Returns the longest time in microseconds for which the key was shut out: from a denial to the next
    /// admission, or to its last denial if none was admitted later.
    pub(super) fn longest_shut_out(&self) -> u64 {
        self.longest.max(self.since.map_or(0, |since| self.last - since))
    }
}

impl Tally {
    pub(super) fn record(&mut self, request: &Request, is_denied: bool) {
        self.requests += 1;
        let word = request.number as usize / 64;
        let bit = 1_u64 << (request.number % 64);
        let was_denied = self.bits.get(word).is_some_and(|bits| bits & bit != 0);
        if !is_denied {
            if was_denied && let Some(key) = self.keys.get_mut(&request.number) {
                let since = key.since.take();
                key.longest = key.longest.max(since.map_or(0, |since| request.at - since));
            }
            return;
        }
        self.denied += 1;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= bit;
        let new = DeniedKey { key: request.key, denied: 0, since: None, last: 0, longest: 0 };
        let key = self.keys.entry(request.number).or_insert(new);
        key.denied += 1;
        key.since.get_or_insert(request.at);
        key.last = request.at;
    }

    pub(super) fn denied_keys(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Returns the longest time in microseconds for which a key was shut out.
    pub(super) fn longest_shut_out(&self) -> u64 {
        self.keys.values().map(DeniedKey::longest_shut_out).max().unwrap_or_default()
    }

    /// Returns the `count` keys with the most denials.
    pub(super) fn top(&self, count: usize) -> Vec<DeniedKey> {
        let mut keys: Vec<_> = self.keys.values().copied().collect();
        keys.sort_unstable_by_key(|key| (Reverse(key.denied), key.key));
        keys.truncate(count);
        keys
    }
}
