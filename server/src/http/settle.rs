//! Requests about receipts and slots. A receipt is settled or refunded, and a slot is renewed while
//! its work lasts, and then released.
//!
//! Nothing about a slot is kept in this process: the store has its units, and the client its receipt. So each
//! instance can renew and release the slots of the others. A slot that is not renewed expires in the store.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use http::HeaderMap;
use plimsoll::policy::Charges;
use serde::Deserialize;
use serde_json::json;

use super::{
    Api, answer,
    body::ReceiptBody,
    caller::Caller,
    problem::Problem,
    receipts::{Kind, expired, part, used_up},
};
use crate::access::Client;

/// The body of a settlement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    receipt: String,
    /// The units that the charges under these policies cost in the end. The others stay as they are.
    units: BTreeMap<String, u64>,
}

/// The body of a refund.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefundBody {
    receipt: String,
}

/// The body of a request about a slot.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlotBody {
    slot: String,
}

/// Changes the cost of the charges of a receipt.
pub(super) async fn settle(
    State(api): State<Api>,
    Caller(client): Caller,
    ReceiptBody(body): ReceiptBody<SettleBody>,
) -> Result<Response, Problem> {
    let receipts = &api.parts().receipts;
    let opened = receipts.open(&client, Kind::Reservation, &body.receipt)?;
    opened.require_policies(body.units.keys())?;
    let receipt = receipts.take(&opened).await?;
    // A failure under one policy does not prevent the settlement under the others.
    let mut settled = Ok(());
    for (policy, units) in body.units {
        let lines = part(&receipt, |line| line.charge.policy().name() == policy);
        settled = settled.and(api.parts().limiter.hold(lines).settle(units).await);
    }
    settled.map_err(used_up)?;
    Ok(answer::json(&json!({ "settled": true }), HeaderMap::new()))
}

/// Refunds the units that the charges of a receipt still hold.
pub(super) async fn refund(
    State(api): State<Api>,
    Caller(client): Caller,
    ReceiptBody(body): ReceiptBody<RefundBody>,
) -> Result<Response, Problem> {
    give_back(&api, &client, Kind::Reservation, &body.receipt).await
}

/// Releases the units of a slot.
pub(super) async fn release(
    State(api): State<Api>,
    Caller(client): Caller,
    ReceiptBody(body): ReceiptBody<SlotBody>,
) -> Result<Response, Problem> {
    give_back(&api, &client, Kind::Slot, &body.slot).await
}

async fn give_back(
    api: &Api,
    client: &Client,
    kind: Kind,
    text: &str,
) -> Result<Response, Problem> {
    let receipts = &api.parts().receipts;
    let receipt = receipts.take(&receipts.open(client, kind, text)?).await?;
    let units = api.parts().limiter.hold(receipt).refund().await.map_err(used_up)?;
    Ok(answer::json(&json!({ "units": units }), HeaderMap::new()))
}

/// Charges the units of a slot again, and then releases the old ones. Between the two calls, the units count twice,
/// and no unit is missing.
pub(super) async fn renew(
    State(api): State<Api>,
    Caller(client): Caller,
    ReceiptBody(body): ReceiptBody<SlotBody>,
) -> Result<Response, Problem> {
    let limiter = &api.parts().limiter;
    let receipts = &api.parts().receipts;
    let opened = receipts.open(&client, Kind::Slot, &body.slot)?;
    let old = receipts.take(&opened).await?;
    let charges: Charges<'_> = old.lines().iter().map(|line| line.charge.clone()).collect();
    if charges.is_empty() {
        // The slot was admitted without the store, and holds no unit that could be renewed.
        return Err(expired());
    }
    let renewed = limiter.penalize(charges).await.map_err(used_up)?.into_receipt();
    // If the old units are not released, they expire.
    drop(limiter.hold(old).refund().await);
    let token = receipts.issue(Kind::Slot, &client, &renewed, |charge| opened.text_of(charge));
    Ok(answer::json(&token, HeaderMap::new()))
}
