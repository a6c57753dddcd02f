//! Slots of concurrency limits: units in flight, which a client acquires before work, renews while it works, and
//! releases after it.
//!
//! Nothing about a slot is kept in this process: the store has its units, and the client its receipt. So each
//! instance can renew and release the slots of the others. A slot that is not renewed expires in the store.

use std::time::Duration;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use plimsoll::{
    Decision,
    decision::{Receipt, ReceiptLine},
    policy::Charges,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    Api,
    answer::{self, Token},
    body::{Body, ReceiptBody},
    caller::Caller,
    charges::ChargesBody,
    problem::Problem,
    receipts::{Kind, expired, used_up},
};

/// The body of a request about a slot.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlotBody {
    slot: String,
}

/// Acquires a slot, together with charges that are spent.
pub(super) async fn acquire(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<ChargesBody>,
) -> Result<Response, Problem> {
    let lines = body.find(&api, &client)?;
    if lines.in_flight().next().is_none() {
        let detail = "No policy of the request counts work in flight";
        let allowed = "at least one policy with a quota such as \"20 concurrent\"";
        return Err(Problem::invalid(detail, allowed));
    }
    let charges = lines.charges();
    if charges.is_empty() {
        return Ok(answer::switched_off(&lines));
    }
    let decision = api.parts().limiter.check(charges).await?;
    api.record(&decision);
    let Decision::Allowed(allowed) = decision.clone() else {
        return Ok(answer::of_check(&api, &lines, &decision));
    };
    let receipt = in_flight(&allowed.into_receipt());
    // The policies that count work in flight may be switched off.
    let token = (!receipt.lines().is_empty()).then(|| {
        let (validity, receipts) = (validity(&receipt), &api.parts().receipts);
        let text =
            receipts.issue(Kind::Slot, &client, validity, &receipt, |charge| lines.text_of(charge));
        Token { receipt: None, slot: Some(text), expires_in: validity.as_secs_f64() }
    });
    Ok(answer::admitted(&api, &lines, &decision, token))
}

/// Charges the units of a slot again, and releases the old ones. Between the two, one unit too many is counted,
/// and never one too few.
pub(super) async fn renew(
    State(api): State<Api>,
    Caller(client): Caller,
    ReceiptBody(body): ReceiptBody<SlotBody>,
) -> Result<Response, Problem> {
    let (limiter, receipts) = (&api.parts().limiter, &api.parts().receipts);
    let opened = receipts.open(&client, Kind::Slot, &body.slot)?;
    let old = receipts.take(&opened).await?;
    let charges: Charges<'_> = old.lines().iter().map(|line| line.charge.clone()).collect();
    if charges.is_empty() {
        // The slot was admitted without the store, and holds no unit that could be renewed.
        return Err(expired());
    }
    let renewed = limiter.penalize(charges).await.map_err(used_up)?;
    // If the old units are not released, they expire.
    drop(limiter.hold(old).refund().await);
    let receipt = renewed.into_receipt();
    let validity = validity(&receipt);
    let text =
        receipts.issue(Kind::Slot, &client, validity, &receipt, |charge| opened.text_of(charge));
    let body = json!({ "slot": text, "expires_in": validity.as_secs_f64() });
    Ok(answer::json(&body, HeaderMap::new()))
}

/// Releases the units of a slot.
pub(super) async fn release(
    State(api): State<Api>,
    Caller(client): Caller,
    ReceiptBody(body): ReceiptBody<SlotBody>,
) -> Result<Response, Problem> {
    let receipts = &api.parts().receipts;
    let opened = receipts.open(&client, Kind::Slot, &body.slot)?;
    let receipt = receipts.take(&opened).await?;
    let units = api.parts().limiter.hold(receipt).refund().await.map_err(used_up)?;
    Ok(answer::json(&json!({ "units": units }), HeaderMap::new()))
}

/// Returns the lines of a receipt whose units are in flight.
fn in_flight(receipt: &Receipt) -> Receipt {
    let lines = receipt.lines().iter().filter(|line| line.charge.quota().is_concurrent());
    let lines = lines.map(|line| {
        let quota = *line.charge.quota();
        ReceiptLine::from_parts(line.charge.clone(), quota, line.units, line.mark)
    });
    Receipt::new(receipt.time, receipt.source, lines)
}

/// Returns the time until the first unit of a receipt expires.
fn validity(receipt: &Receipt) -> Duration {
    let windows = receipt.lines().iter().map(|line| line.charge.quota().window());
    windows.min().unwrap_or(Duration::from_secs(1))
}
