//! The decisions of this process while the store cannot answer.
//!
//! The [`OnFailure`] of each charge says what happens to the charge. The units that this process
//! admits go into the [`Backlog`], and are charged to the store when it answers again.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{super::instances::Instances, backlog::Backlog};
use crate::{
    clock::{Clock, Timestamp},
    decision::{ChargeReply, Mark, Receipt, ReceiptLine, Source, Standing, StoreReply, Verdict},
    error::{Effect, Error, ErrorKind},
    memory::{MemoryConfig, MemoryStore},
    policy::{Charge, OnFailure},
    store::{MemoryStats, Request},
    telemetry,
};

/// A memory store that enforces this process's share of each limit while the shared store cannot
/// answer.
#[derive(Debug)]
pub(crate) struct Fallback {
    pub(super) local: MemoryStore,
    pub(super) clock: Arc<dyn Clock>,
    /// The instances that share each limit.
    pub(super) instances: Arc<Instances>,
    pub(super) backlog: Backlog,
}

/// The reason why the store does not decide.
#[derive(Debug)]
pub(in crate::remote) enum Cause {
    /// The breaker rejected the request, so it was not sent to the store.
    Rejected,
    /// The store failed.
    Failed(Error),
}

/// The wait in a denial if the real wait is not known.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

impl Fallback {
    pub(in crate::remote) fn new(memory: MemoryConfig, instances: Arc<Instances>) -> Self {
        let clock = Arc::clone(&memory.clock);
        let local = MemoryStore::new(memory);
        Self { local, clock, instances, backlog: Backlog::new() }
    }

    pub(in crate::remote) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    pub(in crate::remote) fn stats(&self) -> MemoryStats {
        self.local.stats()
    }

    /// Executes `request` in place of the store.
    ///
    /// # Errors
    ///
    /// Returns the error of `cause` if a charge says [`OnFailure::Deny`], if the request is
    /// invalid, or if only the store can execute it.
    pub(in crate::remote) fn execute(
        &self,
        request: Request<'_>,
        cause: Cause,
    ) -> Result<StoreReply, Error> {
        if cause.is_by_request() {
            return Err(cause.into_error());
        }
        match request {
            Request::Acquire([charge]) if self.decides_alone(charge) => {
                telemetry::fell_back();
                let time = self.clock.now();
                let reply = self.acquire(charge, time, cause.was_not_applied());
                let charges = SmallVec::from_buf([reply]);
                Ok(StoreReply { time, source: Source::Fallback, charges })
            }
            Request::Acquire(charges) | Request::Peek(charges) => {
                if charges.iter().any(denies) {
                    return Err(cause.into_error());
                }
                let is_acquire = matches!(request, Request::Acquire(_));
                if is_acquire {
                    telemetry::fell_back();
                }
                Ok(self.acquire_or_peek(charges, is_acquire, cause.was_not_applied()))
            }
            Request::Force(charges) => self.force(charges, cause),
            Request::Refund(_) | Request::Reset(_) | Request::Block(..) | Request::Unblock(_) => {
                Err(cause.into_error())
            }
        }
    }

    /// Returns whether the share of this process alone decides a check with this only charge.
    fn decides_alone(&self, charge: &Charge<'_>) -> bool {
        decides(charge) && charge.is_live()
    }

    /// Decides a check with one charge, the common case, without a copy of the charge and with one hash of the key
    /// (`benches/resilience.rs`: the breaker is open). Its units go into the backlog only if the store has
    /// certainly not charged them.
    fn acquire(&self, charge: &Charge<'_>, time: Timestamp, was_not_applied: bool) -> ChargeReply {
        let part;
        let share = match self.instances.shares() {
            1 => charge,
            instances => {
                part = charge.share(instances);
                &part
            }
        };
        let name = self.local.name(charge);
        let mut reply = self.local.acquire_named(name, share, time);
        if was_not_applied && reply.units > 0 && is_replayed(charge) {
            self.backlog.add(name, charge, reply.units, time);
        }
        judge_share(charge, share, &mut reply);
        reply
    }

    fn acquire_or_peek(
        &self,
        charges: &[Charge<'_>],
        is_acquire: bool,
        was_not_applied: bool,
    ) -> StoreReply {
        let instances = self.instances.shares();
        let shares: SmallVec<[Charge<'_>; 4]> =
            charges.iter().filter(|it| decides(it)).map(|it| it.share(instances)).collect();
        let request = if is_acquire { Request::Acquire(&shares) } else { Request::Peek(&shares) };
        let reply = self.local.call_at(request, self.clock.now());
        // The shares and their replies are in the order of the charges that they belong to.
        let mut decided = shares.iter().zip(reply.charges);
        let charges = charges.iter().map(|charge| {
            if !decides(charge) {
                return untouched(charge);
            }
            let Some((share, mut charge_reply)) = decided.next() else { return untouched(charge) };
            if charge_reply.units > 0 && is_replayed(charge) && was_not_applied {
                let name = self.local.name(charge);
                self.backlog.add(name, charge, charge_reply.units, reply.time);
            }
            judge_share(charge, share, &mut charge_reply);
            charge_reply
        });
        StoreReply { time: reply.time, source: Source::Fallback, charges: charges.collect() }
    }

    /// Charges units beyond the limit in this process, and later in the store unless it may have
    /// done so already or the charge is a shadow.
    fn force(&self, charges: &[Charge<'_>], cause: Cause) -> Result<StoreReply, Error> {
        let instances = self.instances.shares();
        let shares: SmallVec<[Charge<'_>; 4]> =
            charges.iter().map(|charge| charge.share(instances)).collect();
        let reply = self.local.call_at(Request::Force(&shares), self.clock.now());
        if !cause.was_not_applied() {
            return Err(cause.into_error());
        }
        telemetry::fell_back();
        for charge in charges.iter().filter(|charge| is_replayed(charge)) {
            self.backlog.add(self.local.name(charge), charge, charge.cost(), reply.time);
        }
        Ok(StoreReply { source: Source::Fallback, ..reply })
    }

    /// Refunds units that this process admitted, as far as they are still in the backlog. Units that have
    /// left it were charged to the store, or may have been. They stay charged there, and in this process.
    pub(in crate::remote) fn refund(&self, receipt: &Receipt) -> StoreReply {
        let instances = self.instances.shares();
        let lines = receipt.lines().iter().map(|line| {
            let charge = &line.charge;
            let units = if is_replayed(charge) {
                self.backlog.remove(self.local.name(charge), line.units)
            } else {
                line.units
            };
            ReceiptLine::new(charge.share(instances), units, line.mark)
        });
        let shares = Receipt::new(receipt.time, Source::Fallback, lines);
        let reply = self.local.call_at(Request::Refund(&shares), self.clock.now());
        StoreReply { source: Source::Fallback, ..reply }
    }

    /// Resets or blocks keys in this process, or lifts their blocks. A reset also removes the entries of its keys
    /// from the backlog, which would otherwise be charged to the store after its own reset.
    pub(in crate::remote) fn change(&self, request: Request<'_>) -> StoreReply {
        if let Request::Reset(charges) = request {
            charges.iter().for_each(|charge| self.backlog.reset(self.local.name(charge)));
        }
        self.local.call_at(request, self.clock.now())
    }
}

impl Cause {
    /// Returns whether the store has certainly not applied the request.
    fn was_not_applied(&self) -> bool {
        match self {
            Self::Rejected => true,
            Self::Failed(error) => error.effect() == Effect::None,
        }
    }

    /// Returns whether the request failed because it is invalid.
    fn is_by_request(&self) -> bool {
        matches!(self, Self::Failed(error) if !error.is_unavailable())
    }

    pub(in crate::remote) fn into_error(self) -> Error {
        match self {
            Self::Rejected => {
                let message = "the store has failed too often: the circuit breaker is open";
                Error::new(ErrorKind::BreakerOpen, message)
            }
            Self::Failed(error) => error,
        }
    }
}

/// Returns whether this process decides the charge in place of the store.
fn decides(charge: &Charge<'_>) -> bool {
    charge.on_failure() == OnFailure::Local
}

/// Returns whether the units of the charge are charged to the store when it answers again. Shadows are not.
/// Neither are units in flight: their permits charge them, if they are still in flight then.
fn is_replayed(charge: &Charge<'_>) -> bool {
    !charge.is_shadow() && !charge.quota().is_concurrent()
}

/// Returns whether the charge denies its check because the store cannot answer.
fn denies(charge: &Charge<'_>) -> bool {
    charge.on_failure() == OnFailure::Deny && charge.is_live()
}

/// Returns the reply to a charge that passes without being decided.
fn untouched(charge: &Charge<'_>) -> ChargeReply {
    let standing = Standing::full(charge.quota().capacity());
    ChargeReply { verdict: Verdict::Passed, units: 0, standing, mark: Mark::default() }
}

/// Converts the reply to a share into the reply to the whole charge. A cost above the share but
/// within the quota is refused with a wait, because the store can admit it once it answers again.
fn judge_share(charge: &Charge<'_>, share: &Charge<'_>, reply: &mut ChargeReply) {
    if reply.verdict == Verdict::OverCapacity && charge.cost() <= charge.quota().capacity() {
        debug_assert!(share.quota().capacity() < charge.cost());
        reply.verdict = Verdict::Refused;
        let wait = UNKNOWN_WAIT.max(reply.standing.next_after);
        reply.standing.retry_after = Some(wait);
    }
}
