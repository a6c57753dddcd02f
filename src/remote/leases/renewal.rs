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
    grant::{Leftover, Leftovers},
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
    /// True once the renewal is sent. Dropped last, so that the checks that wait find the result in the
    /// stock.
    state: watch::Sender<bool>,
}

/// The state of a renewal: true once it is sent, and closed when it has ended.
pub(super) type RenewalState = watch::Receiver<bool>;

/// The longest time for which a renewal waits for the store.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

impl Renewal {
    pub(super) fn new(
        stages: &Arc<Stages>,
        entry: &Entry,
        request: RenewalRequest,
        state: watch::Sender<bool>,
    ) -> Self {
        let charge = entry.charge.leasing(request.cost, request.max);
        let fingerprint = entry.fingerprint();
        Self { stages: Arc::downgrade(stages), fingerprint, charge, request: Some(request), state }
    }

    /// Sends the renewal, and waits for the store for as long as the units could still be used.
    pub(super) async fn run(mut self, stages: Arc<Stages>) {
        if !self.begin_lease(&stages) {
            return;
        }
        self.state.send_replace(true);
        let lease = self.charge.quota().lease().unwrap_or_default();
        let limit = Some(lease.min(RENEWAL_TIMEOUT));
        let request = Request::Acquire(slice::from_ref(&self.charge));
        let reply = stages.call(request, Origin::Lease, limit).await;
        self.end(&stages, Some(reply));
    }

    /// Begins the lease. Returns `false` if the stock does not wait for this renewal any longer.
    fn begin_lease(&mut self, stages: &Stages) -> bool {
        let (Some(leases), Some(request)) = (&stages.leases, &mut self.request) else {
            return false;
        };
        let Some(table) = leases.table() else { return false };
        let mut entries = table.lock(self.fingerprint);
        let entry = entries.find(self.fingerprint);
        entry.is_some_and(|entry| entry.stock.send(request, leases.now()))
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
        let leftovers = match (entry, charge_reply) {
            (Some(entry), Some((time, reply))) if reply.units > 0 => {
                telemetry::lease_granted(reply.units);
                entry.stock.granted(&request, time, &reply)
            }
            (Some(entry), Some((time, reply))) if reply.verdict != Verdict::Passed => {
                telemetry::lease_denied();
                entry.stock.denied(&request, time, reply.standing);
                Leftovers::new()
            }
            (Some(entry), _) => {
                let is_sent = *self.state.borrow();
                if is_sent {
                    telemetry::lease_lost();
                }
                entry.stock.lost(&request);
                Leftovers::new()
            }
            // Units without a stock come back by themselves.
            (None, _) => Leftovers::new(),
        };
        drop(entries);
        let line = |it: Leftover| ReceiptLine::new(self.charge.clone(), it.units, it.mark);
        leases.add_leftovers(leftovers.into_iter().map(line));
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        if let Some(stages) = self.stages.upgrade() {
            self.end(&stages, None);
        }
    }
}
