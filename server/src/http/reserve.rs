//! Charges whose cost is known only after the work is done: reserve, and later settle or refund.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use plimsoll::{Decision, Effect, Error, Limiter, Receipt, ReceiptLine};
use serde::Deserialize;
use serde_json::json;

use super::{
    Api,
    answer::{self, Token},
    body::Body,
    caller::Caller,
    charges::ChargesBody,
    check::forbid_in_flight,
    problem::Problem,
    receipt::{self, Opened},
};
use crate::receipts::Kind;

/// Charges like a check, and answers with a receipt.
pub(super) async fn reserve(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<ChargesBody>,
) -> Result<Response, Problem> {
    let lines = body.find(&api, &client)?;
    forbid_in_flight(&lines)?;
    let charges = lines.charges();
    if charges.is_empty() {
        return Ok(answer::switched_off(&lines));
    }
    receipt::require_short(&api, &client, &lines.0.iter().collect::<Vec<_>>())?;
    let decision = api.parts().limiter.check(charges).await?;
    api.record(&decision);
    let Decision::Allowed(allowed) = decision.clone() else {
        return Ok(answer::of_check(&api, &lines, &decision));
    };
    let validity = api.parts().receipts.lifetime();
    let receipt = allowed.into_receipt();
    let text = receipt::issue(&api, Kind::Reservation, &client, validity, &receipt, |charge| {
        lines.text_of(charge)
    });
    let token = Token { receipt: Some(text), slot: None, expires_in: validity.as_secs_f64() };
    Ok(answer::admitted(&api, &lines, &decision, Some(token)))
}

/// The body of a settlement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    receipt: String,
    units: Units,
}

/// The units that the charges of a receipt cost in the end.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number of units, or a table of numbers by policy")]
enum Units {
    /// Each charge costs this.
    Each(u64),
    /// The charges under these policies cost this, and the others stay as they are.
    ByPolicy(BTreeMap<String, u64>),
}

/// Changes the cost of the charges of a receipt.
pub(super) async fn settle(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<SettleBody>,
) -> Result<Response, Problem> {
    let opened = Opened::new(&api, &client, Kind::Reservation, &body.receipt)?;
    if let Units::ByPolicy(units) = &body.units {
        opened.require_policies(units.keys())?;
    }
    let receipt = opened.claim(&api).await?;
    let limiter = &api.parts().limiter;
    let settled = match body.units {
        Units::Each(units) => limiter.hold(receipt).settle(units).await,
        Units::ByPolicy(units) => settle_each(limiter, receipt, &units).await,
    };
    opened.withdraw_on_error(&api, settled).await?;
    Ok(answer::json(&json!({ "settled": true }), HeaderMap::new()))
}

/// Settles the lines of each policy by themselves. A failure of one does not prevent the others. The first error is
/// returned, with the effect of all lines: the receipt must not be used again once a line was settled.
async fn settle_each(
    limiter: &Limiter,
    receipt: Receipt,
    units: &BTreeMap<String, u64>,
) -> Result<(), Error> {
    let (mut settled, mut effects) = (Ok(()), Vec::new());
    for line in receipt.lines() {
        let Some(units) = units.get(line.charge().policy().name()) else { continue };
        let quota = *line.charge().quota();
        let line = ReceiptLine::from_parts(line.charge().clone(), quota, line.units(), line.mark());
        let receipt = Receipt::from_parts(receipt.time(), receipt.source(), [line]);
        let line = limiter.hold(receipt).settle(*units).await;
        effects.push(line.as_ref().map_or_else(Error::effect, |()| Effect::Applied));
        settled = settled.and(line);
    }
    settled.map_err(|error| error.with_effect(strongest(&effects)))
}

/// Returns the effect of a request whose parts had these effects.
fn strongest(effects: &[Effect]) -> Effect {
    let order = [Effect::Applied, Effect::Unknown];
    order.into_iter().find(|effect| effects.contains(effect)).unwrap_or(Effect::None)
}

/// The body of a refund.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefundBody {
    receipt: String,
}

/// Refunds the units that the charges of a receipt still hold.
pub(super) async fn refund(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<RefundBody>,
) -> Result<Response, Problem> {
    let opened = Opened::new(&api, &client, Kind::Reservation, &body.receipt)?;
    let receipt = opened.claim(&api).await?;
    let refunded = api.parts().limiter.hold(receipt).refund().await;
    let units = opened.withdraw_on_error(&api, refunded).await?;
    Ok(answer::json(&json!({ "units": units }), HeaderMap::new()))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use plimsoll::{
        ErrorKind, MemoryConfig, MemoryStore, Policy, Quota, Resilience,
        store::{Answer, Request, Store},
    };

    use super::*;

    /// A store that refunds nothing of one policy.
    #[derive(Debug)]
    struct Broken {
        memory: MemoryStore,
        policy: &'static str,
    }

    impl Store for Broken {
        fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
            match request {
                Request::Refund(receipt)
                    if receipt.lines()[0].charge().policy().name() == self.policy =>
                {
                    Answer::ready(Err(Error::new(ErrorKind::ReadOnly, "no")))
                }
                other => self.memory.call(other, deadline),
            }
        }
    }

    #[tokio::test]
    async fn a_receipt_is_used_up_once_one_of_its_lines_is_settled() {
        let names = ["a", "b"];
        for (broken, settled, effect) in [
            ("b", &names[..], Effect::Applied),
            ("a", &names, Effect::Applied),
            ("b", &names[1..], Effect::None),
        ] {
            let memory = MemoryStore::new(MemoryConfig::default());
            let store = Broken { memory, policy: broken };
            let limiter = Limiter::with(store, Resilience::none());
            let policies = names.map(|name| Policy::new(name, Quota::per_hour(10)).unwrap());
            let charges: Vec<_> = policies.iter().map(|policy| policy.charge("k", 5)).collect();
            let Decision::Allowed(allowed) = limiter.check(charges).await.unwrap() else {
                panic!("the first check")
            };
            let units = settled.iter().map(|name| ((*name).to_owned(), 1)).collect();
            let error = settle_each(&limiter, allowed.into_receipt(), &units).await.unwrap_err();
            assert_eq!(error.effect(), effect, "{broken} {settled:?}");
        }
    }
}
