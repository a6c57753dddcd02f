//! The settlement of charges when the head of the response has arrived.

use std::pin::Pin;

use http::{header::CONTENT_LENGTH, response::Parts};
use http_body::SizeHint;
use smallvec::SmallVec;

use super::{
    ResponseHooks,
    body_settlement::{BodySettlement, FinalCost, HeldCharges},
    hooks::ResponseHook,
};
use crate::{
    decision::Decision,
    limiter::Limiter,
    outcome::Tally,
    rule::{Adjustment, cost},
};

/// An admitted request, some of whose charges depend on the response.
pub(crate) struct Settlement {
    pub(crate) limiter: Limiter,
    pub(crate) decision: Decision<'static>,
    pub(crate) hooks: ResponseHooks,
}

/// The result of [`Settlement::at_head`].
pub(crate) struct Settled {
    /// The decision, with the standings after the refunds.
    pub(crate) decision: Decision<'static>,
    /// The charges that the end of the body settles.
    pub(crate) at_end: Option<Box<BodySettlement>>,
}

/// The future of a settlement. If it is dropped, the charges stay as they are.
pub(crate) type SettlementFuture = Pin<Box<dyn Future<Output = Settled> + Send>>;

impl Settlement {
    /// Refunds the charges whose [`Rule::refund_if`](crate::Rule::refund_if) accepts the head of
    /// the response, and collects those that the end of the body settles. Charges that were not made,
    /// such as shadows that did not pass, are neither refunded nor settled. `size` is the size of the
    /// body, as far as it is known.
    pub(crate) fn at_head(self, head: &Parts, size: &SizeHint) -> SettlementFuture {
        let Self { limiter, mut decision, hooks } = self;
        let mut refunds: ResponseHooks = SmallVec::new();
        let mut held = HeldCharges::new();
        for hook in hooks {
            let final_cost = match &hook.adjustment {
                Adjustment::RefundIf(refund) => {
                    if refund(head) {
                        refunds.push(hook);
                    }
                    continue;
                }
                Adjustment::CostOfBody(cost) if hook.is_head => match length(head, size) {
                    Some(bytes) => FinalCost::OfLength(cost.clone(), bytes),
                    // Without a length the estimate stays.
                    None => continue,
                },
                Adjustment::CostOfBody(cost) => FinalCost::OfBody(cost.clone()),
                Adjustment::SettleTally => match head.extensions.get::<Tally>() {
                    Some(tally) => FinalCost::Tally(tally.clone()),
                    // Without a tally the estimate stays.
                    None => continue,
                },
            };
            let receipt = decision.receipt(hook.charge, hook.cost);
            if !receipt.lines().is_empty() {
                held.push((limiter.hold(receipt), final_cost));
            }
        }
        Box::pin(async move {
            for ResponseHook { charge, cost, .. } in refunds {
                let receipt = decision.receipt(charge, cost);
                // No request is sent to refund nothing: the response waits for it.
                if receipt.units() == 0 {
                    continue;
                }
                // If the store cannot answer, the charge stays.
                if let Ok(reply) = limiter.refund(&receipt).await
                    && let Some(refunded) = reply.charges.first()
                {
                    decision.restate(charge, refunded.standing);
                }
            }
            Settled { decision, at_end: BodySettlement::new(held) }
        })
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
