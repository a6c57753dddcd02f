//! The seam of the feature `bb8`.

#[cfg(feature = "bb8")]
mod seam {
    use std::{sync::Arc, time::Duration};

    use bb8_redis::RedisConnectionManager;
    use redis::RedisError;

    use crate::redis::connection::Connection;

    /// Connects as the application's bb8 pool does.
    pub(in crate::redis) struct AppPoolConnector {
        pool: bb8::Pool<RedisConnectionManager>,
    }

    impl AppPoolConnector {
        pub(in crate::redis) fn new(pool: bb8::Pool<RedisConnectionManager>) -> Self {
            Self { pool }
        }

        /// Opens a connection of its own. The connections that the application checks out are not
        /// used: the application may start a transaction on one of them, select another database,
        /// or block it.
        pub(in super::super) async fn connect(&self) -> Result<Connection, RedisError> {
            let mut redis = self.pool.dedicated_connection().await?;
            // The pool of this crate has a response timeout that waits longer if the process itself
            // is late.
            redis.set_response_timeout(Duration::MAX);
            Ok(Connection::new(redis, Arc::default()))
        }
    }
}

#[cfg(not(feature = "bb8"))]
mod seam {
    use redis::RedisError;

    use crate::redis::connection::Connection;

    /// A connector that does not exist, because this crate was built without bb8.
    pub(in crate::redis) enum AppPoolConnector {}

    impl AppPoolConnector {
        #[allow(clippy::unused_async, reason = "it has the signature of the other seam")]
        pub(in super::super) async fn connect(&self) -> Result<Connection, RedisError> {
            match *self {}
        }
    }
}

pub(in crate::redis) use seam::AppPoolConnector;
