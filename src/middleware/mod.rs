//! The tower middleware: a layer, the service it makes, its future and its response body.

mod base64;
mod body;
mod decide;
mod decided;
mod denial;
mod future;
mod grpc;
mod headers;
mod layer;
mod service;
pub(crate) mod settlement;
mod text;

pub use body::ResponseBody;
pub use decided::Decided;
#[cfg(feature = "axum")]
pub use decided::NotDecided;
pub use future::ResponseFuture;
pub use headers::{Headers, Reset};
pub use layer::RateLimitLayer;
pub use service::RateLimit;
