//! The requests of a log as a limit sees them: time, key and cost.

use std::collections::HashMap;

use plimsoll::Key;

use super::log::{CostExpression, Entry, KeyExpression};

/// A request with its key and its cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// In microseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) key: Key,
    /// The number of the key, from 0.
    pub(super) number: u32,
    pub(super) cost: u64,
}

/// The numbers of keys, in the order of their first requests. A key takes about 140 bytes here.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<Key, u32>);

impl Numbers {
    pub(super) fn of(&mut self, key: Key) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(key).or_insert(next)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Finds key and cost of the requests of one pass.
pub(super) struct Requests<'r> {
    key: &'r KeyExpression,
    cost: &'r CostExpression,
    numbers: &'r mut Numbers,
    /// The requests that lack the key, and are not judged.
    pub(super) without_key: u64,
    /// The requests that lack the cost, and are not judged.
    pub(super) without_cost: u64,
}

impl<'r> Requests<'r> {
    pub(super) fn new(
        key: &'r KeyExpression,
        cost: &'r CostExpression,
        numbers: &'r mut Numbers,
    ) -> Self {
        Self { key, cost, numbers, without_key: 0, without_cost: 0 }
    }

    /// Returns the request of an entry, or `None` if it lacks the key or the cost.
    pub(super) fn request(&mut self, entry: &Entry) -> Option<Request> {
        let Some(key) = self.key.key(entry) else {
            self.without_key += 1;
            return None;
        };
        let Some(cost) = self.cost.cost(entry) else {
            self.without_cost += 1;
            return None;
        };
        Some(Request { at: entry.at(), key, number: self.numbers.of(key), cost })
    }
}
