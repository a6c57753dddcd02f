//! Checks in a program without an asynchronous runtime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use plimsoll::{
    Decision, Error, Limiter, MemoryStore, Policy, Quota,
    clock::ManualClock,
    error::{Effect, ErrorKind},
    memory::MemoryConfig,
    policy::Charges,
    store::{Answer, Request, Store, Traits},
};

fn policy() -> Policy {
    Policy::new("mails", Quota::per_minute(2)).unwrap()
}

/// A store around another one, which counts the requests.
#[derive(Debug, Clone)]
struct Counting {
    store: Arc<MemoryStore>,
    embedded: bool,
    waits: bool,
    calls: Arc<AtomicUsize>,
}

impl Counting {
    fn new(embedded: bool, waits: bool) -> Self {
        let store = Arc::new(MemoryStore::new(MemoryConfig::default()));
        Self { store, embedded, waits, calls: Arc::default() }
    }
}

impl Store for Counting {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.waits {
            true => Answer::pending(std::future::pending()),
            false => self.store.call(request, deadline),
        }
    }

    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.is_embedded = self.embedded;
        traits
    }
}

#[test]
fn an_embedded_store_decides_at_once_and_exactly() {
    let clock = ManualClock::at(1_000_000);
    let memory = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
    let (limiter, mails) = (Limiter::new(memory), policy());
    for _ in 0..2 {
        assert!(limiter.check_now(mails.charge("alice", 1)).unwrap().is_allowed());
    }
    let Decision::Denied(denied) = limiter.check_now(mails.charge("alice", 1)).unwrap() else {
        panic!("the quota is spent")
    };
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(60)));
    clock.advance(Duration::from_micros(59_999_999));
    assert!(!limiter.check_now(mails.charge("alice", 1)).unwrap().is_allowed());
    clock.advance(Duration::from_micros(1));
    assert!(limiter.check_now(mails.charge("alice", 1)).unwrap().is_allowed());
    // Several charges: all or none.
    let both = [mails.charge("alice", 2), mails.charge("bob", 1)];
    assert!(!limiter.check_now(both).unwrap().is_allowed());
    assert!(limiter.check_now(mails.charge("bob", 2)).unwrap().is_allowed());
}

#[test]
fn a_store_around_the_embedded_store_decides_too() {
    let store = Counting::new(true, false);
    let (limiter, mails) = (Limiter::new(store.clone()), policy());
    let decisions = [0; 3].map(|_| limiter.check_now(mails.charge("alice", 1)).unwrap());
    assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, true, false]);
    assert_eq!(store.calls.load(Ordering::SeqCst), 3);
    let too_many: Charges<'_> = (0..=Charges::MAX).map(|key| mails.charge(key, 1)).collect();
    assert!(limiter.check_now(too_many).unwrap_err().kind() == ErrorKind::Invalid);
}

#[test]
fn a_remote_store_is_an_error_and_is_not_asked() {
    let store = Counting::new(false, false);
    let (limiter, mails) = (Limiter::new(store.clone()), policy());
    let error: Error = limiter.check_now(mails.charge("alice", 1)).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, Effect::None));
    // A program that admits while the store is down must not admit for this.
    assert!(!error.is_unavailable());
    assert!(error.to_string().starts_with("check_now needs an embedded store"), "{error}");
    assert_eq!(store.calls.load(Ordering::SeqCst), 0);
}

#[test]
fn a_store_that_is_wrongly_called_embedded_is_an_error() {
    let (limiter, mails) = (Limiter::new(Counting::new(true, true)), policy());
    let error = limiter.check_now(mails.charge("alice", 1)).unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Protocol, Effect::Unknown));
}

/// A program without a runtime renews and releases its units, too.
#[test]
fn a_unit_in_flight_lasts_without_a_runtime() {
    let limiter = Limiter::in_memory();
    let quota = Quota::concurrent(1).expires(Duration::from_secs(1)).unwrap();
    let jobs = Policy::new("jobs", quota).unwrap();
    let Decision::Allowed(allowed) = limiter.check_now(jobs.charge("all", 1)).unwrap() else {
        panic!("the unit is free")
    };
    let held = limiter.hold(allowed.into_receipt());
    std::thread::sleep(Duration::from_millis(1_600));
    assert!(!limiter.check_now(jobs.charge("all", 1)).unwrap().is_allowed());
    drop(held);
    assert!(limiter.check_now(jobs.charge("all", 1)).unwrap().is_allowed());
}
