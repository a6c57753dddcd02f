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
        let digests: SmallVec<[Digest; 1]> =
            charges.iter().map(|charge| self.digest(charge, charge.key())).collect();
        let mut locked = Locked::new(self, &digests, now);
        let places = locked.find(charges, &digests, mode);

        let each = || charges.iter().zip(&places);
        let admitted = each().all(|(charge, place)| {
            charge.is_shadow() || mode == Mode::Force || charge.cost() <= locked.free(charge, place)
        });
        if !admitted || mode == Mode::Peek {
            return each().map(|(charge, place)| locked.look(charge, place)).collect();
        }
        let mut lines: SmallVec<[Line; 1]> =
            charges.iter().map(|charge| unspent(charge, nothing_spent(charge.quota()))).collect();
        // What binds is spent first: a trial on the same key then sees the key as it will be.
        for shadow in [false, true] {
            for (index, charge) in charges.iter().enumerate() {
                if charge.is_shadow() == shadow {
                    lines[index] = locked.spend(charge, &places[index], mode);
                }
            }
        }
        lines
    }
}

impl<'s> Locked<'s> {
    fn new(store: &'s MemoryStore, digests: &[Digest], now: Timestamp) -> Self {
        let mut numbers: SmallVec<[usize; 1]> =
            digests.iter().map(|digest| store.shard_of(*digest)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.into_iter().map(|number| (number, store.lock(number))).collect();
        Self { store, shards, now }
    }

    /// Finds each charge's standing. Newcomers to a full shard get a shared one.
    fn find(
        &mut self,
        charges: &[Charge<'_>],
        digests: &[Digest],
        mode: Mode,
    ) -> SmallVec<[Place; 1]> {
        let mut full: SmallVec<[usize; 1]> = SmallVec::new();
        if mode != Mode::Peek {
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
        }
        let place = |(charge, digest): (&Charge<'_>, &Digest)| {
            let number = self.store.shard_of(*digest);
            let shard = self.shards.iter().position(|(other, _)| *other == number).unwrap_or(0);
            let position = self.shards[shard].1.position(*digest);
            if position.is_some() || !full.contains(&shard) {
                return Place { digest: *digest, shard, position };
            }
            self.store.ledger.overflow();
            let digest = self.store.digest(charge, &Key::OVERFLOW);
            Place { digest, shard, position: self.shards[shard].1.position(digest) }
        };
        charges.iter().zip(digests).map(place).collect()
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

    /// Spends the charge, unless it is a trial that fails or costs nothing.
    fn spend(&mut self, charge: &Charge<'_>, place: &Place, mode: Mode) -> Line {
        let free = self.free(charge, place);
        let units = match mode {
            Mode::Force => charge.cost(),
            _ if charge.cost() <= free => charge.most().min(free),
            _ => 0,
        };
        if units == 0 {
            return self.look(charge, place);
        }
        let (quota, now, ledger) = (charge.quota(), self.now, &self.store.ledger);
        let position = self.position(place);
        let shard = &mut self.shards[place.shard].1;
        let position = position
            .unwrap_or_else(|| shard.insert(place.digest, State::new(quota.counted_by()), ledger));
        let mark =
            shard.change(position, ledger, |state, room| state.spend(quota, now, units, room));
        let standing = shard.state(position).standing(quota, now, 0);
        shard.block(position, blocked_until(&standing, now));
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
