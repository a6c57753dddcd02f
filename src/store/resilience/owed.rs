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
pub(super) struct Owed(Mutex<HashMap<(u64, Key), Debt>>);

#[derive(Debug)]
pub(super) struct Debt {
    charge: Charge<'static>,
    units: u64,
    /// When the last of them was admitted.
    time: Timestamp,
}

impl Debt {
    pub(super) fn charge(&self) -> Charge<'static> {
        self.charge.clone().again(self.units)
    }
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(super) fn add(&self, charge: &Charge<'_>, units: u64, time: Timestamp) {
        let mut debts = self.lock();
        let name = (charge.policy().id(), *charge.key());
        if debts.len() >= MOST && !debts.contains_key(&name) {
            return;
        }
        let debt = debts.entry(name).or_insert_with(|| Debt {
            charge: charge.clone().into_owned(),
            units: 0,
            time,
        });
        debt.units = debt.units.saturating_add(units);
        debt.time = debt.time.max(time);
    }

    /// Units that were given back.
    pub(super) fn remove(&self, charge: &Charge<'_>, units: u64) {
        let mut debts = self.lock();
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
        let mut debts = self.lock();
        let now = now.as_micros();
        let matters = |debt: &Debt| {
            now < debt.time.as_micros() + debt.charge.quota_in_force().window_micros()
        };
        debts.retain(|_, debt| matters(debt));
        let names: Vec<_> = debts.keys().take(most).copied().collect();
        names.iter().filter_map(|name| debts.remove(name)).collect()
    }

    /// Puts back what was not charged after all.
    pub(super) fn put_back(&self, debts: Vec<Debt>) {
        for Debt { charge, units, time } in debts {
            self.add(&charge, units, time);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(u64, Key), Debt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
