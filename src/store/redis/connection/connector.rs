//! The kinds of connectors.

use std::{sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use redis::RedisError;

use super::{Connection, SentinelConnector, ServerConnector};

/// A way to open a [`Connection`].
pub(in crate::store::redis) enum Connector {
    /// Connects to the server at an address.
    Server(Box<ServerConnector>),
    /// Connects to the primary that Sentinel names.
    Sentinel(Box<SentinelConnector>),
    /// Connects as the application's bb8 pool does.
    Bb8 { pool: bb8::Pool<RedisConnectionManager> },
}

impl Connector {
    /// Opens a connection. The caller must set a timeout.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached or refuses the connection.
    pub(super) async fn connect(self: Arc<Self>) -> Result<Connection, RedisError> {
        match &*self {
            Self::Server(server) => server.connect().await,
            Self::Sentinel(sentinel) => sentinel.connect().await,
            // The connections that the application checks out are not used: the application may
            // start a transaction on one of them, select another database, or block it.
            Self::Bb8 { pool } => {
                let mut redis = pool.dedicated_connection().await?;
                // The pool of connections has a timeout of its own.
                redis.set_response_timeout(Duration::MAX);
                Ok(Connection::new(redis, Arc::default()))
            }
        }
    }

    /// Returns whether its connections notice at once that the server has closed them. Connections
    /// that bb8 opens notice it only at the next request.
    pub(super) fn notices_disconnection(&self) -> bool {
        !matches!(self, Self::Bb8 { .. })
    }
}
