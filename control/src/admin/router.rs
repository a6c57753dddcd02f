//! The routes of the page and of the API.

use std::sync::Arc;

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    routing::{any, get, post},
};

use super::{AdminConfig, api, config::Admin, guard, page};

/// Creates the routes of the admin page and its API, which are relative to the path of the page.
///
/// The page itself is public and shows nothing before the operator has signed in. All of the API needs an
/// [`Operator`](super::Operator).
pub fn router(config: AdminConfig) -> Router {
    let admin: Admin = Arc::new(config);
    let api = Router::new()
        .route("/policies", get(api::policies))
        .route("/keys", get(api::key))
        .route(
            "/overrides",
            get(api::overrides).put(api::set_override).delete(api::remove_override),
        )
        .route("/reset", post(api::reset))
        .route("/block", post(api::block))
        .route("/unblock", post(api::unblock))
        .route("/offenders", get(api::offenders))
        .route("/audit", get(api::audit))
        .route("/status", get(api::status))
        .route("/fleet", get(api::fleet))
        .route("/hits", get(api::hits))
        .route("/trials", get(api::trials))
        // A fallback would be out of reach below a path with a slash at its end.
        .route("/{*path}", any(api::not_found))
        .method_not_allowed_fallback(api::method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&admin), guard::authorize));
    let mut router = Router::new().nest("/api", api).route("/api/session", get(api::session));
    for file in &page::FILES {
        router = router.route(file.path, get(move || async move { file.response() }));
    }
    router.layer(from_fn(guard::protect)).with_state(admin)
}
