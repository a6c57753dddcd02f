//! Listeners: connections with bounds on their number, their time and what they send, and their end.
//!
//! A connection is closed when
//!
//! - the head of a request has not arrived in time, or no request arrives for some time;
//! - the client does not take the body of a response, or a response has had no data for an hour;
//! - it has reached its age, and its requests in flight are answered;
//! - the service ends, and its requests in flight are answered.

mod connection;
mod listener;
mod phase;
mod service;
mod usage;
mod watched;

pub(crate) use self::{
    listener::Listener,
    phase::{Phase, Phases},
};
