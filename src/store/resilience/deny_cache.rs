//! Denials that cost the store nothing.
//!
//! A check that the store has denied is denied again without asking, until the next of its units
//! comes back, for at most a second. No denial comes from here that this process's own history does
//! not imply: whatever this process gives back, resets or spends voids what was remembered of the
//! key, also what is on its way.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;

use crate::{
    charge::Charge,
    clock::{Clock, Timestamp},
    standing::Standing,
    store::{Answer, Line, Request, Ruling, Source, Store, Verdict},
    telemetry,
};

/// A store whose denials are remembered for a moment.
#[derive(Debug)]
pub(super) struct DenyCache {
    inner: Box<dyn Store>,
    cache: Arc<Cache>,
}

#[derive(Debug)]
struct Cache {
    /// Each check has one place; of two that share it the later denial stays.
    places: Box<[Mutex<Option<Denial>>]>,
    /// How often this process has changed a key. Keys that share a place void each other's
    /// denials, which costs a question.
    changes: Box<[AtomicU64]>,
    random: RandomState,
    secret: (u64, u64),
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone)]
struct Denial {
    check: u128,
    costs: SmallVec<[u64; 1]>,
    /// The changes of its keys, summed, before the store was asked.
    changes: u64,
    /// When the store was asked: its own time was later, so that no wait is counted too long.
    asked: Timestamp,
    /// By then the next unit has come back.
    until: Timestamp,
    ruling: Ruling,
}

const PLACES: usize = 1 << 14;
const LONGEST: u64 = 1_000_000;

/// What is known of a check before the store is asked.
struct Question {
    check: u128,
    changes: u64,
    asked: Timestamp,
    costs: SmallVec<[u64; 1]>,
}

impl DenyCache {
    pub(super) fn new(inner: Box<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let random = RandomState::new();
        let cache = Cache {
            secret: (random.hash_one(1), random.hash_one(2)),
            places: (0..PLACES).map(|_| Mutex::new(None)).collect(),
            changes: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            random,
            clock,
        };
        Self { inner, cache: Arc::new(cache) }
    }
}

impl Store for DenyCache {
    fn call(&self, request: Request<'_>) -> Answer {
        let charges = match request {
            Request::Acquire(charges) => charges,
            Request::Peek(_) => return self.inner.call(request),
            Request::Force(charges) | Request::Reset(charges) => {
                self.cache.void(charges);
                let (cache, keys) = (Arc::clone(&self.cache), self.cache.keys(charges));
                return self.void_after(request, cache, keys);
            }
            Request::GiveBack(receipt) => {
                let keys: Keys =
                    receipt.lines().iter().map(|it| self.cache.key(it.charge())).collect();
                self.cache.void_keys(&keys);
                return self.void_after(request, Arc::clone(&self.cache), keys);
            }
        };
        let question = self.cache.question(charges);
        if let Some(ruling) = self.cache.find(&question, charges) {
            telemetry::denied_from_cache();
            return Answer::ready(Ok(ruling));
        }
        let keys = self.cache.keys(charges);
        let shadows: SmallVec<[bool; 4]> = charges.iter().map(Charge::is_shadow).collect();
        let cache = Arc::clone(&self.cache);
        match self.inner.call(request).now() {
            Ok(ruling) => {
                if let Ok(ruling) = &ruling {
                    cache.hear(question, &keys, &shadows, ruling);
                }
                Answer::ready(ruling)
            }
            Err(coming) => Answer::pending(async move {
                let ruling = coming.await?;
                cache.hear(question, &keys, &shadows, &ruling);
                Ok(ruling)
            }),
        }
    }
}

type Keys = SmallVec<[usize; 4]>;

impl DenyCache {
    /// Asks the store, and voids again what was heard of the keys meanwhile.
    fn void_after(&self, request: Request<'_>, cache: Arc<Cache>, keys: Keys) -> Answer {
        match self.inner.call(request).now() {
            Ok(ruling) => Answer::ready(ruling),
            Err(coming) => Answer::pending(async move {
                let ruling = coming.await;
                cache.void_keys(&keys);
                ruling
            }),
        }
    }
}

impl Cache {
    fn key(&self, charge: &Charge<'_>) -> usize {
        self.random.hash_one((charge.policy().id(), charge.key())) as usize % PLACES
    }

    fn keys(&self, charges: &[Charge<'_>]) -> Keys {
        charges.iter().map(|charge| self.key(charge)).collect()
    }

    fn void(&self, charges: &[Charge<'_>]) {
        self.void_keys(&self.keys(charges));
    }

    fn void_keys(&self, keys: &[usize]) {
        for key in keys {
            self.changes[*key].fetch_add(1, Ordering::AcqRel);
        }
    }

    fn question(&self, charges: &[Charge<'_>]) -> Question {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        let mut changes = 0_u64;
        for charge in charges {
            (charge.policy().id(), charge.key(), charge.quota(), charge.is_shadow())
                .hash(&mut hasher);
            changes = changes.wrapping_add(self.changes[self.key(charge)].load(Ordering::Acquire));
        }
        Question {
            check: hasher.finish128().as_u128(),
            changes,
            asked: self.clock.now(),
            costs: charges.iter().map(Charge::cost).collect(),
        }
    }

    fn place(&self, check: u128) -> MutexGuard<'_, Option<Denial>> {
        self.places[check as usize % PLACES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A denial that also holds for this check: of the same keys, and for no less.
    fn find(&self, question: &Question, charges: &[Charge<'_>]) -> Option<Ruling> {
        let place = self.place(question.check);
        let denial = place.as_ref()?;
        let holds = denial.check == question.check
            && denial.changes == question.changes
            && denial.costs.iter().zip(&question.costs).all(|(denied, cost)| cost >= denied)
            && (denial.asked..denial.until).contains(&question.asked);
        holds.then(|| denial.after(question.asked, charges))
    }

    fn hear(&self, question: Question, keys: &[usize], shadows: &[bool], ruling: &Ruling) {
        let binding = || ruling.lines.iter().zip(shadows).filter(|(_, shadow)| !**shadow);
        if binding().all(|(line, _)| line.verdict == Verdict::Passed) {
            // Units were spent: what was known of these keys is no longer true.
            return self.void_keys(keys);
        }
        let lasting = ruling.source == Source::Shared
            && binding().all(|(line, _)| line.verdict != Verdict::OverCapacity);
        let waits = ruling.lines.iter().map(|line| line.standing.next_after);
        let wait = waits.filter(|wait| *wait > 0).min().unwrap_or(0).min(LONGEST);
        if !lasting || wait == 0 {
            return;
        }
        let Question { check, changes, asked, costs } = question;
        let until = Timestamp::from_micros(asked.as_micros() + wait);
        let denial = Denial { check, costs, changes, asked, until, ruling: ruling.clone() };
        *self.place(check) = Some(denial);
    }
}

impl Denial {
    /// What the store would say now. How long a charge has to wait that costs more than the one
    /// that was denied is not known: until everything has come back is never too early.
    fn after(&self, now: Timestamp, charges: &[Charge<'_>]) -> Ruling {
        let elapsed = now.as_micros() - self.asked.as_micros();
        let lines = self.ruling.lines.iter().zip(&self.costs).zip(charges);
        let sooner = |((line, denied), charge): ((&Line, &u64), &Charge<'_>)| {
            let Standing { next_after, reset_after, retry_after, .. } = line.standing;
            let standing = Standing {
                next_after: next_after.saturating_sub(elapsed),
                reset_after: reset_after.saturating_sub(elapsed),
                retry_after: retry_after.map(|wait| wait.saturating_sub(elapsed)),
                ..line.standing
            };
            let (cost, standing) = (charge.cost(), standing);
            if cost == *denied || cost <= standing.remaining {
                return Line { standing, ..*line };
            }
            let (verdict, retry_after) = match cost > standing.limit {
                true => (Verdict::OverCapacity, None),
                false => (Verdict::Refused, Some(standing.reset_after)),
            };
            Line { verdict, standing: Standing { retry_after, ..standing }, ..*line }
        };
        Ruling {
            time: Timestamp::from_micros(self.ruling.time.as_micros() + elapsed),
            source: Source::Cache,
            lines: lines.map(sooner).collect(),
        }
    }
}
