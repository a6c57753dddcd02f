//! How the embedded store decides a check: lock, find, check all, then commit all.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    MemoryStore, nothing_spent,
    shard::{Digest, Shard},
};
use crate::{
    algorithm::{Mark, State},
    charge::Charge,
    clock::Timestamp,
    few,
    key::Key,
    standing::Standing,
    store::{Line, Verdict},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Acquire,
    Peek,
    Force,
}

/// Where the standing of one charge is.
struct Place {
    digest: Digest,
    /// Which of the locked shards.
    shard: usize,
    /// `None` for a key that had spent nothing before this check.
    position: Option<usize>,
}

/// The shards of a check, locked in the order of their numbers, so that checks cannot wait for
/// each other in a circle.
struct Locked<'s> {
    store: &'s MemoryStore,
    shards: SmallVec<[(usize, MutexGuard<'s, Shard>); 1]>,
    now: Timestamp,
}

impl MemoryStore {
    pub(super) fn decide(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        mode: Mode,
    ) -> SmallVec<[Line; 1]> {
        let digests = few::build(charges.len(), |index| {
            let charge = &charges[index];
            self.digest(charge, charge.key())
        });
        let mut locked = Locked::new(self, &digests, now);
        let places = locked.find(charges, &digests, mode);

        // A charge that is alone is decided where it is spent.
        let admitted = charges.len() == 1
            || mode == Mode::Force
            || charges.iter().zip(&places).all(|(charge, place)| {
                charge.is_shadow() || charge.cost() <= locked.free(charge, place)
            });
        if !admitted || mode == Mode::Peek {
            return few::build(charges.len(), |index| locked.look(&charges[index], &places[index]));
        }
        // What binds is spent first: a trial on the same key then sees the key as it will be.
        let alone = charges.len() == 1;
        let mut lines = few::build(charges.len(), |index| {
            let charge = &charges[index];
            if charge.is_shadow() && !alone {
                unspent(charge, nothing_spent(charge.quota()))
            } else {
                locked.spend(charge, &places[index], mode)
            }
        });
        if !alone {
            for (index, charge) in charges.iter().enumerate() {
                if charge.is_shadow() {
                    lines[index] = locked.spend(charge, &places[index], mode);
                }
            }
        }
        lines
    }
}

impl<'s> Locked<'s> {
    #[inline]
    fn new(store: &'s MemoryStore, digests: &[Digest], now: Timestamp) -> Self {
        let mut numbers = few::build(digests.len(), |index| store.shard_of(digests[index]));
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |index| (numbers[index], store.lock(numbers[index]));
        Self { store, shards: few::build(numbers.len(), lock), now }
    }

    /// Finds each charge's standing. Newcomers to a full shard get a shared one.
    #[inline]
    fn find(
        &mut self,
        charges: &[Charge<'_>],
        digests: &[Digest],
        mode: Mode,
    ) -> SmallVec<[Place; 1]> {
        let places = few::build(digests.len(), |index| self.place(digests[index]));
        if mode == Mode::Peek || places.iter().all(|place| place.position.is_some()) {
            return places;
        }
        let full = self.make_room(digests);
        // Positions have changed where something had to go.
        few::build(digests.len(), |index| {
            let place = self.place(digests[index]);
            if place.position.is_some() || !full.contains(&place.shard) {
                return place;
            }
            self.store.ledger.overflow();
            let digest = self.store.digest(&charges[index], &Key::OVERFLOW);
            let position = self.shards[place.shard].1.position(digest);
            Place { digest, position, ..place }
        })
    }

    #[inline]
    fn place(&self, digest: Digest) -> Place {
        let number = self.store.shard_of(digest);
        let shard = self.shards.iter().position(|(other, _)| *other == number).unwrap_or(0);
        Place { digest, shard, position: self.shards[shard].1.position(digest) }
    }

    /// Makes room for the newcomers among these; says which of the locked shards have none.
    #[cold]
    fn make_room(&mut self, digests: &[Digest]) -> SmallVec<[usize; 1]> {
        let mut full = SmallVec::new();
        for (index, (number, shard)) in self.shards.iter_mut().enumerate() {
            let mine = digests.iter().filter(|digest| self.store.shard_of(**digest) == *number);
            let newcomers = mine.filter(|digest| shard.position(**digest).is_none()).count();
            let most = self.store.keys_per_shard;
            if newcomers > 0
                && !shard.make_room(newcomers, most, self.now, digests, &self.store.ledger)
            {
                full.push(index);
            }
        }
        full
    }

    fn free(&self, charge: &Charge<'_>, place: &Place) -> u64 {
        match self.position(place) {
            Some(position) => {
                self.shards[place.shard].1.state(position).free(charge.quota(), self.now)
            }
            None => charge.quota().capacity(),
        }
    }

    /// Where the charge stands if nothing is spent.
    fn look(&mut self, charge: &Charge<'_>, place: &Place) -> Line {
        let Some(position) = self.position(place) else {
            return unspent(charge, nothing_spent(charge.quota()));
        };
        let shard = &mut self.shards[place.shard].1;
        let standing = shard.state(position).standing(charge.quota(), self.now, charge.cost());
        shard.block(position, blocked_until(&standing, self.now));
        unspent(charge, standing)
    }

    /// Spends the charge, unless there is too little free or it costs nothing.
    #[inline]
    fn spend(&mut self, charge: &Charge<'_>, place: &Place, mode: Mode) -> Line {
        let (quota, now, ledger) = (charge.quota(), self.now, &self.store.ledger);
        let affordable = |free: u64| match mode {
            Mode::Force => charge.cost(),
            _ if charge.cost() <= free => charge.most().min(free),
            _ => 0,
        };
        let position = self.position(place);
        if position.is_none() && affordable(quota.capacity()) == 0 {
            return unspent(charge, nothing_spent(quota));
        }
        let shard = &mut self.shards[place.shard].1;
        let position = position
            .unwrap_or_else(|| shard.insert(place.digest, State::new(quota.counted_by()), ledger));
        let (units, mark, standing) = shard.change(position, ledger, |state, room| {
            state.spend(quota, now, charge.cost(), affordable, room)
        });
        shard.block(position, blocked_until(&standing, now));
        if units == 0 {
            return unspent(charge, standing);
        }
        Line { verdict: Verdict::Passed, units, standing, mark }
    }

    /// The position of a standing: known from the start, or since a line before this one.
    fn position(&self, place: &Place) -> Option<usize> {
        place.position.or_else(|| self.shards[place.shard].1.position(place.digest))
    }
}

/// Until when a key is known to turn charges away.
fn blocked_until(standing: &Standing, now: Timestamp) -> Timestamp {
    let empty = if standing.remaining == 0 { standing.next_after } else { 0 };
    Timestamp::from_micros(now.as_micros() + standing.retry_after.unwrap_or(empty))
}

fn unspent(charge: &Charge<'_>, standing: Standing) -> Line {
    let verdict = if charge.cost() <= standing.remaining {
        Verdict::Passed
    } else if charge.cost() > charge.quota().capacity() {
        Verdict::OverCapacity
    } else {
        Verdict::Refused
    };
    Line { verdict, units: 0, standing, mark: Mark::default() }
}
