//! The renewal of a stock: one call to the store, for which many checks may wait.

use std::{
    slice,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::sync::watch;

use super::{
    super::{
        fingerprint::Fingerprint,
        stages::{Origin, Stages},
    },
    stock::RenewalRequest,
    table::Entry,
};
use crate::{
    decision::{ReceiptLine, StoreReply, Verdict},
    error::Error,
    policy::Charge,
    store::Request,
    telemetry,
};

/// A renewal in flight. If it is dropped before the store has answered, the answer is lost, and the
/// units that the store may have granted are never used.
pub(super) struct Renewal {
    stages: Weak<Stages>,
    fingerprint: Fingerprint,
    charge: Charge<'static>,
    /// `None` once the stock has received the result.
    request: Option<RenewalRequest>,
    /// Dropped last, so that the checks that wait find the result in the stock.
    _done: watch::Sender<()>,
}

/// The longest time for which a renewal waits for the store.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

impl Renewal {
    pub(super) fn new(
        stages: &Arc<Stages>,
        entry: &Entry,
        request: RenewalRequest,
        done: watch::Sender<()>,
    ) -> Self {
        let charge = entry.charge.leasing(request.cost, request.max);
        let fingerprint = entry.fingerprint();
        Self {
            stages: Arc::downgrade(stages),
            fingerprint,
            charge,
            request: Some(request),
            _done: done,
        }
    }

    /// Sends the renewal, and waits for the store for as long as the units could still be used.
    pub(super) async fn run(mut self, stages: Arc<Stages>) {
        let lease = self.charge.quota().lease().unwrap_or_default();
        let limit = Some(lease.min(RENEWAL_TIMEOUT));
        let request = Request::Acquire(slice::from_ref(&self.charge));
        let reply = stages.call(request, Origin::Lease, limit).await;
        self.end(&stages, Some(reply));
    }

    /// Gives the result to the stock.
    fn end(&mut self, stages: &Stages, reply: Option<Result<StoreReply, Error>>) {
        let Some(request) = self.request.take() else { return };
        let Some(leases) = &stages.leases else { return };
        let reply = reply.and_then(Result::ok);
        let charge_reply =
            reply.as_ref().and_then(|reply| Some((reply.time, *reply.charges.first()?)));
        let table = leases.table();
        let mut entries = table.map(|table| table.lock(self.fingerprint));
        let entry = entries.as_mut().and_then(|entries| entries.find(self.fingerprint));
        let leftover = match (entry, charge_reply) {
            (Some(entry), Some((time, reply))) if reply.units > 0 => {
                telemetry::lease_granted(reply.units);
                entry.stock.granted(&request, time, &reply)
            }
            (Some(entry), Some((time, reply))) if reply.verdict != Verdict::Passed => {
                telemetry::lease_denied();
                entry.stock.denied(&request, time, reply.standing);
                None
            }
            (Some(entry), _) => {
                telemetry::lease_lost();
                entry.stock.lost(&request);
                None
            }
            // Units without a stock come back by themselves.
            (None, _) => None,
        };
        drop(entries);
        leases.add_leftovers(
            leftover.into_iter().map(|leftover| {
                ReceiptLine::new(self.charge.clone(), leftover.units, leftover.mark)
            }),
        );
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        if let Some(stages) = self.stages.upgrade() {
            self.end(&stages, None);
        }
    }
}
