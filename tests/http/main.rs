//! The layers, as tower and axum see them: rules, responses, outcomes, and programs as users write them.

mod by;
mod by_client_ip;
mod concurrency;
mod examples;
mod header_vectors;
mod middleware;
mod outcome;
mod outcome_metrics;
mod outcome_runtime;
mod personas;
mod route_spellings;
