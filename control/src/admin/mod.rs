//! The admin page and its JSON API, as an axum router: [`router`].
//!
//! - The page shows the policies, the instances and what they admit and deny together, the keys that are denied most,
//!   the standing of a key under every policy, trials, the store and the audit log. It changes limits, with a reason.
//!   Each denial is an event of the library.
//! - The API does the same for programs. Errors are problem documents that say what is allowed.
//! - Both are closed by default: an [`Access`] is a required argument.
//!
//! ```
//! use axum::{Router, routing::get};
//! use plimsoll::{Limiter, Policy, RateLimitLayer, Rule, by};
//! use plimsoll_control::{
//!     KeyType, Offenders, Overrides, Registry, Origin,
//!     admin::{self, Access, AdminConfig},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (limiter, registry) = (Limiter::in_memory(), Registry::default());
//! let search = Policy::new("search", "100/min")?;
//! let search = registry.register(search, Origin::Code, KeyType::Text)?;
//!
//! // The page shows the keys that the layer denies.
//! let offenders = Offenders::new(1_000);
//! let decisions = offenders.clone();
//! let limit = RateLimitLayer::new(
//!     limiter.clone(),
//!     Rule::new(search.policy().clone(), by::header("x-api-key")),
//! )
//! .on_decision(move |decision, _| decisions.record(decision));
//!
//! let access = Access::tokens().write("alice", "a long random token");
//! let overrides = Overrides::in_memory(registry.clone(), limiter.clone());
//! let config = AdminConfig::new(overrides, offenders, access);
//! let app: Router = Router::new()
//!     .route("/search", get(|| async { "found" }).layer(limit))
//!     .nest("/admin/", admin::router(config));
//! # Ok(())
//! # }
//! ```
//!
//! The path of [`nest`](axum::Router::nest) ends with a slash, because the page finds its files and the API
//! beside it. On a port of its own, the router needs no path.

mod access;
mod api;
mod config;
mod guard;
mod page;
mod problem;
mod router;

pub use self::{
    access::{Access, Operator, Role},
    config::AdminConfig,
    router::router,
};
