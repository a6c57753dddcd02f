//! The client of a request.

use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, request::Parts};

use super::{
    Api,
    problem::{Problem, TokenError},
};
use crate::access::Client;

/// The client that has sent a request.
pub(super) struct Caller(pub(super) Client);

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        find(api, &parts.headers).map(Self)
    }
}

/// Passes the request of a client that may use all policies on, and rejects others: for routes that name no
/// policies.
pub(crate) async fn require_full_access(
    State(api): State<Api>,
    request: Request,
    next: Next,
) -> Response {
    match find(&api, request.headers()) {
        Ok(client) if client.may_use_all() => next.run(request).await,
        Ok(_) => {
            let detail = "The client may use some policies, and not this path";
            let problem = Problem::new(StatusCode::FORBIDDEN, "Another client's path", detail);
            problem.allowed("a client that may use all policies").into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

fn find(api: &Api, headers: &HeaderMap) -> Result<Client, Problem> {
    api.parts().clients.find(headers).map_err(|denied| {
        let detail = match denied {
            TokenError::Missing => "The request has no token, or more than one",
            TokenError::Unknown => "The token belongs to no client",
        };
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "No client", detail);
        problem.allowed("the header \"Authorization: Bearer TOKEN\"")
    })
}
