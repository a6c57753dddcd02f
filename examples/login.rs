//! Counts only failed logins: `cargo run -p plimsoll-examples --example login`.
//!
//! Send `POST /login` with `alice:open sesame` as its body. Each account may fail 3 times a minute.
//!
//! The name of the account is in the body, which a layer does not read. So the handler reserves an
//! attempt before it verifies the password, and refunds it if the password is right. Because the
//! attempt is charged first, concurrent requests cannot try more than 3 wrong passwords.

mod support;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::post,
};
use plimsoll::{Limiter, Policy, Quota, limiter::Reserved};

#[derive(Clone)]
struct App {
    limiter: Limiter,
    failed_logins: Policy,
}

#[tokio::main]
async fn main() -> support::Outcome<()> {
    let failed_logins = Policy::new("failed-logins", Quota::per_minute(3))?;
    let app = App { limiter: support::limiter_from_env().await?, failed_logins };
    support::serve(Router::new().route("/login", post(login)).with_state(app)).await
}

async fn login(State(app): State<App>, body: String) -> Response {
    let Some((user, password)) = body.split_once(':') else {
        return (StatusCode::BAD_REQUEST, "send USER:PASSWORD\n").into_response();
    };
    let attempt = match app.limiter.reserve(app.failed_logins.charge(user, 1)).await {
        Ok(Reserved::Held(attempt)) => attempt,
        Ok(Reserved::Denied(denied)) => {
            let wait = denied.retry_after().unwrap_or_default();
            let seconds = wait.as_micros().div_ceil(1_000_000).max(1).to_string();
            let headers = [(RETRY_AFTER, seconds)];
            return (StatusCode::TOO_MANY_REQUESTS, headers, "too many failed logins\n")
                .into_response();
        }
        // The store failed. Attempts that are not counted are not allowed.
        Err(_) => return (StatusCode::SERVICE_UNAVAILABLE, "try again later\n").into_response(),
    };
    if !is_right(password).await {
        return (StatusCode::UNAUTHORIZED, "wrong password\n").into_response();
    }
    // If the refund fails, the attempt stays charged, and the login still succeeds.
    let _ = attempt.refund().await;
    "welcome\n".into_response()
}

async fn is_right(password: &str) -> bool {
    // A real service verifies a slow hash here, such as argon2.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    password == "open sesame"
}
