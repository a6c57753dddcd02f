//! The kinds of connectors.

use std::{io, pin::pin, sync::Arc, time::Duration};

use redis::RedisError;
use tokio::{task::JoinSet, time};

use super::{Connection, SentinelConnector, ServerConnector, sentinel::first_ok};
use crate::{
    redis::{config::AppPool, error::Failure},
    runtime::TimeLimit,
};

/// A way to open a [`Connection`].
pub(in crate::redis) enum Connector {
    /// Connects to the server at an address.
    Server(Box<ServerConnector>),
    /// Connects to the primary that Sentinel names.
    Sentinel(Box<SentinelConnector>),
    /// Connects as the application's bb8 pool does.
    AppPool(AppPool),
}

impl Connector {
    /// Opens a connection within `timeout`.
    ///
    /// If the first attempt has not ended after half of that time, a second one starts beside it, and
    /// the first success is used. While the first attempt hung, the server may have recovered, or a
    /// replica may have become the primary.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be reached in time or refuses the connection.
    pub(super) async fn connect_within(
        self: Arc<Self>,
        timeout: Duration,
    ) -> Result<Connection, Failure> {
        let attempts = async {
            let mut attempts = JoinSet::new();
            attempts.spawn(Arc::clone(&self).connect());
            if let Ok(Some(Ok(result))) = time::timeout(timeout / 2, attempts.join_next()).await {
                return result;
            }
            attempts.spawn(self.connect());
            first_ok(attempts).await
        };
        let result = TimeLimit::after(timeout).wait(pin!(attempts)).await.unwrap_or_else(|_| {
            let message = "connecting took too long: the server or the name server does not answer";
            Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
        });
        result.map_err(Failure::Unreachable)
    }

    async fn connect(self: Arc<Self>) -> Result<Connection, RedisError> {
        match &*self {
            Self::Server(server) => server.connect().await,
            Self::Sentinel(sentinel) => sentinel.connect().await,
            Self::AppPool(pool) => Ok(Connection::new(pool.connect().await?, Arc::default())),
        }
    }

    /// Returns the address of the server for errors, if it is known. It contains no user and no password.
    pub(in crate::redis) fn address(&self) -> Option<String> {
        match self {
            Self::Server(server) => Some(server.address()),
            Self::Sentinel(sentinel) => Some(sentinel.address()),
            Self::AppPool(_) => None,
        }
    }

    /// Returns the name of the server in logs.
    pub(in crate::redis) fn place(&self) -> &'static str {
        match self {
            Self::Sentinel(_) => "primary",
            _ => "server",
        }
    }

    /// Returns whether its connections notice at once that the server has closed them. Connections
    /// that bb8 opens notice it only at the next request.
    pub(super) fn notices_disconnection(&self) -> bool {
        !matches!(self, Self::AppPool(_))
    }
}
