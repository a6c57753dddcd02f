//! One request to a store of one's own, over states that the store keeps as bytes.

use std::time::Duration;

use siphasher::sip128::SipHasher24;

use super::{Request, decide::States};
use crate::{
    algorithm::{At, KeyState, UnlimitedMemory},
    clock::Timestamp,
    decision::{Receipt, ReceiptLine, Source, StoreReply},
    error::{Error, ErrorKind},
    policy::Charge,
    quota::Quota,
};

/// The name of the state of one key under one policy: a hash with a secret, from which neither can be
/// read.
pub type StateId = [u8; 16];

/// A request that a [`Store`](super::Store) of your own executes, with the code of the embedded store.
///
/// A store only has to find and to keep bytes: `Step` knows all algorithms, and all requests. It owns
/// what it needs of the [`Request`], so a store can wait for its database. For each request, the store
///
/// 1. reads the states with the names [`ids`](Self::ids),
/// 2. calls [`run`](Self::run) with its time,
/// 3. keeps the [`StateChange`]s, all or none of them, and returns the reply.
///
/// Between 1 and 3, no other request may change these states. The ids are in one order, in which locks
/// can be taken without a deadlock.
///
/// # Examples
///
/// A store over a map of bytes. It passes the whole contract of stores.
///
/// ```
/// use std::{collections::HashMap, sync::Mutex, time::Instant};
/// use plimsoll::{
///     Limiter, Policy, Quota, clock::{Clock, SystemClock},
///     store::{Answer, Request, Source, StateId, Step, Store, Traits},
/// };
///
/// #[derive(Debug, Default)]
/// struct MapStore {
///     clock: SystemClock,
///     states: Mutex<HashMap<StateId, Vec<u8>>>,
/// }
///
/// impl Store for MapStore {
///     fn call(&self, request: Request<'_>, _: Option<Instant>) -> Answer {
///         let step = Step::new(request, Source::Local, [1, 2]);
///         let mut states = self.states.lock().unwrap();
///         let done = step.run(self.clock.now(), |id| states.get(id).map(Vec::as_slice));
///         Answer::ready(done.map(|(reply, changes)| {
///             for change in changes {
///                 states.insert(change.id, change.bytes);
///             }
///             reply
///         }))
///     }
///
///     // Its answers are ready at once, so that it needs no deadline and no fallback.
///     fn traits(&self) -> Traits {
///         let mut traits = Traits::default();
///         traits.is_embedded = true;
///         traits.marks_debts = true;
///         traits
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// let limiter = Limiter::new(MapStore::default());
/// let day = Policy::new("day", Quota::per_day(2))?;
/// assert!(limiter.check(day.charge("alice", 2)).await?.is_allowed());
/// assert!(!limiter.check(day.charge("alice", 1)).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Step {
    operation: Operation,
    /// The charges of the request. The charges of a refund are in its receipt.
    charges: Vec<Charge<'static>>,
    source: Source,
    /// The names of all states, each once.
    ids: Vec<StateId>,
    /// For each charge, the index of its state.
    places: Vec<usize>,
}

#[derive(Debug)]
enum Operation {
    Acquire,
    Peek,
    Force,
    Refund(Receipt),
    Reset,
    Block(Duration),
    Unblock,
}

/// A state that a [`Step`] has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateChange {
    /// The name of the state.
    pub id: StateId,
    /// The new bytes, none for a key that was reset. They can be removed, or kept as they are.
    pub bytes: Vec<u8>,
    /// The time from which the state counts nothing. From then on the store may remove the bytes.
    pub expires_at: Timestamp,
}

impl Step {
    /// Copies what is needed of a request.
    ///
    /// - `source` is [`Shared`](Source::Shared) for a store that several processes share, and
    ///   [`Local`](Source::Local) otherwise. A shared one counts each charge by
    ///   [`Quota::counted`](crate::Quota::counted), so it has the trait
    ///   [`counts_leases`](super::Traits::counts_leases).
    /// - `secret` is the secret of the [names](Self::ids). All processes that share the states need the same.
    #[must_use]
    pub fn new(request: Request<'_>, source: Source, secret: [u64; 2]) -> Self {
        let operation = match request {
            Request::Acquire(_) => Operation::Acquire,
            Request::Peek(_) => Operation::Peek,
            Request::Force(_) => Operation::Force,
            Request::Refund(receipt) => {
                let lines = receipt.lines().iter().map(|line| {
                    ReceiptLine::new(counted(source, &line.charge), line.units, line.mark)
                });
                Operation::Refund(Receipt::new(receipt.time, receipt.source, lines))
            }
            Request::Reset(_) => Operation::Reset,
            Request::Block(_, duration) => Operation::Block(duration),
            Request::Unblock(_) => Operation::Unblock,
        };
        let of_charges: Vec<_> = request.charges().map(|charge| id(charge, secret)).collect();
        let mut ids = of_charges.clone();
        ids.sort_unstable();
        ids.dedup();
        let places = of_charges.iter().map(|id| ids.binary_search(id).unwrap_or_default());
        let places = places.collect();
        let charges = request.slice().iter().map(|charge| counted(source, charge)).collect();
        Self { operation, charges, source, ids, places }
    }

    /// Returns the names of the states that the request reads or changes: each once, in ascending order.
    ///
    /// A name is a hash of the key, the policy, and the algorithm with the layout of its states. So a
    /// policy that changes its algorithm begins anew, as in all stores.
    #[must_use]
    pub fn ids(&self) -> &[StateId] {
        &self.ids
    }

    /// Executes the request at `time`. Returns the reply, and the states that have changed.
    ///
    /// `state` returns the bytes of a state, or `None` or no bytes for a key that has none.
    ///
    /// # Errors
    ///
    /// An error of the kind [`WrongType`](ErrorKind::WrongType) if some bytes are no state, or were written by
    /// another version. Nothing has changed then.
    pub fn run<'b>(
        &self,
        time: Timestamp,
        state: impl Fn(&StateId) -> Option<&'b [u8]>,
    ) -> Result<(StoreReply, Vec<StateChange>), Error> {
        let found = self.ids.iter().map(|id| state(id).unwrap_or_default());
        let before: Vec<&[u8]> = found.collect();
        let mut states = Restored { step: self, states: before.iter().map(|_| None).collect() };
        for (charge, place) in self.request().charges().zip(&self.places) {
            let bytes = before[*place];
            if states.states[*place].is_none() && !bytes.is_empty() {
                states.states[*place] = Some(restored(charge, bytes)?);
            }
        }
        let charges = states.execute(self.request(), At { now: time, budget: &UnlimitedMemory });
        let after = self.ids.iter().zip(before).zip(&states.states);
        let changes = after.filter_map(|((id, before), state)| {
            let bytes = state.as_ref().map(KeyState::to_bytes).unwrap_or_default();
            let expires_at = state.as_ref().map_or(time, |state| state.expires_at());
            (bytes != before).then_some(StateChange { id: *id, bytes, expires_at })
        });
        let changes = changes.collect();
        Ok((StoreReply::new(time, self.source, charges), changes))
    }

    fn request(&self) -> Request<'_> {
        match &self.operation {
            Operation::Acquire => Request::Acquire(&self.charges),
            Operation::Peek => Request::Peek(&self.charges),
            Operation::Force => Request::Force(&self.charges),
            Operation::Refund(receipt) => Request::Refund(receipt),
            Operation::Reset => Request::Reset(&self.charges),
            Operation::Block(duration) => Request::Block(&self.charges, *duration),
            Operation::Unblock => Request::Unblock(&self.charges),
        }
    }
}

/// Returns the quota by which a store counts.
fn counted_by(source: Source, quota: Quota) -> Quota {
    if source == Source::Shared { quota.counted() } else { quota }
}

/// Returns a charge as a store counts it.
fn counted(source: Source, charge: &Charge<'_>) -> Charge<'static> {
    charge.clone().into_owned().decided_under(counted_by(source, *charge.quota()))
}

fn id(charge: &Charge<'_>, [low, high]: [u64; 2]) -> StateId {
    let policy = charge.policy().name();
    let layout = charge.quota().algorithm().layout();
    // Neither the layout nor the name has a zero byte.
    let named = [layout.as_bytes(), b":", policy.as_bytes(), b"\0", &charge.key().encoded()];
    SipHasher24::new_with_keys(low, high).hash(&named.concat()).as_bytes()
}

fn restored(charge: &Charge<'_>, bytes: &[u8]) -> Result<KeyState, Error> {
    KeyState::from_bytes(charge.quota().algorithm(), bytes).ok_or_else(|| {
        let policy = charge.policy().name();
        let message = format!("the bytes of a key under policy {policy} are no state of it");
        Error::new(ErrorKind::WrongType, message)
    })
}

/// The states of a step while it runs.
struct Restored<'s> {
    step: &'s Step,
    /// In the order of the ids.
    states: Vec<Option<KeyState>>,
}

impl States for Restored<'_> {
    fn get(&mut self, index: usize) -> Option<&mut KeyState> {
        self.states[self.step.places[index]].as_mut()
    }

    fn get_or_insert(&mut self, index: usize, charge: &Charge<'_>) -> &mut KeyState {
        let state = &mut self.states[self.step.places[index]];
        state.get_or_insert_with(|| KeyState::new(charge.quota().algorithm()))
    }

    fn remove(&mut self, index: usize) {
        self.states[self.step.places[index]] = None;
    }

    fn quota_in_force(&self, charge: &Charge<'_>) -> Quota {
        counted_by(self.step.source, charge.quota_in_force())
    }
}
