//! The renewal of a stock: a call to the store in the background, for which checks may wait.

use std::{slice, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{
    super::{fingerprint::Fingerprint, guarded::Origin},
    grants::Leftovers,
    stock::RenewalRequest,
    stocks::Stocks,
    table::NewRenewal,
};
use crate::{
    decision::{ReceiptLine, Source, StoreReply, Verdict},
    error::Error,
    policy::Charge,
    store::Request,
    telemetry,
};

/// A renewal in flight. If it is dropped before the store has answered, the answer is lost, and the
/// units that the store may have granted are never used.
pub(super) struct Renewal {
    stocks: Arc<Stocks>,
    fingerprint: Fingerprint,
    charge: Charge<'static>,
    /// `None` once the stock has received the result.
    request: Option<RenewalRequest>,
    is_sent: bool,
    /// Dropped last, so that the checks that wait find the result in the stock.
    _end: watch::Sender<()>,
}

/// The longest time for which a renewal waits for the store.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

impl Renewal {
    pub(super) fn new(stocks: &Arc<Stocks>, renewal: NewRenewal) -> Self {
        let NewRenewal { fingerprint, charge, request, end } = renewal;
        Self {
            stocks: Arc::clone(stocks),
            fingerprint,
            charge,
            request: Some(request),
            is_sent: false,
            _end: end,
        }
    }

    /// Sends the renewal, and waits for the store for as long as the units could still be used.
    pub(super) async fn run(mut self) {
        if !self.begin_lease() {
            return;
        }
        self.is_sent = true;
        let lease = self.charge.quota().lease().unwrap_or_default();
        let limit = Some(lease.min(RENEWAL_TIMEOUT));
        let request = Request::Acquire(slice::from_ref(&self.charge));
        let reply = self.stocks.guarded.call(request, Origin::Task, limit).await;
        self.end(Some(reply));
    }

    /// Begins the lease. Returns `false` if the stock does not wait for this renewal any longer.
    fn begin_lease(&mut self) -> bool {
        let Some(request) = &mut self.request else { return false };
        let sent = self
            .stocks
            .with_stock(self.fingerprint, |entry| entry.stock.send(request, self.stocks.now()));
        sent.unwrap_or(false)
    }

    /// Gives the result to the stock.
    fn end(&mut self, reply: Option<Result<StoreReply, Error>>) {
        let Some(request) = self.request.take() else { return };
        let reply = reply.and_then(Result::ok);
        if let Some(reply) = reply.as_ref().filter(|reply| reply.source == Source::Shared) {
            self.stocks.guarded.compare_clocks(&self.charge, request.sent_at, reply.time);
        }
        let charge_reply =
            reply.as_ref().and_then(|reply| Some((reply.time, *reply.charges.first()?)));
        let leftovers = self.stocks.with_stock(self.fingerprint, |entry| match charge_reply {
            Some((time, reply)) if reply.units > 0 => {
                telemetry::lease_granted(reply.units);
                entry.stock.granted(&request, time, &reply)
            }
            Some((time, reply)) if reply.verdict != Verdict::Passed => {
                telemetry::lease_denied();
                entry.stock.denied(&request, time, reply.standing);
                Leftovers::new()
            }
            _ => {
                if self.is_sent {
                    telemetry::lease_lost();
                }
                entry.stock.lost(&request);
                Leftovers::new()
            }
        });
        // Units without a stock come back by themselves.
        let leftovers = leftovers.into_iter().flatten();
        self.stocks.add_leftovers(
            leftovers.map(|it| ReceiptLine::new(self.charge.clone(), it.units, it.mark)),
        );
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.end(None);
    }
}
