//! The settlement of the charges that depend on the response: when its head has arrived, and when its body has ended.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use http::{header::CONTENT_LENGTH, response::Parts};
use http_body::SizeHint;
use smallvec::SmallVec;
use tokio::time::timeout;

use crate::{
    decision::Decision,
    limiter::{HeldUnits, Limiter, Reservation},
    rule::{Adjustment, ResponseHooks, cost},
    runtime::runtime_with_timer,
};

/// An admitted request, some of whose charges depend on the response.
pub(crate) struct Settlement {
    pub(crate) limiter: Limiter,
    pub(crate) decision: Decision<'static>,
    pub(crate) hooks: ResponseHooks,
}

impl Settlement {
    /// Refunds the charges whose [`Rule::refund_if`](crate::Rule::refund_if) accepts the head of
    /// the response, and adds those that the end of the body settles to the guard `at_end`. Returns the decision with
    /// the standings after the refunds, and the guard. Charges that were not made, such as shadows that did not pass,
    /// are neither refunded nor settled. `size` is the size of the body, as far as it is known.
    pub(crate) fn at_head(
        self,
        mut at_end: Option<Box<BodySettlement>>,
        head: &Parts,
        size: &SizeHint,
    ) -> impl Future<Output = (Decision<'static>, Option<Box<BodySettlement>>)> + Send + use<> {
        let Self { limiter, mut decision, hooks } = self;
        let mut refunds = Vec::new();
        for hook in hooks {
            let receipt = decision.receipt(hook.charge, hook.cost);
            let final_cost: FinalCost = match hook.adjustment {
                Adjustment::RefundIf(refund) => {
                    // No request is sent to refund nothing: the response waits for it.
                    if refund(head) && hook.cost > 0 && !receipt.lines().is_empty() {
                        refunds.push((hook.charge, receipt));
                    }
                    continue;
                }
                Adjustment::CostOfBody(cost) if hook.is_head => match length(head, size) {
                    Some(bytes) => Box::new(move |_| cost(bytes)),
                    // Without a length the estimate stays.
                    None => continue,
                },
                Adjustment::CostOfBody(cost) => Box::new(move |bytes| cost(bytes)),
                Adjustment::SettleTally => match head.extensions.get::<Tally>().cloned() {
                    Some(tally) => Box::new(move |_| tally.units()),
                    // Without a tally the estimate stays.
                    None => continue,
                },
            };
            if !receipt.lines().is_empty() {
                let at_end: &mut BodySettlement = at_end.get_or_insert_default();
                at_end.reservations.push((limiter.hold(receipt), final_cost));
            }
        }
        async move {
            for (charge, receipt) in refunds {
                // If the store cannot answer, the charge stays.
                if let Ok(reply) = limiter.refund(&receipt).await
                    && let Some(refunded) = reply.charges.first()
                {
                    decision.restate(charge, refunded.standing);
                }
            }
            (decision, at_end)
        }
    }
}

/// Returns the length of the body that a response to HEAD stands for (RFC 9110, section 8.6), if it
/// is known: its `Content-Length`, or else the length of the body that the server will remove. An
/// empty body says nothing: it may have been removed already.
fn length(head: &Parts, size: &SizeHint) -> Option<u64> {
    match head.headers.get(CONTENT_LENGTH) {
        Some(length) => cost::parse_length(length),
        None => size.exact().filter(|bytes| *bytes > 0),
    }
}

/// The longest time that a remote store may take to settle a charge after the body has ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A guard that settles charges and releases units in flight when it is dropped: at the end of the body, or
/// with the body.
#[derive(Default)]
pub(crate) struct BodySettlement {
    bytes: u64,
    reservations: SmallVec<[(Reservation, FinalCost); 1]>,
    _held: Option<HeldUnits>,
}

/// The function from the number of bytes in the body to the final cost of a charge.
type FinalCost = Box<dyn FnOnce(u64) -> u64 + Send + Sync>;

impl BodySettlement {
    /// Creates the guard of units in flight.
    pub(crate) fn holding(held: HeldUnits) -> Box<Self> {
        Box::new(Self { bytes: 0, reservations: SmallVec::new(), _held: Some(held) })
    }

    /// Counts the bytes of a frame.
    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

impl Drop for BodySettlement {
    fn drop(&mut self) {
        // A remote store may need timers, so it is called only in a runtime that has them.
        let runtime = runtime_with_timer();
        for (reservation, cost) in self.reservations.drain(..) {
            // A panic of the application's closure would leave this `Drop`, which aborts the process if it runs
            // during another panic.
            let Ok(units) = catch_unwind(AssertUnwindSafe(|| cost(self.bytes))) else { continue };
            if runtime.is_none() && !reservation.is_embedded() {
                continue;
            }
            // An embedded store settles at the first poll. For a remote store, a task with a timeout continues.
            // Without a runtime, or if the store does not answer, the estimate stays.
            let mut settling = Box::pin(reservation.settle(units));
            let mut cx = Context::from_waker(Waker::noop());
            if settling.as_mut().poll(&mut cx).is_pending()
                && let Some(runtime) = &runtime
            {
                runtime.spawn(timeout(SETTLE_TIMEOUT, settling));
            }
        }
    }
}

/// A count of units that a handler keeps while the body of its response streams.
///
/// The handler inserts a clone into the extensions of the response. A [`Rule`](crate::Rule) with
/// [`settle_tally`](crate::Rule::settle_tally) charges an estimate, its
/// [`cost`](crate::Rule::cost), before the request. When the body has ended, it charges or refunds
/// the difference to the count. Clones share the count.
///
/// # Examples
///
/// A handler that knows the cost before it responds:
///
/// ```
/// use axum::{Extension, Router, routing::get};
/// use plimsoll::{Limiter, Policy, Quota, RateLimitLayer, Rule, by, layer::Tally};
///
/// async fn report() -> (Extension<Tally>, String) {
///     let tally = Tally::new();
///     tally.add(120); // rows read
///     (Extension(tally), "120 rows".to_owned())
/// }
///
/// let rows = Policy::new("rows", Quota::per_minute(100_000))?;
/// let rule = Rule::new(rows, by::header("x-api-key")).cost(|_| 500).settle_tally();
/// let layer = RateLimitLayer::new(Limiter::in_memory(), rule);
/// let app: Router = Router::new().route("/report", get(report)).layer(layer);
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// A stream that counts while it runs. The response carries one clone, and the stream owns another:
///
/// ```
/// use http::Response;
/// use plimsoll::layer::Tally;
///
/// let tally = Tally::new();
/// let counter = tally.clone();
/// let chunks = ["to", "ken", "s"].into_iter().inspect(move |_| counter.add(1));
///
/// let mut response = Response::new(());
/// response.extensions_mut().insert(tally.clone());
/// assert_eq!(chunks.count(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<AtomicU64>);

impl Tally {
    /// Creates a count of 0 units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `units` to the count, which saturates at [`u64::MAX`].
    pub fn add(&self, units: u64) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |counted| {
            Some(counted.saturating_add(units))
        });
    }

    /// Returns the units counted so far.
    fn units(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
