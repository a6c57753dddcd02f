//! The tower middleware: a layer, the service it makes, its future and its response body.

mod body;
mod config;
mod denial;
mod future;
mod headers;
mod layer;
mod service;
mod settlement;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use headers::{Headers, Reset};
pub use layer::RateLimitLayer;
pub use service::RateLimit;
