//! The renewer: the task that renews the permits that have reached half of their expiry. It ends when there is
//! none in two rounds. So a service with few requests does not start it for each of them.
//!
//! A renewal charges the new unit, beyond the limit, and then releases the old one. So one unit too many is
//! counted between the two requests, and never one too few.

use std::sync::{Arc, Weak, atomic::Ordering};

use tokio::{task::JoinSet, time::timeout};

use super::{
    permit_table::PermitId,
    sender::{self, release},
    state::LimiterState,
};
use crate::{
    decision::{Receipt, ReceiptLine},
    policy::Charge,
};

/// The most renewals in flight.
const MAX_RENEWALS: usize = 16;

/// Starts the renewer, unless it runs, or the limiter has seen no runtime with timers.
#[cold]
pub(super) fn start(limiter: &Arc<LimiterState>) {
    let runtime = limiter.runtime.of_caller().or_else(|| limiter.runtime.any());
    let Some(runtime) = runtime else { return };
    if !limiter.permits.has_renewer.swap(true, Ordering::SeqCst) {
        runtime.spawn(run(Renewing::new(limiter)));
    }
}

/// Starts another renewer if the first one has missed its rounds. A process may have one runtime per thread. If
/// the renewer's runtime is blocked, another takes over, or the permits of the other runtimes would expire.
pub(super) fn start_if_late(limiter: &Arc<LimiterState>) {
    if let Some(round) = limiter.permits.missed_since()
        && let Some(runtime) = limiter.runtime.of_caller()
        && limiter.permits.take_over(round)
    {
        runtime.spawn(run(Renewing::new(limiter)));
    }
}

/// A guard of the renewer, which may be dropped with its runtime.
struct Renewing {
    /// Empty once the renewer has ended.
    limiter: Weak<LimiterState>,
    /// The takeovers before it has started. After the next one, another renewer is in charge.
    takeovers: u64,
}

impl Renewing {
    fn new(limiter: &Arc<LimiterState>) -> Self {
        Self { limiter: Arc::downgrade(limiter), takeovers: limiter.permits.takeovers() }
    }

    /// Returns the limiter, unless it has ended, or another renewer has taken over.
    fn limiter(&self) -> Option<Arc<LimiterState>> {
        self.limiter.upgrade().filter(|it| it.permits.takeovers() == self.takeovers)
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter() {
            limiter.permits.has_renewer.store(false, Ordering::SeqCst);
        }
    }
}

/// Renews permits until there is none in two rounds, or until the limiter ends.
async fn run(mut renewing: Renewing) {
    let Some(wakes) = renewing.limiter().map(|it| Arc::clone(&it.permits.wakes_renewer)) else {
        return;
    };
    let mut was_empty = false;
    while let Some(limiter) = renewing.limiter() {
        // Units may have been released before the limiter has seen a runtime.
        sender::start(&limiter);
        let due = limiter.permits.begin_round();
        let is_empty = due.is_none();
        if is_empty && was_empty {
            // A permit that is added from here on starts another renewer. One that was added before is seen
            // now.
            limiter.permits.has_renewer.store(false, Ordering::SeqCst);
            if limiter.permits.is_empty()
                || limiter.permits.has_renewer.swap(true, Ordering::SeqCst)
            {
                renewing.limiter = Weak::new();
                return;
            }
            was_empty = false;
            continue;
        }
        was_empty = is_empty;
        renew_all(&limiter, due.unwrap_or_default()).await;
        let interval = limiter.permits.interval();
        drop(limiter);
        let _ = timeout(interval, wakes.notified()).await;
    }
}

/// Renews permits, several at a time.
async fn renew_all(limiter: &Arc<LimiterState>, mut due: Vec<(PermitId, Vec<Charge<'static>>)>) {
    let mut in_flight = JoinSet::new();
    loop {
        while in_flight.len() < MAX_RENEWALS
            && let Some((id, charges)) = due.pop()
        {
            in_flight.spawn(renew(Arc::clone(limiter), id, charges));
        }
        if in_flight.join_next().await.is_none() {
            return;
        }
    }
}

/// Charges the units of a permit again, and then releases the old ones. If the store cannot answer, the next
/// round tries again.
async fn renew(limiter: Arc<LimiterState>, id: PermitId, charges: Vec<Charge<'static>>) {
    let renewed = limiter.force(&charges).await.ok().map(|reply| {
        let lines = charges.into_iter().zip(&reply.charges);
        let lines = lines.map(|(charge, reply)| ReceiptLine::new(charge, reply.units, reply.mark));
        Receipt::new(reply.time, reply.source, lines)
    });
    if let Some(receipt) = limiter.permits.end_renewal(id, renewed) {
        release(&limiter, receipt);
    }
}
