//! Charges whose cost is known only after the work is done: reserve, and later settle or refund.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use plimsoll::{
    Decision, Error, Limiter,
    decision::{Receipt, ReceiptLine},
};
use serde::Deserialize;
use serde_json::json;

use super::{
    Api,
    answer::{self, Token},
    body::{Body, ReceiptBody},
    caller::Caller,
    charges::ChargesBody,
    check::forbid_in_flight,
    problem::Problem,
    receipts::{Kind, used_up},
};

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
    let decision = api.parts().limiter.check(charges).await?;
    api.record(&decision);
    let Decision::Allowed(allowed) = decision.clone() else {
        return Ok(answer::of_check(&api, &lines, &decision));
    };
    let receipts = &api.parts().receipts;
    let validity = receipts.lifetime();
    let receipt = allowed.into_receipt();
    let text = receipts
        .issue(Kind::Reservation, &client, validity, &receipt, |charge| lines.text_of(charge));
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
    ReceiptBody(body): ReceiptBody<SettleBody>,
) -> Result<Response, Problem> {
    let (limiter, receipts) = (&api.parts().limiter, &api.parts().receipts);
    let opened = receipts.open(&client, Kind::Reservation, &body.receipt)?;
    if let Units::ByPolicy(units) = &body.units {
        opened.require_policies(units.keys())?;
    }
    let receipt = receipts.take(&opened).await?;
    let settled = match body.units {
        Units::Each(units) => limiter.hold(receipt).settle(units).await,
        Units::ByPolicy(units) => settle_each(limiter, receipt, &units).await,
    };
    settled.map_err(used_up)?;
    Ok(answer::json(&json!({ "settled": true }), HeaderMap::new()))
}

/// Settles the lines of each policy by themselves. A failure of one does not prevent the others.
async fn settle_each(
    limiter: &Limiter,
    receipt: Receipt,
    units: &BTreeMap<String, u64>,
) -> Result<(), Error> {
    let mut settled = Ok(());
    for line in receipt.lines() {
        let Some(units) = units.get(line.charge.policy().name()) else { continue };
        let quota = *line.charge.quota();
        let line = ReceiptLine::from_parts(line.charge.clone(), quota, line.units, line.mark);
        let receipt = Receipt::new(receipt.time, receipt.source, [line]);
        settled = settled.and(limiter.hold(receipt).settle(*units).await);
    }
    settled
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
    ReceiptBody(body): ReceiptBody<RefundBody>,
) -> Result<Response, Problem> {
    let receipts = &api.parts().receipts;
    let opened = receipts.open(&client, Kind::Reservation, &body.receipt)?;
    let receipt = receipts.take(&opened).await?;
    let units = api.parts().limiter.hold(receipt).refund().await.map_err(used_up)?;
    Ok(answer::json(&json!({ "units": units }), HeaderMap::new()))
}
