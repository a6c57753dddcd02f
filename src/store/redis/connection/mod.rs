//! Connections to Redis: opened, shared by many requests, watched and replaced.

mod connector;
mod dns;
mod health;
mod pool;
mod sentinel;
mod single_flight;

pub(super) use self::{
    connector::{Connector, ServerConnector},
    pool::Pool,
    sentinel::SentinelConnector,
    single_flight::SingleFlight,
};
