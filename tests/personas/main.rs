//! Programs as users write them, asked real requests over a loopback connection.

#[cfg(feature = "axum")]
#[allow(dead_code, reason = "no persona needs all of it")]
#[path = "../common_http/mod.rs"]
mod common_http;
#[cfg(feature = "axum")]
mod from_tower_governor;
#[cfg(all(feature = "axum", feature = "tonic"))]
mod grpc;
#[cfg(feature = "axum")]
mod nested;
#[cfg(feature = "axum")]
mod reqwest;
