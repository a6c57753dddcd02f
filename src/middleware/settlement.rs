//! Charging by outcome: what rules do with their charge when the response is known.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use http::{Response, request, response::Parts};
use smallvec::SmallVec;
use tokio::{runtime::Handle, time::timeout};

use super::{
    Decided, ResponseBody,
    headers::{Headers, Stamp},
};
use crate::{
    decision::Decision,
    limiter::{Limiter, Reservation},
    outcome::Tally,
    policy::Charges,
    rule::{ByOutcome, Rule},
};

/// A rule that wants to hear how its request ended.
#[derive(Clone)]
pub(crate) struct Hook {
    /// The place of its charge in the check.
    pub(crate) line: usize,
    pub(crate) cost: u64,
    pub(crate) outcome: ByOutcome,
}

pub(crate) type Hooks = SmallVec<[Hook; 1]>;

/// An admitted request, some of whose charges depend on the response.
pub(crate) struct Settlement {
    pub(crate) limiter: Limiter,
    pub(crate) decision: Decision<'static>,
    pub(crate) hooks: Hooks,
    pub(crate) headers: Headers,
    pub(crate) decided: Option<Decided>,
}

/// What is left to do to a response.
pub(crate) struct Settled {
    pub(in crate::middleware) stamp: Stamp,
    pub(crate) decided: Option<Decided>,
    pub(crate) at_end: Option<Box<AtEnd>>,
}

impl Settled {
    pub(crate) fn finish<B>(self, mut response: Response<B>) -> Response<ResponseBody<B>> {
        self.stamp.apply(response.headers_mut());
        if let Some(decided) = self.decided {
            decided.show(response.extensions_mut());
        }
        response.map(|body| ResponseBody::inner(body, self.at_end))
    }
}

/// Work that a dropped future leaves undone: the charge then stays as it is.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a request is charged under each of the rules, and which will want to hear how it ended.
pub(crate) fn charges<'r>(rules: &'r [Rule], request: &request::Parts) -> (Charges<'r>, Hooks) {
    let (mut charges, mut hooks) = (Charges::default(), Hooks::new());
    for (rule, charge) in rules.iter().map(|rule| (rule, rule.charge(request))) {
        let Some(charge) = charge else { continue };
        let cost = charge.cost();
        let line = charges.add(charge);
        if let Some(outcome) = &rule.outcome {
            hooks.push(Hook { line, cost, outcome: outcome.clone() });
        }
    }
    (charges, hooks)
}

impl Settlement {
    /// A settlement of which the response shows nothing.
    pub(crate) fn unseen(limiter: Limiter, decision: Decision<'static>, hooks: Hooks) -> Self {
        Self { limiter, decision, hooks, headers: Headers::none(), decided: None }
    }

    /// Gives back what the head of the response says. Returns the headers, and what the end of the
    /// body settles.
    pub(crate) fn at_head(self, head: &Parts) -> Work<Settled> {
        let Self { limiter, mut decision, hooks, headers, decided } = self;
        let mut lengths = SmallVec::new();
        let mut refunds: SmallVec<[Hook; 1]> = SmallVec::new();
        for hook in hooks {
            match &hook.outcome {
                ByOutcome::Refund(says) if says(head) => refunds.push(hook),
                ByOutcome::Refund(_) => {}
                ByOutcome::Length(cost) => {
                    let held = limiter.hold(decision.receipt(hook.line, hook.cost));
                    lengths.push((held, Final::Length(cost.clone())));
                }
                ByOutcome::Tally => {
                    if let Some(tally) = head.extensions.get::<Tally>() {
                        let held = limiter.hold(decision.receipt(hook.line, hook.cost));
                        lengths.push((held, Final::Tally(tally.clone())));
                    }
                }
            }
        }
        Box::pin(async move {
            for Hook { line, cost, .. } in refunds {
                let receipt = decision.receipt(line, cost);
                // If the store cannot answer, the charge stays.
                if let Ok(reply) = limiter.refund(&receipt).await
                    && let Some(back) = reply.charges.first()
                {
                    decision.restate(line, back.standing);
                }
            }
            let at_end = (!lengths.is_empty()).then(|| Box::new(AtEnd { bytes: 0, lengths }));
            let decided = decided.map(|decided| decided.restated(&decision));
            Settled { stamp: headers.stamp(&decision, None), decided, at_end }
        })
    }
}

/// Where the final cost comes from.
enum Final {
    Length(Arc<dyn Fn(u64) -> u64 + Send + Sync>),
    Tally(Tally),
}

impl Final {
    /// `None` if the application's closure panics: then the estimate stays. A panic must not leave
    /// a drop, which may itself be part of one.
    fn cost(&self, bytes: u64) -> Option<u64> {
        match self {
            Self::Length(cost) => catch_unwind(AssertUnwindSafe(|| cost(bytes))).ok(),
            Self::Tally(tally) => Some(tally.units()),
        }
    }
}

/// How long a remote store may take to settle a charge after the response has gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Charges that the body settles, when this is dropped: at the end of the body, or
/// with it.
pub(crate) struct AtEnd {
    bytes: u64,
    lengths: SmallVec<[(Reservation, Final); 1]>,
}

impl AtEnd {
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        // A remote store may need tokio's timers: without a runtime it is not asked.
        let runtime = Handle::try_current().ok();
        for (held, cost) in self.lengths.drain(..) {
            let Some(cost) = cost.cost(self.bytes) else { continue };
            if runtime.is_none() && !held.is_embedded() {
                continue;
            }
            let mut work = Box::pin(held.settle(cost));
            // With the embedded store this is all. A remote one gets a task that ends by itself;
            // without a runtime, or if the store does not answer, the estimate stays.
            let mut now = Context::from_waker(Waker::noop());
            if work.as_mut().poll(&mut now).is_pending()
                && let Some(runtime) = &runtime
            {
                runtime.spawn(timeout(PATIENCE, work));
            }
        }
    }
}
