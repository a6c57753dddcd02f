//! A store that is remote in all but the distance: its answers are on their way when they are asked
//! for, it can be taken down, and it counts its calls.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
};

use plimsoll::{
    Charge, Error, Key, MemoryStore,
    clock::{Clock, ManualClock},
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Answer, Request, Source, Store, Traits},
};

/// A key that holds something else in the store, for as long as that is [`Mood::Well`].
pub(crate) const FOREIGN: &str = "foreign";
/// A key whose charges the store does not take. It is not asked about them.
pub(crate) const NOT_TAKEN: &str = "not taken";

#[derive(Debug, Clone)]
pub(crate) struct Remote(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: MemoryStore,
    mood: AtomicU8,
    calls: AtomicU64,
}

/// The behaviour of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    Well,
    /// Decides at once, and answers one poll later.
    Late,
    /// Answers with an error.
    Down,
    /// Does nothing, and never answers.
    Hangs,
    /// Executes each request, and never answers.
    Mute,
}

impl Remote {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        Self::with_clock(clock.clone())
    }

    pub(crate) fn with_clock(clock: impl Clock) -> Self {
        let store = MemoryStore::new(MemoryConfig::default().max_keys(1_000).clock(clock));
        Self(Arc::new(Inner { store, mood: AtomicU8::new(0), calls: AtomicU64::new(0) }))
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.0.mood.store(mood as u8, SeqCst);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.0.calls.load(SeqCst)
    }
}

impl Store for Remote {
    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.counts_leases = true;
        traits
    }

    fn call(&self, request: Request<'_>, _: Option<std::time::Instant>) -> Answer {
        let is = |key: &str| match request {
            Request::Acquire(charges) | Request::Peek(charges) | Request::Force(charges) => {
                charges.iter().any(|charge| *charge.key() == Key::from(key))
            }
            _ => false,
        };
        if is(NOT_TAKEN) {
            return Answer::ready(Err(Error::new(ErrorKind::Invalid, "not taken")));
        }
        self.0.calls.fetch_add(1, SeqCst);
        let mood = self.0.mood.load(SeqCst);
        if mood == Mood::Well as u8 && is(FOREIGN) {
            let error = Error::new(ErrorKind::WrongType, "something else");
            return Answer::pending(async { Err(error) });
        }
        if mood == Mood::Down as u8 {
            let error = Error::new(ErrorKind::Unavailable, "down");
            return Answer::pending(async { Err(error) });
        }
        if mood == Mood::Hangs as u8 {
            return Answer::pending(std::future::pending());
        }
        let reply = match request {
            Request::Acquire(charges) => {
                self.0.store.call(Request::Acquire(&counted(charges)), None)
            }
            Request::Peek(charges) => self.0.store.call(Request::Peek(&counted(charges)), None),
            Request::Force(charges) => self.0.store.call(Request::Force(&counted(charges)), None),
            other => self.0.store.call(other, None),
        };
        let reply = reply.now().expect("an embedded store");
        if mood == Mood::Mute as u8 {
            return Answer::pending(std::future::pending());
        }
        Answer::pending(async move {
            if mood == Mood::Late as u8 {
                tokio::task::yield_now().await;
            }
            reply.map(|mut reply| {
                reply.source = Source::Shared;
                reply
            })
        })
    }
}

/// A shared store counts leased quotas in its own way.
fn counted<'c>(charges: &[Charge<'c>]) -> Vec<Charge<'c>> {
    let counted = |charge: &Charge<'c>| match charge.quota().lease() {
        Some(_) => charge.clone().with_quota(charge.quota().counted()),
        None => charge.clone(),
    };
    charges.iter().map(counted).collect()
}
