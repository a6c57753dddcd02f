//! A table of values by the names of policies, which all requests read.

use std::sync::{Mutex, OnceLock, PoisonError};

/// Values by the names of policies. Names are added and never removed, so a reader takes no lock and counts
/// no reference: it looks at one or two slots.
#[derive(Debug)]
pub(crate) struct ByName<T> {
    /// At least twice as many slots as names, so that each search ends at an empty one.
    slots: Box<[OnceLock<Box<Named<T>>>]>,
    max: usize,
    /// The number of names. The lock is held while one is added.
    names: Mutex<usize>,
    /// Set when there are `max` names.
    is_full: OnceLock<()>,
}

#[derive(Debug)]
struct Named<T> {
    name: String,
    value: T,
}

impl<T> ByName<T> {
    /// Creates a table with room for `max` names.
    pub(crate) fn new(max: usize) -> Self {
        let slots = (2 * max.max(1)).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            max,
            names: Mutex::default(),
            is_full: OnceLock::new(),
        }
    }

    /// Returns the value of a name.
    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.slots_from(name)
            .map_while(|slot| slot.get())
            .find(|named| named.name == name)
            .map(|named| &named.value)
    }

    /// Returns the value of a name, which is created if there is none. Returns `None` if there are
    /// [`max`](Self::new) other names.
    #[inline]
    pub(crate) fn get_or_add(&self, name: &str, new: impl FnOnce() -> T) -> Option<&T> {
        self.get(name).or_else(|| self.add(name, new))
    }

    /// Returns all names with their values, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let named = self.slots.iter().filter_map(OnceLock::get);
        named.map(|named| (named.name.as_str(), &named.value))
    }

    #[cold]
    fn add(&self, name: &str, new: impl FnOnce() -> T) -> Option<&T> {
        if self.is_full.get().is_some() {
            return None;
        }
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if *names < self.max && self.get(name).is_none() {
            let slot = self.slots_from(name).find(|slot| slot.get().is_none())?;
            slot.get_or_init(|| Box::new(Named { name: name.to_owned(), value: new() }));
            *names += 1;
        }
        if *names == self.max {
            self.is_full.get_or_init(|| ());
        }
        drop(names);
        self.get(name)
    }

    /// Returns all slots, from the one on that the name is in if there is room.
    #[inline]
    fn slots_from(&self, name: &str) -> impl Iterator<Item = &OnceLock<Box<Named<T>>>> {
        let (first, mask) = (hash(name), self.slots.len() - 1);
        (0..=mask).map(move |step| &self.slots[first.wrapping_add(step) & mask])
    }
}

/// Returns a hash of a name. It has no secret, because clients do not choose the names of policies.
#[inline]
fn hash(name: &str) -> usize {
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    };
    let (words, rest) = name.as_bytes().as_chunks();
    let rest = rest.iter().fold(name.len() as u64, |word, byte| word << 8 | u64::from(*byte));
    let hash = words.iter().fold(rest, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    mix(hash, 0) as usize
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn each_name_has_one_value_whoever_adds_it_first() {
        let (table, created) = (ByName::new(100), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..100_usize {
                        let name = format!("policy-{number}");
                        let new = || created.fetch_add(1, Ordering::Relaxed);
                        assert!(table.get_or_add(&name, new).is_some());
                        assert_eq!(table.get(&name), table.get_or_add(&name, || usize::MAX));
                    }
                });
            }
        });
        assert_eq!(created.into_inner(), 100);
        let names: HashSet<_> = table.iter().map(|(name, _)| name.to_owned()).collect();
        let values: HashSet<_> = table.iter().map(|(_, value)| *value).collect();
        assert_eq!((names.len(), values.len()), (100, 100));
    }

    #[test]
    fn a_full_table_takes_no_other_name() {
        let table = ByName::new(3);
        for name in ["a", "b", "c"] {
            assert_eq!(table.get_or_add(name, || name), Some(&name));
        }
        assert_eq!(table.get_or_add("d", || "d"), None);
        assert_eq!((table.get("d"), table.get(""), table.iter().count()), (None, None, 3));
        assert_eq!(table.get_or_add("b", || "other"), Some(&"b"));
    }

    #[test]
    fn similar_names_are_spread() {
        let names = (0..1_000).map(|number| format!("p{number}"));
        let long = (0..1_000).map(|number| format!("{number:064}"));
        for names in [names.collect::<Vec<_>>(), long.collect()] {
            let places: HashSet<_> = names.iter().map(|name| hash(name) & 2_047).collect();
            // 1,000 random numbers have about 791 different values of 2,048.
            assert!(places.len() > 600, "{}", places.len());
        }
    }
}
