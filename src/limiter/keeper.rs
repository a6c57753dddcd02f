//! The keeper: the task that renews the permits that have reached half of their expiry. It ends when there is
//! none.
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

/// Starts the keeper, unless it runs, or the limiter has seen no runtime with timers.
#[cold]
pub(super) fn start(limiter: &Arc<LimiterState>) {
    let runtime = limiter.runtime.of_caller().or_else(|| limiter.runtime.any());
    let Some(runtime) = runtime else { return };
    if !limiter.permits.is_kept.swap(true, Ordering::SeqCst) {
        runtime.spawn(keep(Keeping(Arc::downgrade(limiter))));
    }
}

/// A guard of the keeper, which may be dropped with its runtime.
struct Keeping(Weak<LimiterState>);

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(limiter) = self.0.upgrade() {
            limiter.permits.is_kept.store(false, Ordering::SeqCst);
        }
    }
}

/// Renews permits until there is none, or until the limiter ends.
async fn keep(mut keeping: Keeping) {
    let Some(wakes) = keeping.0.upgrade().map(|it| Arc::clone(&it.permits.wakes_keeper)) else {
        return;
    };
    while let Some(limiter) = keeping.0.upgrade() {
        // Units may have been released before the limiter has seen a runtime.
        sender::start(&limiter);
        let Some(due) = limiter.permits.begin_round() else {
            // A permit that is added from here on starts another keeper. One that was added before is seen
            // now.
            limiter.permits.is_kept.store(false, Ordering::SeqCst);
            if limiter.permits.is_empty() || limiter.permits.is_kept.swap(true, Ordering::SeqCst) {
                keeping.0 = Weak::new();
                return;
            }
            continue;
        };
        renew_all(&limiter, due).await;
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
