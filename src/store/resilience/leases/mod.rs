//! Leases: units of busy keys that this process takes in bulk and spends by itself.
//!
//! [`Stock`](stock::Stock) is the state machine of one key.

#![allow(dead_code, reason = "the pipeline does not call it yet")]

mod demand;
mod stock;
