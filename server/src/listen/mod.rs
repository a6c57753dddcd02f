//! Listeners: connections with bounds on their number and their time, and their end.
//!
//! A connection is closed when
//!
//! - the head of a request has not arrived in time, or no request arrives for some time;
//! - it has reached its age, and its requests in flight are answered;
//! - the service ends, and its requests in flight are answered.

mod connection;
mod listener;
mod phase;
mod service;
mod streams;
mod usage;

pub(crate) use self::{
    listener::Listener,
    phase::{Phase, Phases},
};
