//! The interface of the cache to the pipeline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

use super::{
    super::fingerprint::{Fingerprint, Fingerprints},
    table::{CacheTable, CachedDenial, Found, unknown},
};
use crate::{
    clock::{Clock, Timestamp, micros},
    decision::{ChargeReply, Source, StoreReply, Verdict},
    error::{Effect, Error},
    policy::Charge,
    store::Request,
    telemetry,
};

/// A cache of the store's denials, which the pipeline asks before it calls the store.
#[derive(Debug)]
pub(in crate::remote) struct DenyCache {
    table: CacheTable,
    clock: Arc<dyn Clock>,
    /// The longest time between the end of a caller's wait and the arrival of its request at the
    /// store, in microseconds.
    max_delay: u64,
    /// The current second, and the number of checks that were sent in it because of a key without an entry.
    sent_unknown: AtomicU64,
}

/// The most checks a second that are sent to the store although it denies them, to learn the wait for a key
/// without an entry. It bounds the calls that clients can cause who invent a key for each request.
const MAX_UNKNOWN_PER_SECOND: u64 = 1_000;

/// A denial that the cache implies.
struct ImpliedDenial {
    reply: StoreReply,
    /// True if the wait for a key without an entry may be longer than the wait of the reply.
    is_wait_unknown: bool,
}

/// A request in flight. [`DenyCache::record`] or [`DenyCache::abandon`] ends it.
#[derive(Debug, Default)]
pub(in crate::remote) enum TrackedRequest {
    /// A request that changes nothing, and whose reply is not kept.
    #[default]
    Untracked,
    /// A check, whose reply may be kept.
    Check(SentCheck),
    /// A request that changes these keys. The replies to checks that are sent or answered before it
    /// has ended are not kept.
    Change(Fingerprints),
}

/// The state of the cache just before a check is sent.
#[derive(Debug)]
pub(in crate::remote) struct SentCheck {
    time: Timestamp,
    /// One for each charge, in their order.
    keys: SmallVec<[CheckedKey; 2]>,
}

#[derive(Debug, Clone, Copy)]
struct CheckedKey {
    fingerprint: Fingerprint,
    /// The number of changes of the key before the check.
    changes: u64,
}

impl DenyCache {
    /// Creates a cache for a store at which requests arrive no later than `max_delay` after their
    /// callers have stopped waiting.
    pub(in crate::remote) fn new(clock: Arc<dyn Clock>, max_delay: Duration) -> Self {
        let max_delay = micros(max_delay);
        Self { table: CacheTable::new(), clock, max_delay, sent_unknown: AtomicU64::new(0) }
    }

    /// Looks up a request before it is sent.
    ///
    /// # Errors
    ///
    /// Returns the denial of a check if the cache implies it. The store is not asked then.
    pub(in crate::remote) fn begin(
        &self,
        request: Request<'_>,
    ) -> Result<TrackedRequest, StoreReply> {
        match request {
            Request::Acquire(charges) => {
                let check = self.look_up(charges);
                let now = check.time.as_micros();
                match self.denial(&check, charges) {
                    Some(denial) if !denial.is_wait_unknown || !self.may_send_unknown(now) => {
                        telemetry::denied_from_cache();
                        Err(denial.into_reply())
                    }
                    _ => Ok(TrackedRequest::Check(check)),
                }
            }
            Request::Peek(_) => Ok(TrackedRequest::Untracked),
            Request::Force(charges)
            | Request::Reset(charges)
            | Request::Block(charges, _)
            | Request::Unblock(charges) => Ok(self.begin_change(charges)),
            Request::Refund(receipt) => {
                Ok(self.begin_change(receipt.lines().iter().map(|spent| &spent.charge)))
            }
        }
    }

    /// Ends a request whose reply has arrived. `charges` are the charges of a check, and empty for other
    /// requests.
    pub(in crate::remote) fn record(
        &self,
        request: TrackedRequest,
        charges: &[Charge<'_>],
        reply: &Result<StoreReply, Error>,
    ) {
        match (request, reply) {
            (TrackedRequest::Check(check), Ok(reply)) => self.record_check(&check, charges, reply),
            (TrackedRequest::Change(keys), Ok(_)) => keys.into_iter().for_each(|key| {
                self.table.change(key);
            }),
            // The store has not applied the request, and will not apply it later.
            (_, Err(error)) if error.effect() == Effect::None => {}
            (request, Err(_)) => self.abandon(request, charges),
            (TrackedRequest::Untracked, Ok(_)) => {}
        }
    }

    /// Ends a request without a reply. The store may or may not have applied it.
    pub(in crate::remote) fn abandon(&self, request: TrackedRequest, charges: &[Charge<'_>]) {
        match request {
            TrackedRequest::Untracked => {}
            TrackedRequest::Check(check) => {
                // If the cache shows that the store denies the check, nothing was spent, and the
                // entries stay. Otherwise clients that disconnect would void the entry of a key
                // again and again.
                if self.denial(&self.look_up(charges), charges).is_none() {
                    check.keys.iter().for_each(|key| {
                        self.table.change(key.fingerprint);
                    });
                }
            }
            TrackedRequest::Change(keys) => {
                let until = self.clock.now().as_micros().saturating_add(self.max_delay);
                keys.into_iter().for_each(|key| self.table.change_until(key, until));
            }
        }
    }

    fn begin_change<'c>(
        &self,
        charges: impl IntoIterator<Item = &'c Charge<'c>>,
    ) -> TrackedRequest {
        let keys = charges.into_iter().map(|charge| {
            let fingerprint = self.table.fingerprint(charge);
            self.table.change(fingerprint);
            fingerprint
        });
        TrackedRequest::Change(keys.collect())
    }

    fn look_up(&self, charges: &[Charge<'_>]) -> SentCheck {
        let keys = charges.iter().map(|charge| {
            let fingerprint = self.table.fingerprint(charge);
            CheckedKey { fingerprint, changes: self.table.changes(fingerprint) }
        });
        // The time is read after the changes, so that no wait begins before them.
        SentCheck { keys: keys.collect(), time: self.clock.now() }
    }

    /// Returns the denial of a check, if the cache shows that at least one of its charges is
    /// refused. A check with a [trial](Charge::trial) always goes to the store, which counts the trial also
    /// if it denies the check.
    fn denial(&self, check: &SentCheck, charges: &[Charge<'_>]) -> Option<ImpliedDenial> {
        if charges.iter().any(Charge::is_trial) {
            return None;
        }
        let now = check.time.as_micros();
        let mut refused = false;
        let mut is_wait_unknown = false;
        let mut never_passes = false;
        let mut time = 0;
        let mut replies = SmallVec::new();
        for (key, charge) in check.keys.iter().zip(charges) {
            let quota = charge.quota().counted();
            let cost = charge.cost();
            replies.push(match self.table.find(key.fingerprint, &quota, key.changes, now) {
                Found::Denial(denial) => {
                    let reply = denial.reply(cost, now)?;
                    refused |= charge.is_live() && reply.verdict != Verdict::Passed;
                    time = time.max(denial.store_time(now));
                    reply
                }
                Found::Void => return None,
                Found::Nothing => {
                    is_wait_unknown |= charge.is_live() && cost > 0;
                    unknown(&quota, cost)
                }
            });
            never_passes |= charge.is_live() && cost > quota.capacity();
        }
        let time = Timestamp::from_micros(time);
        refused.then_some(ImpliedDenial {
            reply: StoreReply { time, source: Source::Cache, charges: replies },
            is_wait_unknown: is_wait_unknown && !never_passes,
        })
    }

    /// Counts a check with a key without an entry. Returns `false` if too many were sent in this second.
    fn may_send_unknown(&self, now: u64) -> bool {
        let second = (now / 1_000_000) << 16;
        let counted =
            self.sent_unknown.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sent| {
                let sent = if sent & !0xffff == second { sent & 0xffff } else { 0 };
                (sent < MAX_UNKNOWN_PER_SECOND).then_some(second | (sent + 1))
            });
        counted.is_ok()
    }

    fn record_check(&self, check: &SentCheck, charges: &[Charge<'_>], reply: &StoreReply) {
        if reply.source != Source::Shared || reply.charges.len() != check.keys.len() {
            // The reply of a fallback says nothing about the keys in the shared store.
            return check.keys.iter().for_each(|key| {
                self.table.change(key.fingerprint);
            });
        }
        let lines = charges.iter().zip(&reply.charges);
        let admitted = lines
            .clone()
            .all(|(charge, reply)| !charge.is_live() || reply.verdict == Verdict::Passed);
        for (key, (charge, charge_reply)) in check.keys.iter().zip(lines) {
            let changes = match charge_reply.units {
                0 => Some(key.changes),
                _ => self.change_by_check(key),
            };
            // An admission is kept only if the same check would be refused next. Most keys never
            // reach their limit, and need no entry.
            let is_denial = !admitted || charge_reply.standing.remaining < charge.cost();
            if let (Some(changes), true) = (changes, is_denial) {
                self.keep(check.time, key, changes, charge, charge_reply, reply.time);
            }
        }
    }

    /// Counts the change of a key by a check that spent units, which voids the entry of the key.
    /// Returns the new number of changes if there was no other change since the check was sent, so
    /// that the reply to the check can be kept.
    fn change_by_check(&self, key: &CheckedKey) -> Option<u64> {
        let before = self.table.change(key.fingerprint);
        (before == key.changes).then_some(before + 1)
    }

    fn keep(
        &self,
        asked_at: Timestamp,
        key: &CheckedKey,
        changes: u64,
        charge: &Charge<'_>,
        reply: &ChargeReply,
        store_time: Timestamp,
    ) {
        let asked_at = asked_at.as_micros();
        let latency = self.clock.now().as_micros().saturating_sub(asked_at);
        let quota = charge.quota().counted();
        let denial = CachedDenial::new(
            &quota,
            charge.cost(),
            &reply.standing,
            (asked_at, latency),
            store_time.as_micros(),
        );
        if let Some(denial) = denial {
            self.table.insert(key.fingerprint, quota, changes, asked_at, denial);
        }
    }
}

impl ImpliedDenial {
    /// Returns the reply, without a wait if that is not known.
    fn into_reply(mut self) -> StoreReply {
        if self.is_wait_unknown {
            self.reply.charges.iter_mut().for_each(|it| it.standing.retry_after = None);
        }
        self.reply
    }
}
