//! The seam of the feature `bb8`: the pool of an application.

#[cfg(feature = "bb8")]
mod seam {
    use std::time::Duration;

    use bb8_redis::RedisConnectionManager;
    use redis::{RedisError, aio::MultiplexedConnection};

    /// The application's bb8 pool, as a way to connect.
    #[derive(Clone)]
    pub(in crate::redis) struct AppPool(pub(in crate::redis) bb8::Pool<RedisConnectionManager>);

    impl AppPool {
        /// Opens a connection of its own. The connections that the application checks out are not
        /// used: the application may start a transaction on one of them, select another database,
        /// or block it.
        pub(in super::super) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
            let mut redis = self.0.dedicated_connection().await?;
            // The pool of this crate has a response timeout that waits longer if the process itself
            // is late.
            redis.set_response_timeout(Duration::MAX);
            Ok(redis)
        }
    }
}

#[cfg(not(feature = "bb8"))]
mod seam {
    use redis::{RedisError, aio::MultiplexedConnection};

    /// A pool that does not exist, because this crate was built without bb8.
    #[derive(Clone)]
    pub(in crate::redis) enum AppPool {}

    impl AppPool {
        #[allow(clippy::unused_async, reason = "it has the signature of the other seam")]
        pub(in super::super) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
            match *self {}
        }
    }
}

pub(in crate::redis) use seam::AppPool;
