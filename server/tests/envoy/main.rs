//! Envoy's rate limit service over the embedded store: each case of the published tests of envoyproxy/ratelimit
//! that concerns decisions, written anew, and the behavior beyond it.
#![allow(missing_docs, reason = "a test")]

mod decisions;
mod files;
mod from_the_clock;
mod hits;
mod json;
mod limits_of_requests;
mod matching;
mod metrics;
mod mistakes;
mod modes;
mod parser;
mod published;
mod published_hits;
mod published_service;
mod reload;
mod remaining;
mod responses;
mod slow_store;
mod support;
