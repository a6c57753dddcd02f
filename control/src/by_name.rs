//! A table of values by the names of policies, which all requests read.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;

/// Values by the names of policies. Names are added and never removed.
#[derive(Debug)]
pub(crate) struct ByName<T> {
    values: ArcSwap<HashMap<String, Arc<T>>>,
    max: usize,
}

impl<T> ByName<T> {
    /// Creates a table with room for `max` names.
    pub(crate) fn new(max: usize) -> Self {
        Self { values: ArcSwap::default(), max }
    }

    /// Returns the value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.values.load().get(name).cloned()
    }

    /// Returns what `read` makes of the value of a name, which is created if there is none. Returns `None` if there
    /// are [`max`](Self::new) other names.
    pub(crate) fn with<R>(
        &self,
        name: &str,
        new: impl FnOnce() -> T,
        read: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let values = self.values.load();
        if let Some(value) = values.get(name) {
            return Some(read(value));
        }
        if values.len() >= self.max {
            return None;
        }
        let new = Arc::new(new());
        self.values.rcu(|values| {
            let mut values = HashMap::clone(values);
            if values.len() < self.max {
                values.entry(name.to_owned()).or_insert_with(|| Arc::clone(&new));
            }
            values
        });
        self.get(name).map(|value| read(&value))
    }

    /// Returns all names with their values, in no order.
    pub(crate) fn all(&self) -> Arc<HashMap<String, Arc<T>>> {
        self.values.load_full()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn each_name_has_one_value_although_threads_race_to_add_it() {
        let table = ByName::<AtomicUsize>::new(100);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..110_usize {
                        let name = format!("policy-{number}");
                        let count = |value: &AtomicUsize| value.fetch_add(1, Ordering::Relaxed);
                        let _ = table.with(&name, AtomicUsize::default, count);
                    }
                });
            }
        });
        let all = table.all();
        let counts: Vec<_> = all.values().map(|value| value.load(Ordering::Relaxed)).collect();
        assert_eq!((counts.len(), counts.iter().sum::<usize>()), (100, 400));
        assert_eq!(table.with("other", AtomicUsize::default, |_| ()), None);
        assert!(table.get("other").is_none());
    }
}
