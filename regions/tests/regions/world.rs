//! Regions in one process, over stores that are remote in all but the distance, with a manual clock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use plimsoll::{
    Charge, Decision, Error, Limiter, MemoryStore, Policy, Resilience,
    clock::ManualClock,
    decision::{Denied, Receipt},
    error::{Effect, ErrorKind},
    memory::MemoryConfig,
    policy::Charges,
    store::{Answer, Request, Source, Store, Traits},
};
use plimsoll_regions::{Regions, RegionsConfig};
use tokio::time::sleep;

/// A store whose answers are on their way when they are asked for, which can fail.
#[derive(Debug, Clone)]
pub(crate) struct Remote(Arc<State>);

#[derive(Debug)]
struct State {
    store: MemoryStore,
    mood: AtomicU8,
    /// The time between a decision and its reply, in milliseconds.
    delay: AtomicU64,
    /// The number of checks after which the store is down.
    last: AtomicU64,
    /// The number of requests, by kind.
    checks: AtomicU64,
    refunds: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    Well,
    /// Answers with an error, and does nothing.
    Down,
    /// Never answers, and does nothing.
    Gone,
    /// Does what it is asked, and never answers.
    Mute,
}

impl Remote {
    pub(crate) fn new(clock: &ManualClock) -> Self {
        let store = MemoryStore::new(MemoryConfig::default().max_keys(10_000).clock(clock.clone()));
        Self(Arc::new(State {
            store,
            mood: AtomicU8::new(0),
            delay: AtomicU64::new(0),
            last: AtomicU64::new(u64::MAX),
            checks: AtomicU64::new(0),
            refunds: AtomicU64::new(0),
        }))
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.0.mood.store(mood as u8, SeqCst);
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.0.delay.store(delay.as_millis() as u64, SeqCst);
    }

    /// Fails all checks but the next `checks`.
    pub(crate) fn fail_after(&self, checks: u64) {
        self.0.last.store(self.checks() + checks, SeqCst);
    }

    /// Returns the number of checks so far.
    pub(crate) fn checks(&self) -> u64 {
        self.0.checks.load(SeqCst)
    }

    /// Returns the number of refunds so far.
    pub(crate) fn refunds(&self) -> u64 {
        self.0.refunds.load(SeqCst)
    }

    /// Returns the units that this store counts for a key under this quota.
    pub(crate) fn spent(&self, policy: &Policy, key: &str, quota: &str) -> u64 {
        let charge = policy.charge(key, 0).with_quota(quota.parse().expect("a valid quota"));
        let reply = self
            .0
            .store
            .call(Request::Peek(&[charge]), None)
            .now()
            .expect("ready")
            .expect("a reply");
        let standing = reply.charges()[0].standing;
        standing.limit - standing.remaining
    }
}

impl Remote {
    /// Counts leased quotas as a shared store does. Refunds are not converted, so leased quotas of
    /// tests are those that are counted as they are.
    fn count(&self, request: Request<'_>) -> Answer {
        let counted = |charges: &[Charge<'_>]| -> Vec<Charge<'static>> {
            let counted = |charge: &Charge<'_>| {
                let counted = charge.quota().counted();
                charge.clone().with_quota(counted).into_owned()
            };
            charges.iter().map(counted).collect()
        };
        match request {
            Request::Acquire(charges) => {
                self.0.store.call(Request::Acquire(&counted(charges)), None)
            }
            Request::Peek(charges) => self.0.store.call(Request::Peek(&counted(charges)), None),
            Request::Force(charges) => self.0.store.call(Request::Force(&counted(charges)), None),
            other => self.0.store.call(other, None),
        }
    }
}

impl Store for Remote {
    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.counts_leases = true;
        traits
    }

    fn call(&self, request: Request<'_>, _: Option<std::time::Instant>) -> Answer {
        match request {
            Request::Acquire(_) => self.0.checks.fetch_add(1, SeqCst),
            Request::Refund(_) => self.0.refunds.fetch_add(1, SeqCst),
            _ => 0,
        };
        let mood = self.0.mood.load(SeqCst);
        let is_down =
            matches!(request, Request::Acquire(_)) && self.checks() > self.0.last.load(SeqCst);
        if mood == Mood::Down as u8 || is_down {
            let error = Error::new(ErrorKind::Unavailable, "down");
            return Answer::pending(async { Err(error) });
        }
        if mood == Mood::Gone as u8 {
            return Answer::pending(std::future::pending());
        }
        let reply = self.count(request).now().expect("an embedded store");
        if mood == Mood::Mute as u8 {
            return Answer::pending(std::future::pending());
        }
        let delay = Duration::from_millis(self.0.delay.load(SeqCst));
        Answer::pending(async move {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            reply.map(|mut reply| {
                reply.source = Source::Shared;
                reply
            })
        })
    }
}

/// Several regions and their home.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) home: Remote,
    pub(crate) regions: Vec<Region>,
}

/// One region: its store, and the limiter of an instance.
pub(crate) struct Region {
    pub(crate) store: Remote,
    pub(crate) limiter: Limiter,
}

impl World {
    /// Creates regions without a fallback, to which 60% is guaranteed: of 10 units, each of two has 3, and
    /// the pool 4.
    pub(crate) fn new(regions: u32) -> Self {
        Self::with(regions, RegionsConfig::new(regions).share_percent(60), |it| {
            it.without_fallback()
        })
    }

    pub(crate) fn with(
        regions: u32,
        config: RegionsConfig,
        stages: impl Fn(Resilience) -> Resilience,
    ) -> Self {
        let clock = ManualClock::at(1_700_000_000_000_000);
        let resilience = || stages(Resilience::default().clock(clock.clone()));
        let home = Remote::new(&clock);
        let region = |_| {
            let (store, config) = (Remote::new(&clock), config.clone().resilience(resilience()));
            let regions = Regions::new(store.clone(), home.clone(), config).expect("valid");
            Region { store, limiter: Limiter::with_resilience(regions, resilience()) }
        };
        let regions = (0..regions).map(region).collect();
        Self { clock, home, regions }
    }

    pub(crate) fn region(&self, number: usize) -> &Region {
        &self.regions[number]
    }
}

impl Region {
    pub(crate) async fn check<'p>(&self, charges: impl Into<Charges<'p>>) -> Decision<'p> {
        self.limiter.check(charges).await.expect("a decision")
    }

    /// Returns whether a check of these charges is admitted.
    pub(crate) async fn admits<'p>(&self, charges: impl Into<Charges<'p>>) -> bool {
        self.check(charges).await.is_allowed()
    }

    pub(crate) async fn denial<'p>(&self, charges: impl Into<Charges<'p>>) -> Denied<'p> {
        match self.check(charges).await {
            Decision::Denied(denied) => denied,
            Decision::Allowed(allowed) => panic!("admitted: {allowed:?}"),
        }
    }

    pub(crate) async fn receipt<'p>(&self, charges: impl Into<Charges<'p>>) -> Receipt {
        match self.check(charges).await {
            Decision::Allowed(allowed) => allowed.into_receipt(),
            Decision::Denied(denied) => panic!("denied: {denied:?}"),
        }
    }

    /// Checks with charges of 1 unit until one is denied, and returns the number of those admitted.
    pub(crate) async fn drain(&self, policy: &Policy, key: &str) -> u64 {
        let mut admitted = 0;
        while self.admits(policy.charge(key, 1)).await {
            admitted += 1;
            assert!(admitted < 10_000, "never denied");
        }
        admitted
    }

    /// Returns the units that are left of a key.
    pub(crate) async fn remaining(&self, charge: Charge<'_>) -> u64 {
        let decision = self.limiter.peek(charge).await.expect("a decision");
        decision.outcomes().next().expect("one charge").standing().remaining
    }
}

/// Returns the effect of an error.
pub(crate) fn effect<T: std::fmt::Debug>(result: Result<T, Error>) -> Effect {
    result.expect_err("a failure").effect()
}
