//! The checks before all handlers, and the headers of all responses.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        X_FRAME_OPTIONS,
    },
};

use super::{Role, config::Admin};
use crate::web::Problem;

/// The page loads its own files and nothing else. It writes no HTML from texts.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// The site that caused the request, as browsers say.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Passes the request on with its [`Operator`](super::Operator) as an extension, or rejects it.
pub(super) async fn authorize(
    State(admin): State<Admin>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(operator) = admin.access.operator(&parts) else {
        return unauthorized();
    };
    let changes = !matches!(parts.method, Method::GET | Method::HEAD);
    if changes && is_cross_site(&parts.headers) {
        let detail = "The browser says that another site has caused this request";
        let problem = Problem::new(StatusCode::FORBIDDEN, "Another site", detail);
        return problem.allowed("changes from the admin page, or from a program").into_response();
    }
    if changes && operator.role() < Role::Write {
        let detail = format!("{:?} may see everything and change nothing", operator.name());
        let problem = Problem::new(StatusCode::FORBIDDEN, "Read only", detail);
        return problem.allowed("an operator with the role \"write\"").into_response();
    }
    parts.extensions.insert(operator);
    next.run(Request::from_parts(parts, body)).await
}

/// Adds the headers that all responses have.
pub(super) async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // The page of a new version asks the API of that version.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        let value = HeaderValue::from_static("same-origin");
        headers.insert(HeaderName::from_static(name), value);
    }
    response
}

fn unauthorized() -> Response {
    let detail = "The request has no token, or one that is not known";
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "No operator", detail);
    problem.allowed("the header \"Authorization: Bearer TOKEN\"").into_response()
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    !matches!(site, None | Some(b"same-origin" | b"none"))
}
