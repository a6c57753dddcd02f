//! Routes, for rules that charge, exempt or set the cost of some requests.
//!
//! [`is`] and [`grpc`] return closures for [`Rule::only`](crate::Rule::only) and
//! [`RateLimitLayer::exempt`](crate::RateLimitLayer::exempt).
//! [`is_preflight`] recognizes CORS preflights. [`validate`] checks a route that comes from a file.
//! [`cost::by_route`](crate::cost::by_route) is a table of costs by route. [`path`] returns the path
//! of a request, for closures of your own.
//!
//! # Which text matches a request
//!
//! A route is written as `"/search"` for any method, or as `"GET /search"`. `GET` also matches
//! `HEAD`. The path matches a request if it equals one of these:
//!
//! | name of the request | a `GET /api/users/7`, in a router under `/api` |
//! |---|---|
//! | the route that axum has matched, with the prefixes of nested routers | `/api/users/{id}` |
//! | that route without the prefix of the router in which the layer is | `/users/{id}` |
//! | the path that the client has requested | `/api/users/7` |
//! | the path that the inner service receives | `/users/7` |
//!
//! Outside of a nested router, the first two names are equal, and so are the last two. In a layer inside
//! of a nested router, a text that begins with the prefix of the router, such as `/api/users/7`, is compared
//! with the first and the third name only, and every other text with the second and the fourth only. So one
//! text never means two routes.
//!
//! The prefix of a nested router may have a parameter, as in `nest("/{tenant}", ..)`. Inside of
//! this router, the path that the client has requested is not compared, because the client chooses
//! a part of it. Example: for the tenant `a`, the requested path of the inner route `/b` is `/a/b`.
//! So the text `"/a/b"` is compared only with the inner path: it matches the request `/a/a/b`, and
//! not the request `/a/b`.
//!
//! A text with a parameter, such as `/users/{id}`, is compared with routes and never with paths,
//! because a client may write `{id}` into its path. It therefore needs a layer that runs after
//! routing: `Router::layer` or `Router::route_layer`, or a layer of a handler. A layer that wraps the
//! finished `Router` from outside, or a service other than axum, knows only paths.
//!
//! tonic routes all methods of a service as one, such as `/grpc.health.v1.Health/{*rest}`. Its
//! methods are found by their paths. [`grpc`] matches one method, or all methods of a service.
//!
//! # Other spellings of a path
//!
//! A client can write one path in several ways: `/search`, `/%73earch`, `//search`, `/search/` and
//! `/./search`. A client must not escape a limit in this way, or spend the budget of another route.
//!
//! - **A route without parameters has one spelling.** axum compares paths as they are written, and
//!   sends every other spelling to another route, or to the fallback of the router. If axum has matched such a
//!   route, other spellings are not considered.
//! - **Otherwise, a limit applies to all spellings.** If axum has matched a route with a parameter
//!   (`/{*rest}`), or nothing yet, a handler may treat two spellings as the same. So
//!   [`only`](crate::Rule::only) also matches a path with the same normal form as the text.
//!   Percent-encoding is decoded, empty segments and `.` are removed, and `..` removes the segment
//!   before it. A nested router removes its prefix first, and `..` at the start of the rest removes nothing.
//!   So `/api/../login` matches `/login`, and also `/api/login`.
//! - **An exemption applies to one spelling.** [`exempt`](crate::RateLimitLayer::exempt) does not
//!   consider other spellings: axum may send `/%68ealth` to a costly handler of `/{page}` and not to the
//!   handler of `/health`.
//! - **A spelling never lowers the cost.** In [`cost::by_route`](crate::cost::by_route), another
//!   spelling costs as much as its normal form or as the spelling that was sent, whichever is more.
//!
//! Closures of your own have to handle other spellings themselves. In `only`, do not negate [`is`]:
//! `|parts| !is_health(parts)` would turn a limit into an exemption. Use
//! [`exempt`](crate::RateLimitLayer::exempt).
//!
//! # A rule that matches nothing
//!
//! A text that can match no request is refused when the rule is made: axum's forms of other versions and of
//! other routers (`/users/:id`, `/files/*path`), parameters that axum refuses, methods such as `ANY`, queries.
//!
//! Another mistake in a route is not visible in a response. So each route that has matched none of the
//! first 1000 requests that were compared with it is reported by one event at level `WARN` (feature
//! `tracing`). The event names the route, the line of the program, and the route that axum has
//! matched for the last of these requests. See [the warnings of misuse](crate::guide::operations#warnings-of-misuse).

mod form;
mod matching;
mod names;
mod spelling;

pub(super) use self::{matching::RouteEntry, names::Names};
pub use self::{
    matching::{grpc, is, is_preflight, validate},
    names::path,
};
pub(crate) use self::{
    names::matched,
    spelling::{exactly, has_other_spelling},
};
