//! How the embedded store decides a check: lock, find, check all, then commit all.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    MemoryStore,
    ledger::Ledger,
    shard::{Digest, Entry, Shard},
};
use crate::{
    algorithm::KeyState,
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    key::Key,
    policy::Charge,
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

impl MemoryStore {
    pub(super) fn decide(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        mode: Mode,
    ) -> SmallVec<[ChargeReply; 1]> {
        match charges {
            [charge] => SmallVec::from_buf([self.decide_one(charge, now, mode)]),
            _ => self.decide_several(charges, now, mode),
        }
    }

    /// A charge that is alone needs one lock, and is decided where it is spent. This and what it
    /// calls is one piece of code, in which a line need not be written down before it is complete.
    #[inline(always)]
    pub(super) fn decide_one(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> ChargeReply {
        self.decide_named(self.digest(charge, charge.key()), charge, now, mode)
    }

    #[inline]
    pub(super) fn decide_named(
        &self,
        digest: Digest,
        charge: &Charge<'_>,
        now: Timestamp,
        mode: Mode,
    ) -> ChargeReply {
        let number = self.shard_of(digest);
        let mut shard = self.lock(number);
        let mut place = Place { digest, shard: 0, position: shard.position(digest) };
        if mode == Mode::Peek {
            return look(&mut shard, charge, &place, now);
        }
        let newcomer = place.position.is_none() && spends(charge, mode);
        if newcomer && !self.make_room(number, &mut shard, (1, 0), now, &[digest]) {
            place = self.overflow(charge, place, &shard);
        }
        spend(&mut shard, &self.ledger, charge, &place, now, mode)
    }

    #[inline(never)]
    fn decide_several(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        mode: Mode,
    ) -> SmallVec<[ChargeReply; 1]> {
        let digests = charges.iter().map(|charge| self.digest(charge, charge.key()));
        let digests: SmallVec<[Digest; 4]> = digests.collect();
        let mut locked = Locked::new(self, &digests, now);
        let mut places = locked.places(&digests);
        if mode != Mode::Peek && locked.admits(charges, &places, mode) {
            // Only who spends needs room; who finds none is judged by what newcomers share.
            locked.make_room(charges, &digests, &mut places, mode);
        }
        let lines = charges.iter().zip(&places);
        if mode == Mode::Peek || !locked.admits(charges, &places, mode) {
            return lines
                .map(|(charge, place)| look(locked.shard(place), charge, place, now))
                .collect();
        }
        // What binds is spent first: a trial on the same key then sees the key as it will be.
        let mut spent: SmallVec<[Option<ChargeReply>; 4]> =
            SmallVec::from_elem(None, charges.len());
        for shadow in [false, true] {
            for ((charge, place), line) in lines.clone().zip(&mut spent) {
                if charge.is_shadow() == shadow {
                    let ledger = &self.ledger;
                    *line = Some(spend(locked.shard(place), ledger, charge, place, now, mode));
                }
            }
        }
        spent.into_iter().flatten().collect()
    }

    /// The standing that newcomers to a full shard share.
    #[cold]
    fn overflow(&self, charge: &Charge<'_>, place: Place, shard: &Shard) -> Place {
        self.ledger.overflow();
        let digest = self.digest(charge, &Key::OVERFLOW);
        Place { digest, position: shard.position(digest), ..place }
    }
}

/// The shards of a check, locked in the order of their numbers, so that checks cannot wait for
/// each other in a circle.
struct Locked<'s> {
    store: &'s MemoryStore,
    shards: SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>,
    now: Timestamp,
}

impl<'s> Locked<'s> {
    fn new(store: &'s MemoryStore, digests: &[Digest], now: Timestamp) -> Self {
        let numbers = digests.iter().map(|digest| store.shard_of(*digest));
        let mut numbers: SmallVec<[usize; 4]> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let lock = |number| (number, store.lock(number));
        Self { store, shards: numbers.into_iter().map(lock).collect(), now }
    }

    fn places(&self, digests: &[Digest]) -> SmallVec<[Place; 4]> {
        digests.iter().map(|digest| self.place(*digest)).collect()
    }

    fn place(&self, digest: Digest) -> Place {
        let number = self.store.shard_of(digest);
        let shard = self.shards.iter().position(|(other, _)| *other == number).unwrap_or(0);
        Place { digest, shard, position: self.shards[shard].1.position(digest) }
    }

    fn shard(&mut self, place: &Place) -> &mut Shard {
        &mut self.shards[place.shard].1
    }

    fn admits(&self, charges: &[Charge<'_>], places: &[Place], mode: Mode) -> bool {
        let free = |charge: &Charge<'_>, place: &Place| match place.position {
            Some(position) => {
                self.shards[place.shard].1.state(position).free(charge.quota(), self.now)
            }
            None => charge.quota().capacity(),
        };
        let admitted = |(charge, place): (&Charge<'_>, &Place)| {
            charge.is_shadow() || charge.cost() <= free(charge, place)
        };
        mode == Mode::Force || charges.iter().zip(places).all(admitted)
    }

    /// Makes room for newcomers that will spend. Those to a full shard get a shared standing.
    fn make_room(
        &mut self,
        charges: &[Charge<'_>],
        digests: &[Digest],
        places: &mut SmallVec<[Place; 4]>,
        mode: Mode,
    ) {
        let newcomer =
            |charge: &Charge<'_>, place: &Place| place.position.is_none() && spends(charge, mode);
        if !charges.iter().zip(&*places).any(|(charge, place)| newcomer(charge, place)) {
            return;
        }
        let (mut full, mut expected) = (SmallVec::<[usize; 4]>::new(), 0);
        for (index, (number, shard)) in self.shards.iter_mut().enumerate() {
            let mine = charges.iter().zip(&*places);
            let mine =
                mine.filter(|(charge, place)| place.shard == index && newcomer(charge, place));
            let newcomers = mine.count();
            if newcomers == 0 {
                continue;
            }
            let count = (newcomers, expected);
            if self.store.make_room(*number, shard, count, self.now, digests) {
                expected += newcomers;
            } else {
                full.push(index);
            }
        }
        // Positions have changed where something had to go.
        *places = self.places(digests);
        for (charge, place) in charges.iter().zip(places) {
            if newcomer(charge, place) && full.contains(&place.shard) {
                let Place { digest, shard, position } = *place;
                let place_before = Place { digest, shard, position };
                *place = self.store.overflow(charge, place_before, &self.shards[shard].1);
            }
        }
    }
}

/// Whether a charge to a key that has spent nothing would spend something.
fn spends(charge: &Charge<'_>, mode: Mode) -> bool {
    affordable(charge, mode, charge.quota().capacity()) > 0
}

/// How many units the charge takes if so many are free.
#[inline]
fn affordable(charge: &Charge<'_>, mode: Mode, free: u64) -> u64 {
    match mode {
        Mode::Force => charge.cost(),
        _ if charge.cost() <= free => charge.max_cost().min(free),
        _ => 0,
    }
}

/// Where the charge stands if nothing is spent.
fn look(shard: &mut Shard, charge: &Charge<'_>, place: &Place, now: Timestamp) -> ChargeReply {
    let Some(position) = place.position else {
        return unspent(charge, Standing::full(charge.quota().capacity()));
    };
    let entry = shard.entry(position);
    let standing = entry.state.standing(charge.quota(), now, charge.cost());
    remember(entry, &standing, now);
    unspent(charge, standing)
}

/// Spends the charge, unless there is too little free or it costs nothing.
#[inline(always)]
fn spend(
    shard: &mut Shard,
    ledger: &Ledger,
    charge: &Charge<'_>,
    place: &Place,
    now: Timestamp,
    mode: Mode,
) -> ChargeReply {
    let quota = charge.quota();
    // Another line of this check may have come before.
    let position = match place.position.or_else(|| shard.position(place.digest)) {
        Some(position) => position,
        None if spends(charge, mode) => {
            shard.insert(place.digest, KeyState::new(quota.algorithm()), ledger)
        }
        None => return unspent(charge, Standing::full(quota.capacity())),
    };
    let entry = shard.entry(position);
    let affordable = |free| affordable(charge, mode, free);
    let (units, mark, standing) = entry.state.spend(quota, now, charge.cost(), affordable, ledger);
    remember(entry, &standing, now);
    let verdict = if units > 0 { Verdict::Passed } else { verdict(charge, &standing) };
    ChargeReply { verdict, units, standing, mark }
}

/// Remembers until when a key is known to turn charges away, if it is.
#[inline]
fn remember(entry: &mut Entry, standing: &Standing, now: Timestamp) {
    let empty = if standing.remaining == 0 { standing.next_after } else { 0 };
    let wait = standing.retry_after.unwrap_or(empty);
    if wait > 0 {
        entry.block(Timestamp::from_micros(now.as_micros() + wait));
    }
}

#[inline]
fn unspent(charge: &Charge<'_>, standing: Standing) -> ChargeReply {
    ChargeReply { verdict: verdict(charge, &standing), units: 0, standing, mark: Mark::default() }
}

/// Whether the charge would pass.
#[inline]
fn verdict(charge: &Charge<'_>, standing: &Standing) -> Verdict {
    if charge.cost() <= standing.remaining {
        Verdict::Passed
    } else if charge.cost() > charge.quota().capacity() {
        Verdict::OverCapacity
    } else {
        Verdict::Refused
    }
}
