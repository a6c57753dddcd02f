//! What becomes of charges that the store cannot decide.
//!
//! Each charge says so itself: [`OnFailure`]. What this process admits by itself meanwhile is
//! remembered, and charged to the store at most once when that answers again.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    asked::Asked,
    guarded::{Gate, left_alone},
    owed::{Debt, Owed},
    payer::{self, Payer},
};
use crate::{
    clock::{Clock, Timestamp},
    decision::{ChargeReply, Mark, Receipt, Source, Standing, StoreReply, Verdict},
    error::{Effect, Error},
    policy::{Charge, OnFailure},
    store::{Answer, MemoryConfig, MemoryStore, Request, Store},
    telemetry,
};

/// A store whose failures are decided by the charges.
#[derive(Debug)]
pub(crate) struct Fallback(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Box<dyn Store>,
    /// The breaker around the store.
    gate: Option<Arc<Gate>>,
    local: MemoryStore,
    clock: Arc<dyn Clock>,
    instances: u32,
    owed: Owed,
    payer: Payer,
}

/// Why the store does not decide.
enum Cause {
    /// It was not asked, at this time.
    LeftAlone(Timestamp),
    Failed(Error),
}

impl Fallback {
    pub(super) fn new(
        inner: Box<dyn Store>,
        gate: Option<Arc<Gate>>,
        memory: MemoryConfig,
        instances: u32,
    ) -> Self {
        let clock = Arc::clone(&memory.clock);
        let local = MemoryStore::new(memory);
        let (owed, payer) = (Owed::new(instances), Payer::default());
        Self(Arc::new(Shared { inner, gate, local, clock, instances, owed, payer }))
    }
}

impl Fallback {
    /// The time, if the store is left alone now and this process decides the charge in its place.
    #[inline]
    pub(crate) fn decides_alone(&self, charge: &Charge<'_>) -> Option<Timestamp> {
        if !here(charge) || charge.is_shadow() {
            return None;
        }
        self.0.gate.as_ref()?.shut(&*self.0.clock)
    }

    /// Decides a charge that [it decides alone](Self::decides_alone).
    #[inline]
    pub(crate) fn acquire_alone(&self, charge: &Charge<'_>, time: Timestamp) -> ChargeReply {
        telemetry::fell_back();
        self.0.acquire(charge, time, true)
    }
}

impl Drop for Fallback {
    fn drop(&mut self) {
        self.0.payer.stop();
    }
}

impl Store for Fallback {
    fn call(&self, request: Request<'_>) -> Answer {
        match request {
            Request::Acquire(_) | Request::Peek(_) | Request::Force(_) => {
                if let Some(now) = self.0.gate.as_ref().and_then(|gate| gate.shut(&*self.0.clock)) {
                    return Answer::ready(self.0.decide(request, Cause::LeftAlone(now)));
                }
            }
            Request::Refund(receipt) if receipt.source() == Source::Fallback => {
                return Answer::ready(Ok(self.0.refund(receipt)));
            }
            Request::Reset(charges) => self.0.reset(charges),
            Request::Refund(_) => {}
        }
        match self.0.inner.call(request).now() {
            Ok(answer) => Answer::ready(self.0.hear(Some(request), answer)),
            Err(coming) => self.wait(request, coming),
        }
    }
}

impl Fallback {
    /// An answer that is on its way.
    #[inline(never)]
    fn wait(&self, request: Request<'_>, answer: Answer) -> Answer {
        let (shared, asked) = (Arc::clone(&self.0), Asked::new(request));
        Answer::pending(async move {
            let answer = answer.await;
            shared.hear(asked.request(), answer)
        })
    }
}

impl Shared {
    /// Hears what the store answers, and decides in its place if that is an error.
    #[inline]
    fn hear(
        self: &Arc<Self>,
        request: Option<Request<'_>>,
        answer: Result<StoreReply, Error>,
    ) -> Result<StoreReply, Error> {
        match (answer, request) {
            (Ok(reply), _) => {
                self.answered(reply.source);
                Ok(reply)
            }
            (Err(error), Some(request)) => self.decide(request, Cause::Failed(error)),
            (Err(error), None) => Err(error),
        }
    }

    /// Decides without the store.
    fn decide(&self, request: Request<'_>, cause: Cause) -> Result<StoreReply, Error> {
        if let Cause::Failed(error) = &cause
            && !error.is_unavailable()
        {
            return cause.into_err();
        }
        match request {
            Request::Acquire([charge]) if here(charge) && !charge.is_shadow() => {
                telemetry::fell_back();
                let time = self.time(&cause);
                let line = self.acquire(charge, time, cause.is_certain());
                let lines = SmallVec::from_buf([line]);
                Ok(StoreReply { time, source: Source::Fallback, charges: lines })
            }
            Request::Acquire(charges) | Request::Peek(charges) => {
                telemetry::fell_back();
                let denies = |charge: &Charge<'_>| {
                    !charge.is_shadow() && charge.on_failure() == OnFailure::Deny
                };
                if charges.iter().any(denies) {
                    return cause.into_err();
                }
                let acquires = matches!(request, Request::Acquire(_));
                Ok(self.acquire_or_peek(charges, acquires, &cause))
            }
            Request::Force(charges) => {
                telemetry::fell_back();
                self.force(charges, cause)
            }
            Request::Refund(_) | Request::Reset(_) => cause.into_err(),
        }
    }

    /// One charge alone, as most are. What the store certainly has not charged is owed to it.
    #[inline]
    fn acquire(&self, charge: &Charge<'_>, time: Timestamp, is_owed: bool) -> ChargeReply {
        let part;
        let share = match self.instances {
            1 => charge,
            instances => {
                part = charge.share(instances);
                &part
            }
        };
        let name = self.local.name(charge);
        let line = self.local.acquire_named(name, share, time);
        if is_owed && line.units > 0 {
            self.owed.add(name, charge, line.units, time);
        }
        of_a_share(charge, share, line)
    }

    fn acquire_or_peek(&self, charges: &[Charge<'_>], acquires: bool, cause: &Cause) -> StoreReply {
        let shares: SmallVec<[Charge<'_>; 4]> =
            charges.iter().filter(|it| here(it)).map(|it| it.share(self.instances)).collect();
        let request = if acquires { Request::Acquire(&shares) } else { Request::Peek(&shares) };
        let StoreReply { time, charges: lines, .. } = self.local.call_at(request, self.time(cause));
        let mut decided = shares.iter().zip(lines);
        let lines = charges.iter().map(|charge| {
            if !here(charge) {
                return untouched(charge);
            }
            // The shares are in the order of their charges.
            let Some((share, line)) = decided.next() else { return untouched(charge) };
            if line.units > 0 && !charge.is_shadow() && cause.is_certain() {
                self.owed.add(self.local.name(charge), charge, line.units, time);
            }
            of_a_share(charge, share, line)
        });
        StoreReply { time, source: Source::Fallback, charges: lines.collect() }
    }

    /// What is charged whatever is left counts here, and later there, unless it may do so already.
    fn force(&self, charges: &[Charge<'_>], cause: Cause) -> Result<StoreReply, Error> {
        let shares: SmallVec<[Charge<'_>; 4]> =
            charges.iter().map(|charge| charge.share(self.instances)).collect();
        let StoreReply { time, charges: lines, .. } =
            self.local.call_at(Request::Force(&shares), self.time(&cause));
        if !cause.is_certain() {
            return cause.into_err();
        }
        for charge in charges {
            self.owed.add(self.local.name(charge), charge, charge.cost(), time);
        }
        Ok(StoreReply { time, source: Source::Fallback, charges: lines })
    }

    /// Gives back here, and says how many units nobody counts any more: what has been charged to
    /// the store since, or may have been, stays charged there.
    fn refund(&self, receipt: &Receipt) -> StoreReply {
        let shares = receipt.share(self.instances);
        let mut reply = self.local.call_at(Request::Refund(&shares), self.clock.now());
        reply.source = Source::Fallback;
        for (spent, line) in receipt.lines().iter().zip(&mut reply.charges) {
            let charge = spent.charge();
            if !charge.is_shadow() {
                let owed = self.owed.remove(self.local.name(charge), spent.units());
                line.units = line.units.min(owed);
            }
        }
        reply
    }

    /// Forgets what these keys have spent here, also if the store cannot: else what they owe would be
    /// charged to it after it has forgotten the rest.
    fn reset(&self, charges: &[Charge<'_>]) {
        self.local.call_at(Request::Reset(charges), self.clock.now());
        for charge in charges {
            self.owed.remove(self.local.name(charge), u64::MAX);
        }
    }

    fn time(&self, cause: &Cause) -> Timestamp {
        match cause {
            Cause::LeftAlone(now) => *now,
            Cause::Failed(_) => self.clock.now(),
        }
    }

    /// There is an answer: if it is the store's, what is owed to it can be charged now.
    #[inline]
    fn answered(self: &Arc<Self>, source: Source) {
        if !self.owed.is_empty() && source != Source::Cache {
            self.pay();
        }
    }

    #[cold]
    fn pay(self: &Arc<Self>) {
        self.payer.start(|| {
            // A weak handle: the task must not keep the store alive that is to end it.
            let shared = Arc::downgrade(self);
            async move {
                let Some(shared) = shared.upgrade() else { return true };
                let due = |debt: &Debt, now| payer::due(debt, now, &shared.local, shared.instances);
                payer::pay(&shared.owed, &*shared.inner, &*shared.clock, due).await
            }
        });
    }
}

impl Cause {
    /// Whether the store has definitely not done what it was asked.
    fn is_certain(&self) -> bool {
        match self {
            Self::LeftAlone(_) => true,
            Self::Failed(error) => error.effect() == Effect::None,
        }
    }

    #[cold]
    fn into_err(self) -> Result<StoreReply, Error> {
        Err(match self {
            Self::LeftAlone(_) => left_alone(),
            Self::Failed(error) => error,
        })
    }
}

/// Whether this process decides in the store's place.
fn here(charge: &Charge<'_>) -> bool {
    charge.on_failure() == OnFailure::Local
}

/// A charge that nobody has decided passes.
fn untouched(charge: &Charge<'_>) -> ChargeReply {
    let standing = Standing::full(charge.quota().capacity());
    ChargeReply { verdict: Verdict::Passed, units: 0, standing, mark: Mark::default() }
}

/// A cost beyond a share is not beyond the quota: the store can admit it when it is back.
fn of_a_share(charge: &Charge<'_>, share: &Charge<'_>, mut line: ChargeReply) -> ChargeReply {
    const A_MOMENT: u64 = 1_000_000;
    if line.verdict == Verdict::OverCapacity && charge.cost() <= charge.quota().capacity() {
        debug_assert!(share.quota().capacity() < charge.cost());
        line.verdict = Verdict::Refused;
        line.standing.retry_after = Some(A_MOMENT.max(line.standing.next_after));
    }
    line
}
