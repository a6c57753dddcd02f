//! The contract of every store, for the embedded store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use plimsoll::{
    Limiter, Policy,
    clock::{Clock, ManualClock},
    error::ErrorKind,
    store::{Answer, Request, Source, StateChange, StateId, Step, Store, Traits},
};
use plimsoll_testing::{Fixture, contract::leases::counts, memory, store_contract};

store_contract!(in_memory, plimsoll_testing::memory);
store_contract!(wrapped, plimsoll_testing::wrapped_memory);
store_contract!(over_a_map, crate::contract::over_a_map);
store_contract!(over_a_shared_map, crate::contract::over_a_shared_map);

mod shared_over_a_map {
    plimsoll_testing::shared_suite!(crate::contract::over_a_shared_map);
}

/// The store of the example of [`Step`], with a clock that is set by hand. Before each request
/// that may change a state, it removes the expired ones, which must change no decision.
#[derive(Debug)]
struct MapStore {
    clock: ManualClock,
    source: Source,
    states: Arc<Mutex<HashMap<StateId, StateChange>>>,
}

impl Store for MapStore {
    fn call(&self, request: Request<'_>, _: Option<Instant>) -> Answer {
        let step = Step::new(request, self.source, [1, 2]);
        let mut states = self.states.lock().expect("no panic");
        let time = self.clock.now();
        if !matches!(request, Request::Peek(_)) {
            states.retain(|_, state| time < state.expires_at);
        }
        let done = step.run(time, |id| states.get(id).map(|state| state.bytes.as_slice()));
        Answer::ready(done.map(|(reply, changes)| {
            for change in changes {
                assert!(!change.bytes.is_empty() || change.expires_at == time, "{change:?}");
                states.insert(change.id, change);
            }
            reply
        }))
    }

    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.is_embedded = true;
        traits.marks_debts = true;
        traits
    }
}

fn map_store(source: Source) -> (MapStore, ManualClock) {
    let clock = ManualClock::default();
    (MapStore { clock: clock.clone(), source, states: Arc::default() }, clock)
}

pub(crate) async fn over_a_map() -> Fixture {
    let (store, clock) = map_store(Source::Local);
    Fixture::new(Limiter::new(store), move |micros| clock.set(micros))
}

async fn over_a_shared_map() -> Fixture {
    let (store, clock) = map_store(Source::Shared);
    Fixture::new(Limiter::new(store), move |micros| clock.set(micros)).shared()
}

/// A store may remove a state when it has expired, and damaged bytes are an error for their key alone.
#[tokio::test]
async fn a_step_says_when_a_state_expires_and_takes_no_other_bytes_for_one() {
    let (store, clock) = map_store(Source::Local);
    let states = Arc::clone(&store.states);
    let policy = Policy::new("p", "3/min fixed-window").expect("valid");
    clock.set(90_000_000);
    let charges = [policy.charge("alice", 2)];
    let step = Step::new(Request::Acquire(&charges), Source::Local, [1, 2]);
    let (_, changes) = step.run(clock.now(), |_| None).expect("no bytes");
    assert_eq!((changes.len(), step.ids().len()), (1, 1));
    assert_eq!(changes[0].expires_at.as_micros(), 120_000_000);
    let denied = [policy.charge("alice", 2)];
    let denied = Step::new(Request::Acquire(&denied), Source::Local, [1, 2]);
    let (reply, unchanged) =
        denied.run(clock.now(), |_| Some(changes[0].bytes.as_slice())).expect("its bytes");
    assert_eq!((reply.charges()[0].units, unchanged.len()), (0, 0), "a denial changes nothing");

    let limiter = Limiter::new(store);
    assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
    states.lock().expect("no panic").values_mut().for_each(|state| state.bytes[5] ^= 1);
    assert!(limiter.check(policy.charge("bob", 1)).await.expect("an answer").is_allowed());
    let error = limiter.check(policy.charge("alice", 1)).await.expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(!error.to_string().contains("alice"), "{error}");
}

/// Each unit is used when it is granted, so it counts over the window alone.
#[tokio::test]
async fn a_lease_changes_nothing() {
    let fixture = memory().await;
    const SECOND: u64 = 1_000_000;
    let log = [(0, 2), (10 * SECOND - 1, 2), (10 * SECOND, 10)];
    counts(&fixture, "sliding-log", 10, &log).await;
    let buckets = [(0, 2), (12 * SECOND - 1, 2), (12 * SECOND, 10)];
    counts(&fixture, "sliding-buckets(5)", 10, &buckets).await;
    let counter = [(0, 2), (10 * SECOND, 2), (15 * SECOND, 6), (20 * SECOND, 10)];
    counts(&fixture, "sliding-counter", 10, &counter).await;
    let bucket = [(0, 2), (SECOND - 1, 2), (SECOND, 3), (8 * SECOND, 10)];
    counts(&fixture, "token-bucket(10)", 10, &bucket).await;
    let fixed = [(0, 2), (10 * SECOND - 1, 2), (10 * SECOND, 10)];
    counts(&fixture, "fixed-window", 10, &fixed).await;
}
