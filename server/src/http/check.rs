//! Requests that name charges: checks, looks that spend nothing, and the charges that a client changes or gives back
//! later.

use axum::{extract::State, response::Response};
use plimsoll::Decision;

use super::{
    Api, answer,
    body::Body,
    caller::Caller,
    charges::{ChargesBody, Lines},
    problem::Problem,
    receipts::{Kind, part},
};
use crate::access::Client;

/// Admits and spends all charges, or spends none.
pub(super) async fn check(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<ChargesBody>,
) -> Result<Response, Problem> {
    spend(&api, &client, body, None).await
}

/// Charges like a check, and answers with a [receipt](Receipt).
pub(super) async fn reserve(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<ChargesBody>,
) -> Result<Response, Problem> {
    spend(&api, &client, body, Some(Kind::Reservation)).await
}

/// Charges policies that count a rate. Units in flight need a slot.
async fn spend(
    api: &Api,
    client: &Client,
    body: ChargesBody,
    kept: Option<Kind>,
) -> Result<Response, Problem> {
    let lines = body.find(api, client)?;
    forbid_in_flight(&lines)?;
    charge(api, client, &lines, kept).await
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
    charge(&api, &client, &lines, Some(Kind::Slot)).await
}

/// Returns the [decision](Decision) that a check would return, with status 200, and spends nothing.
pub(super) async fn peek(
    State(api): State<Api>,
    Caller(client): Caller,
    Body(body): Body<ChargesBody>,
) -> Result<Response, Problem> {
    let lines = body.find(&api, &client)?;
    let charges = lines.charges();
    if charges.is_empty() {
        return Ok(answer::switched_off(&lines));
    }
    let decision = api.parts().limiter.peek(charges).await?;
    Ok(answer::admitted(&api, &lines, &decision, None))
}

/// Charges all lines, or none. If the client gives something back later, the answer has a text of this kind.
async fn charge(
    api: &Api,
    client: &Client,
    lines: &Lines,
    kept: Option<Kind>,
) -> Result<Response, Problem> {
    let charges = lines.charges();
    if charges.is_empty() {
        return Ok(answer::switched_off(lines));
    }
    let decision = api.parts().limiter.check(charges).await?;
    api.record(&decision);
    let (Decision::Allowed(allowed), Some(kind)) = (decision.clone(), kept) else {
        return Ok(answer::of_check(api, lines, &decision));
    };
    let receipts = &api.parts().receipts;
    let receipt = allowed.into_receipt();
    let token = match kind {
        Kind::Reservation => Some(receipts.issue(kind, client, &receipt, |it| lines.text_of(it))),
        Kind::Slot => {
            let slot = part(&receipt, |line| line.charge.quota().is_concurrent());
            // The policies that count work in flight may be switched off.
            (!slot.lines().is_empty())
                .then(|| receipts.issue(kind, client, &slot, |it| lines.text_of(it)))
        }
    };
    Ok(answer::admitted(api, lines, &decision, token))
}

/// Returns the [problem](Problem) of a charge under a concurrency limit, whose units would never be released.
fn forbid_in_flight(lines: &Lines) -> Result<(), Problem> {
    let Some(line) = lines.in_flight().next() else { return Ok(()) };
    let name = line.registered.policy().name();
    let detail = format!("The policy {name:?} counts work in flight, which ends with a release");
    Err(Problem::invalid(detail, "POST /v1/slots/acquire"))
}
