//! What becomes of charges that the store cannot decide.
//!
//! Each charge says so itself: [`OnFailure`]. What this process admits by itself meanwhile is
//! remembered, and charged to the store once when that answers again.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use tokio::{runtime::Handle, task::AbortHandle};

use super::owed::{Debt, Owed};
use crate::{
    algorithm::Mark,
    charge::{Charge, Charges, OnFailure},
    decision::Receipt,
    error::{Error, ErrorKind},
    standing::Standing,
    store::{Answer, Line, MemoryConfig, MemoryStore, Request, Ruling, Source, Store, Verdict},
    telemetry,
};

/// A store whose failures are decided by the charges.
#[derive(Debug)]
pub(super) struct Fallback(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Box<dyn Store>,
    local: MemoryStore,
    instances: u32,
    owed: Owed,
    /// Whether a task is charging what is owed.
    paying: AtomicBool,
    /// That task, which ends with this store.
    payer: Mutex<Option<AbortHandle>>,
}

/// How many charges are made good with one call.
const BATCH: usize = Charges::MAX;

impl Fallback {
    pub(super) fn new(inner: Box<dyn Store>, memory: MemoryConfig, instances: u32) -> Self {
        let local = MemoryStore::new(memory);
        let (owed, paying) = (Owed::default(), AtomicBool::new(false));
        Self(Arc::new(Shared { inner, local, instances, owed, paying, payer: Default::default() }))
    }
}

impl Drop for Fallback {
    fn drop(&mut self) {
        let payer = self.0.payer.lock().map(|mut payer| payer.take());
        if let Ok(Some(payer)) = payer {
            payer.abort();
        }
    }
}

impl Store for Fallback {
    fn call(&self, request: Request<'_>) -> Answer {
        if let Request::GiveBack(receipt) = request
            && receipt.source() == Source::Fallback
        {
            return Answer::ready(self.0.give_back_local(receipt));
        }
        let coming = match self.0.inner.call(request).now() {
            Ok(Ok(ruling)) => {
                self.0.answered();
                return Answer::ready(Ok(ruling));
            }
            Ok(Err(error)) => return Answer::ready(self.0.decide(request, error)),
            Err(coming) => coming,
        };
        let (shared, asked) = (Arc::clone(&self.0), Asked::new(request));
        Answer::pending(async move {
            match coming.await {
                Ok(ruling) => {
                    shared.answered();
                    Ok(ruling)
                }
                Err(error) => match asked.request() {
                    Some(request) => shared.decide(request, error),
                    None => Err(error),
                },
            }
        })
    }
}

/// What is kept of a request until its answer comes.
enum Asked {
    Acquire(Charges<'static>),
    Peek(Charges<'static>),
    Force(Charges<'static>),
    /// Nothing of it can be decided here.
    Other,
}

impl Asked {
    fn new(request: Request<'_>) -> Self {
        let owned =
            |charges: &[Charge<'_>]| charges.iter().cloned().map(Charge::into_owned).collect();
        match request {
            Request::Acquire(charges) => Self::Acquire(owned(charges)),
            Request::Peek(charges) => Self::Peek(owned(charges)),
            Request::Force(charges) => Self::Force(owned(charges)),
            Request::GiveBack(_) | Request::Reset(_) => Self::Other,
        }
    }

    fn request(&self) -> Option<Request<'_>> {
        match self {
            Self::Acquire(charges) => Some(Request::Acquire(charges)),
            Self::Peek(charges) => Some(Request::Peek(charges)),
            Self::Force(charges) => Some(Request::Force(charges)),
            Self::Other => None,
        }
    }
}

impl Shared {
    /// Decides without the store.
    fn decide(&self, request: Request<'_>, error: Error) -> Result<Ruling, Error> {
        if !error.is_unavailable() {
            return Err(error);
        }
        let (charges, acquires) = match request {
            Request::Acquire(charges) => (charges, true),
            Request::Peek(charges) => (charges, false),
            Request::Force(charges) => return Ok(self.force(charges)),
            Request::GiveBack(_) | Request::Reset(_) => return Err(error),
        };
        let denies =
            |charge: &Charge<'_>| !charge.is_shadow() && charge.failure_mode() == OnFailure::Deny;
        if charges.iter().any(denies) {
            return Err(error);
        }
        telemetry::fell_back();
        let local = |charge: &&Charge<'_>| charge.failure_mode() == OnFailure::Local;
        let shares: Charges<'_> =
            charges.iter().filter(local).map(|charge| charge.share(self.instances)).collect();
        let request = if acquires { Request::Acquire(&shares) } else { Request::Peek(&shares) };
        let ruling = self.local(request)?;
        let mut decided = shares.iter().zip(ruling.lines);
        let lines = charges.iter().map(|charge| {
            if charge.failure_mode() != OnFailure::Local {
                return untouched(charge);
            }
            // The shares are in the order of their charges.
            let Some((share, line)) = decided.next() else { return untouched(charge) };
            if line.units > 0 && !charge.is_shadow() {
                self.owed.add(charge, line.units, ruling.time);
            }
            of_a_share(charge, share, line)
        });
        Ok(Ruling { time: ruling.time, source: Source::Fallback, lines: lines.collect() })
    }

    /// What is charged whatever is left counts here, and later there.
    fn force(&self, charges: &[Charge<'_>]) -> Ruling {
        let shares: Charges<'_> =
            charges.iter().map(|charge| charge.share(self.instances)).collect();
        let (time, lines) = match self.local(Request::Force(&shares)) {
            Ok(ruling) => (ruling.time, ruling.lines),
            Err(_) => Default::default(),
        };
        for charge in charges.iter() {
            self.owed.add(charge, charge.cost(), time);
        }
        Ruling { time, source: Source::Fallback, lines }
    }

    fn give_back_local(&self, receipt: &Receipt) -> Result<Ruling, Error> {
        let shares = receipt.share(self.instances);
        let ruling = self.local(Request::GiveBack(&shares))?;
        for (spent, line) in receipt.lines().iter().zip(&ruling.lines) {
            self.owed.remove(spent.charge(), line.units);
        }
        Ok(ruling)
    }

    /// The embedded store answers at once.
    fn local(&self, request: Request<'_>) -> Result<Ruling, Error> {
        match self.local.call(request).now() {
            Ok(ruling) => ruling,
            Err(_) => unreachable!("an embedded store answers at once"),
        }
    }

    /// The store has answered: what is owed to it can be charged now.
    fn answered(self: &Arc<Self>) {
        if self.owed.is_empty() || self.paying.swap(true, Ordering::AcqRel) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            self.paying.store(false, Ordering::Release);
            return;
        };
        // A weak handle: the task must not keep the store alive that is to end it.
        let shared = Arc::downgrade(self);
        let task = runtime.spawn(async move {
            let Some(shared) = shared.upgrade() else { return };
            shared.pay().await;
            shared.paying.store(false, Ordering::Release);
        });
        if let Ok(mut payer) = self.payer.lock() {
            *payer = Some(task.abort_handle());
        }
    }

    /// Charges what is owed, each unit once: what may have arrived is not sent again.
    async fn pay(&self) {
        loop {
            let debts = self.owed.take(BATCH, self.local.now());
            if debts.is_empty() {
                return;
            }
            let charges: Charges<'_> = debts.iter().filter_map(|debt| self.due(debt)).collect();
            if charges.is_empty() {
                continue;
            }
            if let Err(error) = self.inner.call(Request::Force(&charges)).await {
                if error.kind() == ErrorKind::BreakerOpen {
                    self.owed.put_back(debts);
                }
                return;
            }
        }
    }
}

impl Shared {
    /// What of a debt is still to be charged: of one that grew for longer than a window, what still
    /// counts here.
    fn due(&self, debt: &Debt) -> Option<Charge<'static>> {
        let charge = debt.charge();
        if debt.is_recent(self.local.now()) {
            return Some(charge);
        }
        let share = charge.share(self.instances);
        let peek = self.local(Request::Peek(&Charges::from(share))).ok()?;
        let Standing { limit, remaining, .. } = peek.lines.first()?.standing;
        let units = charge.cost().min(limit.saturating_sub(remaining));
        (units > 0).then(|| charge.again(units))
    }
}

/// A charge that nobody has decided passes.
fn untouched(charge: &Charge<'_>) -> Line {
    let standing = Standing::full(charge.quota().capacity());
    Line { verdict: Verdict::Passed, units: 0, standing, mark: Mark::default() }
}

/// A cost beyond a share is not beyond the quota: the store can admit it when it is back.
fn of_a_share(charge: &Charge<'_>, share: &Charge<'_>, mut line: Line) -> Line {
    const A_MOMENT: u64 = 1_000_000;
    if line.verdict == Verdict::OverCapacity && charge.cost() <= charge.quota().capacity() {
        debug_assert!(share.quota().capacity() < charge.cost());
        line.verdict = Verdict::Refused;
        line.standing.retry_after = Some(A_MOMENT.max(line.standing.next_after));
    }
    line
}
