//! Programs as users write them, asked real requests over a loopback connection. What needs
//! tower_governor is a test of benches/peers, and what needs tonic or `reqwest` one of tests/heavy.

#[cfg(feature = "axum")]
mod app_test;
#[cfg(feature = "axum")]
mod async_tiers;
#[cfg(feature = "redis")]
mod batch;
mod first_day;
#[cfg(all(feature = "axum", feature = "redis"))]
mod growing;
#[cfg(feature = "axum")]
mod login;
#[cfg(feature = "axum")]
mod nested;
#[cfg(feature = "axum")]
mod newcomer;
#[cfg(all(feature = "axum", feature = "redis"))]
mod operator;
