//! Charging by outcome: what rules do with their charge when the response is known.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use http::response::Parts;
use smallvec::SmallVec;
use tokio::{runtime::Handle, time::timeout};

use super::headers::{Headers, Stamp};
use crate::{
    decision::Decision,
    limiter::{Limiter, Reservation},
    rule::ByOutcome,
};

/// A rule that wants to hear how its request ended.
#[derive(Clone)]
pub(super) struct Hook {
    /// The place of its charge in the check.
    pub(super) line: usize,
    pub(super) cost: u64,
    pub(super) outcome: ByOutcome,
}

pub(super) type Hooks = SmallVec<[Hook; 1]>;

/// An admitted request, some of whose charges depend on the response.
pub(super) struct Settlement {
    pub(super) limiter: Limiter,
    pub(super) decision: Decision<'static>,
    pub(super) hooks: Hooks,
    pub(super) headers: Headers,
}

/// Work that a dropped future leaves undone: the charge then stays as it is.
pub(super) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Settlement {
    /// Gives back what the head of the response says. Returns the headers, and what the end of the
    /// body settles.
    pub(super) fn at_head(self, head: &Parts) -> Work<(Stamp, Option<AtEnd>)> {
        let Self { limiter, mut decision, hooks, headers } = self;
        let mut lengths = SmallVec::new();
        let mut refunds: SmallVec<[Hook; 1]> = SmallVec::new();
        for hook in hooks {
            match &hook.outcome {
                ByOutcome::Refund(says) if says(head) => refunds.push(hook),
                ByOutcome::Refund(_) => {}
                ByOutcome::Length(cost) => {
                    let held = limiter.hold(decision.receipt(hook.line, hook.cost));
                    lengths.push((held, cost.clone()));
                }
            }
        }
        Box::pin(async move {
            for Hook { line, cost, .. } in refunds {
                let receipt = decision.receipt(line, cost);
                // If the store cannot answer, the charge stays.
                if let Ok(ruling) = limiter.give_back(&receipt).await
                    && let Some(back) = ruling.lines.first()
                {
                    decision.restate(line, back.standing);
                }
            }
            let at_end = (!lengths.is_empty()).then_some(AtEnd { bytes: 0, lengths });
            (headers.stamp(&decision, None), at_end)
        })
    }
}

type Cost = Arc<dyn Fn(u64) -> u64 + Send + Sync>;

/// How long a remote store may take to settle a charge after the response has gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Charges that the length of the body settles, when this is dropped: at the end of the body, or
/// with it.
pub(super) struct AtEnd {
    bytes: u64,
    lengths: SmallVec<[(Reservation, Cost); 1]>,
}

impl AtEnd {
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        for (held, cost) in self.lengths.drain(..) {
            let mut work = Box::pin(held.settle(cost(self.bytes)));
            // With the embedded store this is all. A remote one gets a task that ends by itself;
            // without a runtime, or if the store does not answer, the estimate stays.
            let mut now = Context::from_waker(Waker::noop());
            if work.as_mut().poll(&mut now).is_pending()
                && let Ok(runtime) = Handle::try_current()
            {
                runtime.spawn(timeout(PATIENCE, work));
            }
        }
    }
}
