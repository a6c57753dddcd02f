//! The connections to Redis: how they are opened, shared by many requests, checked and replaced.
//!
//! - A [`Connector`] opens a [`Connection`]: to a server, to the primary that Sentinel names, or as
//!   the application's bb8 pool does.
//! - A [`Pool`] has a fixed number of slots, each with one connection that many requests share. A
//!   slot replaces its connection when it ends, in a task that a [`SingleFlight`] runs, so no
//!   request opens a connection of its own.
//! - A request that gets no reply in time has all connections of its pool checked with a `PING`.
//!
//! redis-rs has a `ConnectionManager` that reconnects, too. It does not fit: a connection on which
//! replies only time out is never replaced, replies that belong to another request go unnoticed,
//! and it connects neither through Sentinel nor through a bb8 pool.

mod backoff;
#[expect(clippy::module_inception, reason = "the type that the others are about")]
mod connection;
mod connector;
mod dns;
mod first_ok;
mod health;
mod in_flight;
mod liveness;
mod pool;
mod sentinel;
mod server;
mod single_flight;
mod slot;
mod tls;

use self::{
    backoff::Backoff, connection::Connection, first_ok::first_ok, in_flight::InFlight,
    liveness::Liveness, slot::Slot,
};
pub(super) use self::{
    connector::Connector, pool::Pool, sentinel::SentinelConnector, server::ServerConnector,
    single_flight::SingleFlight,
};
