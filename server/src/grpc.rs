//! The gRPC listener: its services, and the clients that may use them.

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use tonic::{Status, service::Routes};

use crate::access::Clients;
use plimsoll_control::web::TokenError;

/// The path of the health service, which needs no token.
const HEALTH: &str = "/grpc.health.v1.Health/";

/// Returns the router of gRPC services. A client needs a token for all but the health service, and may use
/// all policies, because the services name policies by descriptors.
pub(crate) fn router(services: Routes, clients: Clients) -> Router {
    let router = services.prepare().into_axum_router();
    if clients.is_empty() {
        return router;
    }
    router.layer(from_fn_with_state(clients, authorize))
}

/// Returns the answer to a call that was not answered in time.
pub(crate) fn too_slow() -> Response {
    Status::deadline_exceeded("the request took too long").into_http()
}

async fn authorize(State(clients): State<Clients>, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with(HEALTH) {
        return next.run(request).await;
    }
    match clients.find(request.headers()) {
        Ok(client) if client.may_use_all() => next.run(request).await,
        Ok(_) => Status::permission_denied("the client may not use all policies").into_http(),
        Err(TokenError::Missing) => {
            let message = "the call has no metadata \"authorization: Bearer TOKEN\"";
            Status::unauthenticated(message).into_http()
        }
        Err(TokenError::Unknown) => {
            Status::unauthenticated("the token belongs to no client").into_http()
        }
    }
}
