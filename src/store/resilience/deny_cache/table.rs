//! What was heard of keys, in bounded memory, and which of it still holds.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

use super::heard::{Heard, unheard};
use crate::{
    clock::{Clock, Timestamp},
    decision::{ChargeReply, Source, StoreReply, Verdict},
    policy::Charge,
    quota::Quota,
};

#[derive(Debug)]
pub(super) struct Table {
    /// A key has its place in one set, in which the oldest makes room for a newcomer.
    sets: Box<[Mutex<[Option<Entry>; WAYS]>]>,
    /// How this process has changed keys. Those that share a number lose what was heard of them a
    /// little more often, which costs a question.
    changes: Box<[Changes]>,
    secret: (u64, u64),
    clock: Arc<dyn Clock>,
    /// How long a command can be on its way, in microseconds.
    journey: u64,
}

#[derive(Debug, Default)]
struct Changes {
    /// How often. What was heard before no longer holds.
    count: AtomicU64,
    /// Until when a change may still arrive for whose answer nobody waits, in microseconds.
    doubt: AtomicU64,
}

const WAYS: usize = 4;
const SETS: usize = 1 << 12;
const NUMBERS: usize = 1 << 14;

/// A policy and a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(u64, u64);

pub(super) type Digests = SmallVec<[Digest; 2]>;

#[derive(Debug)]
struct Entry {
    digest: Digest,
    quota: Quota,
    changes: u64,
    heard: Heard,
}

/// What a check asks, and when.
#[derive(Debug)]
pub(super) struct Question {
    now: Timestamp,
    lines: SmallVec<[Asked; 2]>,
}

/// One line of it.
#[derive(Debug)]
struct Asked {
    digest: Digest,
    quota: Quota,
    cost: u64,
    shadow: bool,
    /// The changes of the key before the store is asked.
    changes: u64,
}

/// What is known of one line.
enum Known {
    /// What the store would say, and its time.
    Reply(ChargeReply, u64),
    /// Something was heard of this key lately, but not enough.
    Part,
    Nothing,
}

impl Table {
    /// With a store to which a command can be on its way for so long after nobody waits any more.
    pub(super) fn new(clock: Arc<dyn Clock>, journey: Duration) -> Self {
        let random = RandomState::new();
        Self {
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
            changes: (0..NUMBERS).map(|_| Changes::default()).collect(),
            secret: (random.hash_one(1), random.hash_one(2)),
            clock,
            journey: u64::try_from(journey.as_micros()).unwrap_or(u64::MAX),
        }
    }

    /// Names cannot be chosen by clients, keys can: only the key is hashed, under both.
    #[inline]
    pub(super) fn digest(&self, charge: &Charge<'_>) -> Digest {
        let (low, high) = self.secret;
        let [low, high] = charge.key().digest_keyed([low ^ charge.policy().id(), high]);
        Digest(low, high)
    }

    #[inline]
    pub(super) fn question(&self, charges: &[Charge<'_>]) -> Question {
        let asked = |charge: &Charge<'_>| {
            let digest = self.digest(charge);
            let changes = self.changes(digest).count.load(Ordering::Acquire);
            let (quota, cost, shadow) = (*charge.quota(), charge.cost(), charge.is_shadow());
            Asked { digest, quota, cost, shadow, changes }
        };
        Question { lines: charges.iter().map(asked).collect(), now: self.clock.now() }
    }

    /// The denial of a check of which one charge is known to be refused. The others are told as
    /// they are; one of whose key nothing was heard, as if it had spent nothing.
    #[inline]
    pub(super) fn denial(&self, question: &Question) -> Option<StoreReply> {
        let now = question.now.as_micros();
        let (mut refused, mut time) = (false, 0);
        let mut lines = SmallVec::new();
        for asked in &question.lines {
            lines.push(match self.look(asked, now) {
                Known::Reply(line, store_time) => {
                    refused |= !asked.shadow && line.verdict != Verdict::Passed;
                    time = time.max(store_time);
                    line
                }
                Known::Part => return None,
                Known::Nothing => unheard(&asked.quota, asked.cost),
            });
        }
        let time = Timestamp::from_micros(time);
        refused.then_some(StoreReply { time, source: Source::Cache, charges: lines })
    }

    #[inline]
    fn look(&self, asked: &Asked, now: u64) -> Known {
        let set = self.set(asked.digest);
        let Some(entry) = set.iter().flatten().find(|entry| entry.is_of(asked)) else {
            return Known::Nothing;
        };
        if !entry.heard.holds(now) {
            return Known::Nothing;
        }
        if entry.changes != asked.changes {
            return Known::Part;
        }
        match entry.heard.line(&asked.quota, asked.cost, now) {
            Some(line) => Known::Reply(line, entry.heard.store_time(now)),
            None => Known::Part,
        }
    }

    /// Learns from the store's answer.
    pub(super) fn hear(&self, question: Question, reply: &StoreReply) {
        let lines = || question.lines.iter().zip(&reply.charges);
        if reply.source != Source::Shared || reply.charges.len() != question.lines.len() {
            // Nobody knows whether the store has done it.
            return question.lines.iter().for_each(|asked| self.change(asked.digest));
        }
        let admitted = lines().all(|(asked, line)| asked.shadow || line.verdict == Verdict::Passed);
        for (asked, line) in lines() {
            let changes = match line.units {
                0 => Some(asked.changes),
                _ => self.change_after(asked),
            };
            // Of an admission only what would refuse the next: most never meet a limit.
            let tells = !admitted || line.standing.remaining < asked.cost;
            if let (Some(changes), true) = (changes, tells) {
                self.remember(asked, changes, question.now, line, reply.time);
            }
        }
    }

    /// The check was given up, and nobody knows whether the store has done it. It has not if it is
    /// known to refuse it now: clients that go away do not make it be asked again and again.
    pub(super) fn hear_nothing(&self, mut question: Question) {
        for asked in &mut question.lines {
            asked.changes = self.changes(asked.digest).count.load(Ordering::Acquire);
        }
        question.now = self.clock.now();
        if self.denial(&question).is_none() {
            question.lines.iter().for_each(|asked| self.change(asked.digest));
        }
    }

    /// Voids what was heard of a key.
    pub(super) fn change(&self, digest: Digest) {
        self.changes(digest).count.fetch_add(1, Ordering::AcqRel);
    }

    /// Voids what was heard of a key, and what will be until a change has arrived that was given up.
    pub(super) fn doubt(&self, digest: Digest) {
        let until = self.clock.now().as_micros().saturating_add(self.journey);
        self.changes(digest).doubt.fetch_max(until, Ordering::AcqRel);
        self.change(digest);
    }

    /// Voids what was heard of a key before this charge was made; what it says itself holds if there
    /// was no other change meanwhile.
    fn change_after(&self, asked: &Asked) -> Option<u64> {
        let before = self.changes(asked.digest).count.fetch_add(1, Ordering::AcqRel);
        (before == asked.changes).then_some(before + 1)
    }

    fn remember(
        &self,
        asked: &Asked,
        changes: u64,
        at: Timestamp,
        line: &ChargeReply,
        time: Timestamp,
    ) {
        let Asked { digest, quota, cost, .. } = *asked;
        let (at, time) = (at.as_micros(), time.as_micros());
        let Some(mut heard) = Heard::new(&quota, cost, &line.standing, at, time) else { return };
        let key = self.changes(digest);
        if key.count.load(Ordering::Acquire) != changes || at < key.doubt.load(Ordering::Acquire) {
            return;
        }
        let mut set = self.set(digest);
        let place = match set.iter().position(|it| it.as_ref().is_some_and(|it| it.is_of(asked))) {
            Some(place) => place,
            None => oldest(&set),
        };
        if let Some(before) = &set[place]
            && before.is_of(asked)
            && before.changes == changes
            && before.heard.holds(at)
        {
            heard.keep(&before.heard);
        }
        set[place] = Some(Entry { digest, quota, changes, heard });
    }

    fn set(&self, digest: Digest) -> MutexGuard<'_, [Option<Entry>; WAYS]> {
        self.sets[digest.0 as usize % SETS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changes(&self, digest: Digest) -> &Changes {
        &self.changes[digest.1 as usize % NUMBERS]
    }
}

impl Entry {
    #[inline]
    fn is_of(&self, asked: &Asked) -> bool {
        self.digest == asked.digest && self.quota == asked.quota
    }
}

/// The place that is free, or else that of the oldest entry.
fn oldest(set: &[Option<Entry>; WAYS]) -> usize {
    let mut oldest = 0;
    for (place, entry) in set.iter().enumerate() {
        match (entry, &set[oldest]) {
            (None, _) => return place,
            (Some(entry), Some(other)) if entry.heard.is_older(&other.heard) => oldest = place,
            _ => {}
        }
    }
    oldest
}
