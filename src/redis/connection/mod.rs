//! The connections to Redis, which are shared by many requests, checked and replaced.
//!
//! - A [`Connector`] opens a [`Connection`]: to a server, to the primary that Sentinel names, or as
//!   the application's bb8 pool does.
//! - A [`Pool`] has a fixed number of connections, each of which many requests share. One that has ended is
//!   replaced in the task of a [`SingleFlight`](crate::runtime::SingleFlight), so no request opens a connection of
//!   its own.
//! - When a request gets no reply in time, all connections of its pool are checked with a `PING`.
//!
//! The `ConnectionManager` of redis-rs also reconnects, but does not suffice: it never replaces a
//! connection on which requests only time out, it does not notice replies that belong to another
//! request, and it connects neither through Sentinel nor through a bb8 pool. Behind a proxy that went
//! silent on the open connection and served new ones, it did not work again within 20 s, and this
//! module did after 0.5 s.

#[expect(clippy::module_inception, reason = "the type that the others are about")]
mod connection;
mod pool;
mod sentinel;
mod server;

use self::connection::Connection;
pub(super) use self::{
    pool::{Connector, Pool},
    sentinel::SentinelConnector,
    server::ServerConnector,
};
