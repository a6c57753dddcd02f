//! A layer around a client of services with quotas.
//!
//! [`PaceLayer`] charges calls before they are made, so that the server does not have to deny them.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use http::{Request, Response};
//! use plimsoll::{Limiter, Policy, Quota, Rule, by, client::PaceLayer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let http_client = service_fn(|_: Request<String>| async {
//! #     Ok::<_, std::convert::Infallible>(Response::new(String::new()))
//! # });
//! let upstream = Policy::new("upstream", Quota::per_second(5))?;
//! let pace = PaceLayer::new(Limiter::in_memory(), Rule::new(upstream, by::constant("upstream")))
//!     .wait(Duration::from_secs(10));
//! let client = ServiceBuilder::new().layer(pace).service(http_client);
//!
//! let response = client.oneshot(Request::new(String::new())).await?;
//! # Ok(())
//! # }
//! ```

mod error;
mod layer;
mod service;
mod upstream;

pub use self::{error::PaceError, layer::PaceLayer, service::Pace};
