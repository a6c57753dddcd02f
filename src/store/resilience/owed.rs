//! What was admitted without the store, and is to be charged to it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{charge::Charge, clock::Timestamp, key::Key};

/// The most keys remembered. Of more, the units are forgotten: the bound then grows by them.
const MOST: usize = 100_000;

/// Units by policy and key.
#[derive(Debug, Default)]
pub(super) struct Owed(Mutex<Debts>);

#[derive(Debug, Default)]
struct Debts {
    by_name: HashMap<Name, Debt>,
    /// Whose turn it is to be taken out: a list, because to look for them each time costs as much
    /// as there are places.
    turns: Vec<Name>,
}

type Name = (u64, Key);

#[derive(Debug)]
pub(super) struct Debt {
    charge: Charge<'static>,
    units: u64,
    /// When the first and the last of them were admitted.
    first: Timestamp,
    last: Timestamp,
}

impl Debt {
    pub(super) fn charge(&self) -> Charge<'static> {
        self.charge.clone().again(self.units)
    }

    /// Whether all of it still counts: its window has not passed since the first unit.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        self.counts(self.first, now)
    }

    fn counts(&self, since: Timestamp, now: Timestamp) -> bool {
        now.as_micros() < since.as_micros() + self.charge.quota_in_force().window_micros()
    }
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.lock().by_name.is_empty()
    }

    pub(super) fn add(&self, charge: &Charge<'_>, units: u64, time: Timestamp) {
        self.lock().add(charge, units, time, time);
    }

    /// Units that were given back.
    pub(super) fn remove(&self, charge: &Charge<'_>, units: u64) {
        let mut debts = self.lock();
        let debts = &mut debts.by_name;
        let name = (charge.policy().id(), *charge.key());
        if let Some(debt) = debts.get_mut(&name) {
            debt.units = debt.units.saturating_sub(units);
            if debt.units == 0 {
                debts.remove(&name);
            }
        }
    }

    /// Takes out some debts that still matter.
    pub(super) fn take(&self, most: usize, now: Timestamp) -> Vec<Debt> {
        let Debts { by_name, turns } = &mut *self.lock();
        if turns.is_empty() {
            *turns = by_name.keys().copied().collect();
        }
        let matters = |debt: &Debt| debt.counts(debt.last, now);
        let next = || turns.pop().map(|name| by_name.remove(&name));
        std::iter::from_fn(next).flatten().filter(matters).take(most).collect()
    }

    /// Puts back what was not charged after all.
    pub(super) fn put_back(&self, debts: Vec<Debt>) {
        let mut all = self.lock();
        for Debt { charge, units, first, last } in debts {
            all.add(&charge, units, first, last);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Debts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debts {
    fn add(&mut self, charge: &Charge<'_>, units: u64, first: Timestamp, last: Timestamp) {
        let name = (charge.policy().id(), *charge.key());
        if self.by_name.len() >= MOST && !self.by_name.contains_key(&name) {
            return;
        }
        let debt = self.by_name.entry(name).or_insert_with(|| Debt {
            charge: charge.clone().into_owned(),
            units: 0,
            first,
            last,
        });
        debt.units = debt.units.saturating_add(units);
        debt.first = debt.first.min(first);
        debt.last = debt.last.max(last);
    }
}
