//! The embedded store: standings in this process, bounded in keys and in bytes.

mod acquire;
mod index;
mod ledger;
mod room;
mod shard;

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use self::{
    ledger::Ledger,
    shard::{Digest, Shard},
};
use super::{Answer, ChargeReply, Request, Source, Status, Store, StoreReply, Verdict};
use crate::{
    algorithm,
    clock::{Clock, SystemClock, Timestamp},
    decision::{Mark, Receipt, Spent, Standing},
    key::Key,
    policy::Charge,
};

/// Standings in this process: the store behind [`Limiter::in_memory`](crate::Limiter::in_memory).
///
/// It holds at most [`max_keys`](MemoryConfig::max_keys) keys (a key under a policy is one) in
/// about [`max_bytes`](MemoryConfig::max_bytes) bytes. What has expired is reclaimed by the keys
/// that come after it, a little each time: there is no background task and no long pause.
///
/// When it is full, a newcomer takes the place of an expired key, else of the one that has spent
/// least of a small sample, but never of a key that is turning charges away: nobody gets a fresh
/// quota by filling the store. If no key can go, the newcomers of one policy share a standing: one
/// for each policy in each full shard (there is a shard for about 16 keys), beyond `max_keys`;
/// threads that add a key at the same moment may be beyond it too.
/// A log that cannot grow for want of memory keeps its newest units together, so that they come
/// back late, never early. [`stats`](Self::stats) counts all of this.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Padded]>,
    ledger: Ledger,
    clock: Arc<dyn Clock>,
    secret: Secret,
}

/// A shard on two cache lines of its own, as they are fetched in pairs, so that threads on different
/// shards do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

const _: () = assert!(size_of::<Padded>() == 128);

#[derive(Clone, Copy)]
struct Secret(u64, u64);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// How much a [`MemoryStore`] holds, and which clock it reads.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// The most keys (a key under a policy is one). The default is 1,000,000, for which an empty
    /// store takes 8 MiB.
    pub max_keys: usize,
    /// The most bytes, about, in tables and logs. The default is 256 MiB.
    pub max_bytes: usize,
    /// Where the time comes from. The default is [`SystemClock`].
    pub clock: Arc<dyn Clock>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { max_keys: 1_000_000, max_bytes: 256 << 20, clock: Arc::new(SystemClock::new()) }
    }
}

impl MemoryConfig {
    /// Holds at most this many keys, at least 1.
    #[must_use]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.max_keys = keys;
        self
    }

    /// Holds about this many bytes.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Reads this clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

/// What a [`MemoryStore`] holds, and what it had to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys held, expired ones that have not been reclaimed included.
    pub keys: usize,
    /// Bytes held in tables and logs.
    pub bytes: usize,
    /// Keys evicted before they expired.
    pub evicted: u64,
    /// Units that evicted keys had not got back yet.
    pub forgiven: u64,
    /// Charges of newcomers that found no room and shared a standing.
    pub overflowed: u64,
}

/// Shards hold about so many keys when the store is full: so few that two threads rarely meet in
/// one, and that no table takes long to grow.
const KEYS_PER_SHARD: usize = 16;
/// Enough for any number of threads.
const MAX_SHARDS: usize = 65_536;

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        let MemoryConfig { max_keys, max_bytes, clock } = config;
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().min(MAX_SHARDS);
        let random = RandomState::new();
        Self {
            shards: (0..shards).map(|_| Padded::default()).collect(),
            ledger: Ledger::new(max_keys, max_bytes),
            clock,
            secret: Secret(random.hash_one(0), random.hash_one(1)),
        }
    }

    /// What the store holds.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.ledger.keys(),
            bytes: self.ledger.bytes() + self.shards.len() * size_of::<Padded>(),
            evicted: self.ledger.evicted(),
            forgiven: self.ledger.forgiven(),
            overflowed: self.ledger.overflowed(),
        }
    }

    /// A check of one charge, and the time of it.
    #[inline]
    pub(crate) fn acquire(&self, charge: &Charge<'_>) -> (Timestamp, ChargeReply) {
        let time = self.clock.now();
        (time, self.decide_one(charge, time, acquire::Mode::Acquire))
    }

    /// Names cannot be chosen by clients, keys can: the policy and the algorithm go into the
    /// hasher's own key, beside the secret, and only the client's key is hashed.
    #[inline]
    fn digest(&self, charge: &Charge<'_>, key: &Key) -> Digest {
        let algorithm = u64::from(charge.quota().algorithm().number());
        let Secret(low, high) = self.secret;
        let [low, high] = key.digest_keyed([low ^ charge.policy().id(), high ^ algorithm]);
        Digest(low, high)
    }

    /// What tells this charge's standing from others, in this process.
    #[inline]
    pub(in crate::store) fn name(&self, charge: &Charge<'_>) -> u128 {
        self.digest(charge, charge.key()).to_u128()
    }

    /// Decides a charge of this [`name`](Self::name), which is alone in its check.
    #[inline]
    pub(in crate::store) fn acquire_named(
        &self,
        name: u128,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> ChargeReply {
        self.decide_named(Digest::from_u128(name), charge, now, acquire::Mode::Acquire)
    }

    fn shard_of(&self, digest: Digest) -> usize {
        digest.1 as usize & (self.shards.len() - 1)
    }

    /// A panic elsewhere leaves no half-made change behind, so a poisoned lock is still good.
    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refund(&self, receipt: &Receipt, now: Timestamp) -> SmallVec<[ChargeReply; 1]> {
        let lines = receipt.lines();
        lines.iter().map(|spent| self.give_back_one(spent, now)).collect()
    }

    fn give_back_one(&self, spent: &Spent, now: Timestamp) -> ChargeReply {
        let (charge, mark) = (spent.charge(), spent.mark());
        let quota = charge.quota_in_force();
        let digest = self.digest(charge, charge.key());
        let mut shard = self.lock(self.shard_of(digest));
        let (units, standing) = match shard.position(digest) {
            None => (0, Standing::full(quota.capacity())),
            Some(position) => {
                let back = algorithm::Refund { quota: *charge.quota(), units: spent.units(), mark };
                let state = &mut shard.entry(position).state;
                (state.refund(&quota, now, &back), state.standing(&quota, now, 0))
            }
        };
        ChargeReply { verdict: Verdict::Passed, units, standing, mark }
    }

    fn reset(&self, charges: &[Charge<'_>]) -> SmallVec<[ChargeReply; 1]> {
        let line = |charge: &Charge<'_>| {
            let digest = self.digest(charge, charge.key());
            let mut shard = self.lock(self.shard_of(digest));
            if let Some(position) = shard.position(digest) {
                shard.remove(position, &self.ledger);
            }
            let standing = Standing::full(charge.quota().capacity());
            ChargeReply { verdict: Verdict::Passed, units: 0, standing, mark: Mark::default() }
        };
        charges.iter().map(line).collect()
    }
}

impl Store for MemoryStore {
    fn is_embedded(&self) -> bool {
        true
    }

    fn status(&self) -> Status {
        Status::new().with_memory(self.stats())
    }

    fn call(&self, request: Request<'_>) -> Answer {
        Answer::ready(Ok(self.rule(request, self.clock.now())))
    }
}

impl MemoryStore {
    /// Does what is asked at this time.
    #[inline]
    pub(crate) fn rule(&self, request: Request<'_>, time: Timestamp) -> StoreReply {
        let lines = match request {
            Request::Acquire(charges) => self.decide(charges, time, acquire::Mode::Acquire),
            Request::Peek(charges) => self.decide(charges, time, acquire::Mode::Peek),
            Request::Force(charges) => self.decide(charges, time, acquire::Mode::Force),
            Request::Refund(receipt) => self.refund(receipt, time),
            Request::Reset(charges) => self.reset(charges),
        };
        StoreReply { time, source: Source::Local, charges: lines }
    }
}
