//! The embedded store.

use super::{
    MemoryConfig,
    decide::{decide_entry, execute},
    entry_id::EntryId,
    shards::Shards,
    usage::size_text,
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Checked, Receipt},
    policy::Charge,
    store::{
        Answer, MemoryStats, Request, Source, Status, Store, StoreReply, Traits, decide::Mode,
    },
};

/// A store of standings in this process: the store of
/// [`Limiter::in_memory`](crate::Limiter::in_memory).
///
/// It holds at most [`max_keys`](MemoryConfig::max_keys) keys (a key under two policies counts as
/// two) in about [`max_bytes`](MemoryConfig::max_bytes) bytes. New keys reclaim the room of expired
/// ones, a few at a time: there is no background task and no long pause.
///
/// # When the store is full
///
/// A new key always finds a place and is decided by its own quota, as in a store without a maximum.
/// It replaces another key, usually one of its own shard. A shard has 8 to 16 places, and about
/// [`max_keys`](MemoryConfig::max_keys) / 65,536 in a store of more than a million keys. A key of
/// another shard is replaced in two cases: only the other shard has an expired key, or the own shard
/// holds fewer keys than the mean of all shards.
///
/// The rules for the choice of the key are:
///
/// - An expired key is replaced first.
/// - If none has expired, the keys are in classes, as they were when they were last checked. A key is
///   *shut out* if it has no units left, because it has spent its whole quota or is
///   [blocked](crate::Limiter::block). Keys that are shut out are in a class by their wait: the waits of each
///   class are up to eight times as long as in the class before. Other keys are in a class by the part of their
///   own quota that they have spent: at least a half, a quarter, an eighth, and so on down to less than 1/64.
///   The class with the most places loses the key that was not checked for the longest time. A denied check
///   counts like an admitted one.
/// - The classes of the keys that are shut out lose a key only if they have more than half of the places
///   together, or if there are no other keys.
///
/// So a flood of made-up keys replaces its own keys first. With `N` for `max_keys`:
///
/// - The store forgets a client that is shut out only after about `N / 2` other keys with similar waits
///   have been shut out since the client's last request. So a client that keeps sending requests stays
///   shut out. Example: in a store of a million keys, an attacker must spend the quotas of about 500,000
///   keys between two requests of the client: 2.5 million requests if a quota is 5 requests.
/// - A flood of keys that are shut out for a minute, such as under a quota of 1 request a minute, does not
///   replace a key that is blocked for an hour.
/// - A client that has spent a part of its quota keeps its state while its class is not the largest. The
///   keys of a flood with one request a key are in the class of the least part, unless the quota is 1
///   request.
/// - A flood of `R` new keys a second replaces the keys of its class in about `N / (2 R)` seconds:
///   12 s for a million keys and 42,300 new keys a second. In 98% of all cases, the store still
///   knows a client of this class that sends its next request within a quarter of this time.
///
/// The store forgets the units that an evicted key has spent: its next request finds a fresh quota.
///
/// # Bounds
///
/// The keys of one check are never replaced by each other. A check with more charges than the store
/// has places therefore brings more keys than `max_keys` for a time, and so do several threads that add
/// keys at the same time. The next new keys replace the surplus. A log that would need more than
/// `max_bytes` merges its newest units, so that they come back late and never early.
///
/// [`Limiter::status`](crate::Limiter::status) counts the keys that were evicted, and the units that they had spent.
///
/// ```
/// use plimsoll::{Limiter, MemoryStore, memory::MemoryConfig};
///
/// let store = MemoryStore::new(MemoryConfig::default().max_keys(50_000));
/// let limiter = Limiter::new(store);
/// assert_eq!(limiter.status().memory.expect("a memory store").keys, 0);
/// ```
#[derive(Debug)]
pub struct MemoryStore(Shards);

impl MemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new(config: MemoryConfig) -> Self {
        Self(Shards::new(config))
    }

    /// Returns the number of keys and bytes in the store, and what it had to forget.
    pub(crate) fn stats(&self) -> MemoryStats {
        let mut stats = self.0.usage.stats();
        stats.bytes += self.0.bytes();
        stats
    }

    /// Decides a check now.
    pub(crate) fn acquire(&self, check: &mut Checked<'_>) {
        let Checked { charges, reply } = check;
        self.execute(Request::Acquire(charges), self.0.clock.now(), reply);
    }

    /// Executes a request at `time`.
    pub(crate) fn call_at(&self, request: Request<'_>, time: Timestamp) -> StoreReply {
        let mut reply = StoreReply::default();
        self.execute(request, time, &mut reply);
        reply
    }

    /// Executes a request at `time`, and fills the reply.
    fn execute(&self, request: Request<'_>, time: Timestamp, reply: &mut StoreReply) {
        (reply.time, reply.source) = (time, Source::Local);
        execute(&self.0, request, time, &mut reply.charges);
    }

    /// Returns a name for the standing of this charge, which is unique in this process.
    pub(crate) fn name(&self, charge: &Charge<'_>) -> u128 {
        self.0.secret.entry(charge).to_u128()
    }

    /// Decides a charge with this [`name`](Self::name), which is alone in its check.
    pub(crate) fn acquire_named(
        &self,
        name: u128,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> ChargeReply {
        decide_entry(&self.0, EntryId::from_u128(name), charge, now, Mode::Acquire)
    }

    /// Returns how many units of a key are outstanding at `now`, also beyond the limit, or `None` if the store
    /// does not know the key.
    pub(crate) fn outstanding(&self, charge: &Charge<'_>, now: Timestamp) -> Option<u64> {
        let id = self.0.secret.entry(charge);
        let mut shard = self.0.lock(self.0.shard_of(id));
        let position = shard.position(id);
        Some(shard.entry(position?).state.outstanding(now))
    }

    /// Releases the units in flight of a receipt. Nothing reads a reply to it, so it reads no clock and computes no
    /// standing.
    pub(crate) fn release(&self, receipt: &Receipt) {
        for line in receipt.lines() {
            let id = self.0.secret.entry(&line.charge);
            let mut shard = self.0.lock(self.0.shard_of(id));
            if let Some(position) = shard.position(id) {
                shard.entry(position).state.release(line.mark, line.units);
            }
        }
    }
}

impl Store for MemoryStore {
    fn call(&self, request: Request<'_>, _: Option<std::time::Instant>) -> Answer {
        Answer::ready(Ok(self.call_at(request, self.0.clock.now())))
    }

    fn traits(&self) -> Traits {
        Traits { is_embedded: true, marks_debts: true, ..Traits::default() }
    }

    fn status(&self) -> Status {
        Status { memory: Some(self.stats()), instances: Some(1), ..Status::default() }
    }

    fn description(&self) -> String {
        let (keys, bytes) = self.0.usage.bounds();
        format!("memory ({})", size_text(keys, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn the_mark_of_a_charge_to_a_bucket_has_its_debt() {
        let store = MemoryStore::new(MemoryConfig::default());
        let policy = Policy::new("p", "1/day token-bucket(9)").expect("valid");
        let debts = [2, 3].map(|cost| {
            let charges = [policy.charge("alice", cost)];
            let reply = store.call_at(Request::Acquire(&charges), Timestamp::from_micros(1 << 40));
            reply.charges()[0].mark.0[1]
        });
        assert_eq!((store.traits().marks_debts, debts), (true, [2, 5]));
    }
}
