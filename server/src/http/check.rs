//! Checks, and looks that spend nothing.

use axum::{extract::State, response::Response};

use super::{
    Api, answer,
    body::Body,
    caller::Caller,
    charges::{ChargesBody, Lines},
    problem::Problem,
};

/// Admits and spends all charges, or spends none.
pub(super) async fn check(
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
    Ok(answer::of_check(&api, &lines, &decision))
}

/// Returns the decision that a check would return, with status 200, and spends nothing.
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

/// Returns the problem of a charge under a concurrency limit, whose units would never be released.
pub(super) fn forbid_in_flight(lines: &Lines) -> Result<(), Problem> {
    let Some(line) = lines.in_flight().next() else { return Ok(()) };
    let name = line.registered.policy().name();
    let detail = format!("The policy {name:?} counts work in flight, which ends with a release");
    Err(Problem::invalid(detail, "POST /v1/slots/acquire"))
}
