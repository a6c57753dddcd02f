//! The backlog agrees with a map, bounds what it replays, and evicts what has expired first.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{key::Key, policy::Policy, seed};

const SECOND: u64 = 1_000_000;

#[derive(Debug, Clone)]
enum BacklogStep {
    Add(u64, u64),
    Remove(u64, u64),
    Take(usize),
    Reset(u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<BacklogStep>> {
    // Few names in few shards, so that they meet.
    let name = || (0..3_u64, 0..5_u64).prop_map(|(shard, low)| shard << 32 | low);
    let step = prop_oneof![
        6 => (name(), 1..4_u64).prop_map(|(name, units)| BacklogStep::Add(name, units)),
        3 => (name(), 1..6_u64).prop_map(|(name, units)| BacklogStep::Remove(name, units)),
        3 => (0..3_usize).prop_map(BacklogStep::Take),
        1 => name().prop_map(BacklogStep::Reset),
        1 => (0..2 * SECOND / 3).prop_map(BacklogStep::Pass),
    ];
    prop::collection::vec(step, 1..200)
}

fn time(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

#[test]
fn is_a_map_of_units_added_and_not_removed() {
    seed::property("backlog", ProptestConfig::default(), steps(), |steps| {
        let policy = Policy::new("p", "10/s").unwrap();
        let wide = |name: u64| u128::from(name >> 32) << 64 | u128::from(name & 0xFFFF_FFFF);
        let (backlog, mut model) = (Backlog::new(), BTreeMap::<u64, u64>::new());
        let mut now = 0;
        for step in steps {
            match step {
                BacklogStep::Add(name, units) => {
                    backlog.add(wide(name), &policy.charge(name, 1), units, time(now));
                    *model.entry(name).or_default() += units;
                }
                BacklogStep::Remove(name, units) => {
                    let entry = model.get(&name).copied().unwrap_or(0);
                    prop_assert_eq!(backlog.remove(wide(name), units), entry.min(units));
                    model.entry(name).and_modify(|entry| *entry -= units.min(*entry));
                }
                // The charges of the names that are even are rejected.
                BacklogStep::Take(shard) => {
                    let is_even = |charge: &Charge<'_>| {
                        (0..5)
                            .step_by(2)
                            .any(|low| *charge.key() == Key::from((shard as u64) << 32 | low))
                    };
                    let may_go = |name: u64| name >> 32 == shard as u64 && name % 2 == 1;
                    let taken = backlog.take(shard, 2, is_even);
                    let expected = model.keys().filter(|name| may_go(**name));
                    prop_assert_eq!(taken.len(), expected.count().min(2));
                    for (charge, _) in taken {
                        let names = model.keys().filter(|name| Key::from(**name) == *charge.key());
                        let name = *names.clone().next().expect("it was there");
                        prop_assert!(may_go(name));
                        prop_assert_eq!(model.remove(&name), Some(charge.cost()));
                    }
                }
                BacklogStep::Reset(name) => {
                    backlog.reset(wide(name));
                    model.remove(&name);
                }
                BacklogStep::Pass(by) => now += by,
            }
            model.retain(|_, entry| *entry > 0);
            let len: usize = backlog.shards.iter().map(|it| it.0.lock().table.len()).sum();
            prop_assert_eq!(model.len(), len);
            prop_assert_eq!(backlog.len.load(Ordering::Relaxed), len);
            prop_assert_eq!(backlog.is_empty(), model.is_empty());
        }
        Ok(())
    });
}

#[test]
fn expired_entries_are_evicted_first() {
    let policy = Policy::new("p", "10/s").unwrap();
    let backlog = Backlog::with_max_shard_len(3);
    let add = |name: u128, micros| backlog.add(name, &policy.charge("k", 1), 1, time(micros));
    (0..5).for_each(|name| add(name, name as u64));
    assert_eq!(backlog.len.load(Ordering::Relaxed), 3);
    add(1, 10);
    add(6, SECOND - 1);
    assert_eq!(backlog.len.load(Ordering::Relaxed), 3, "it was searched just before");
    add(1, SECOND + SECOND / 2);
    add(7, 2 * SECOND);
    let entries = backlog.shards[0].0.lock();
    let mut left: Vec<u128> = entries.table.iter().map(|entry| entry.name).collect();
    left.sort_unstable();
    assert_eq!(left, [1, 7]);
}
