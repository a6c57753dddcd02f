//! One connection of a pool, and the requests that wait for a reply on it.

use std::{io, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use redis::{RedisError, Value};

use super::{Connection, Connector};
use crate::{
    redis::{
        RedisConfig,
        error::{Failure, SentFlag},
    },
    runtime::SingleFlight,
};

/// One connection of a [`Pool`](super::Pool). It is replaced when it has ended.
pub(super) struct PooledConnection {
    connector: Arc<Connector>,
    current: Arc<ArcSwapOption<Connection>>,
    connecting: SingleFlight<Failure>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl PooledConnection {
    /// Creates it without a connection, which the first request opens.
    pub(super) fn new(connector: &Arc<Connector>, config: &RedisConfig) -> Self {
        Self {
            connector: Arc::clone(connector),
            current: Arc::default(),
            connecting: SingleFlight::new(),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
        }
    }

    /// Returns the connection, if it is open.
    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        self.current.load_full().filter(|connection| connection.is_open())
    }

    /// Returns the connection, if it is open. If its end may have gone unnoticed, it is first
    /// tested with a `PING`.
    pub(super) async fn checked_connection(&self) -> Option<Arc<Connection>> {
        let connection = self.connection()?;
        let needs_check = !self.connector.notices_disconnection() && connection.liveness.is_idle();
        let is_open = !needs_check || connection.check(self.response_timeout).await;
        is_open.then_some(connection)
    }

    /// Returns the connection, and opens one if none is open.
    ///
    /// # Errors
    ///
    /// Returns an error if connecting fails or takes longer than the connect timeout, or has failed recently.
    pub(super) async fn connect(&self) -> Result<Arc<Connection>, Failure> {
        self.connecting.run(|| self.replace_connection()).await?;
        self.connection().ok_or_else(|| {
            let message = "the new connection has ended at once";
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, message);
            Failure::Unreachable(error.into())
        })
    }

    /// Starts to open a connection without waiting for it.
    pub(super) fn start_connecting(&self) {
        self.connecting.start(|| self.replace_connection());
    }

    /// Delays the next connection, because the last one was useless.
    pub(super) fn back_off(&self, failure: Failure) {
        self.connecting.fail(failure);
    }

    /// Starts a health check of the connection.
    pub(super) fn start_check(&self) {
        if let Some(connection) = self.connection() {
            connection.start_check(self.response_timeout);
        }
    }

    /// Returns whether the connection has ended, or could not be opened.
    pub(super) fn is_lost(&self) -> bool {
        match &*self.current.load() {
            Some(connection) => !connection.is_open(),
            None => self.connecting.has_failed(),
        }
    }

    fn replace_connection(&self) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let (connector, current) = (Arc::clone(&self.connector), Arc::clone(&self.current));
        let connect_timeout = self.connect_timeout;
        async move {
            // The operation before this one may have opened a connection meanwhile.
            if current.load().as_ref().is_some_and(|connection| connection.is_open()) {
                return Ok(());
            }
            let connection = connector.connect_within(connect_timeout).await?;
            current.store(Some(Arc::new(connection)));
            Ok(())
        }
    }
}

/// A request that waits for its reply. Its result updates the state of the connection.
///
/// If it is dropped without a reply, because the caller has stopped waiting or the response timeout
/// has passed, all connections of the pool are checked, because they lead to the same server.
pub(super) struct InFlight<'p> {
    /// All connections of the pool.
    pool: &'p [PooledConnection],
    pooled: &'p PooledConnection,
    connection: &'p Connection,
    is_answered: bool,
}

impl<'p> InFlight<'p> {
    /// Starts a request on the connection of `pooled`, which is one of a pool.
    pub(super) fn start(
        pool: &'p [PooledConnection],
        pooled: &'p PooledConnection,
        connection: &'p Connection,
        sent_flag: &SentFlag,
    ) -> Self {
        sent_flag.mark_sent();
        Self { pool, pooled, connection, is_answered: false }
    }

    /// Parses the reply, and updates the state of the connection.
    ///
    /// `parse` returns `None` for a value that cannot be the reply to this request.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no reply, if it is an error, or if it may belong to another request.
    pub(super) fn finish<T>(
        mut self,
        reply: Result<Value, RedisError>,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let liveness = &self.connection.liveness;
        let reply = reply.and_then(Value::extract_error).map_err(Failure::of_request);
        let result = match reply.map(parse) {
            Ok(None) => Err(Failure::NotOurs),
            // Another request has received a wrong reply meanwhile, so this reply may be wrong,
            // too.
            Ok(Some(_)) | Err(Failure::ServerError(_)) if liveness.is_desynchronized() => {
                Err(Failure::NotOurs)
            }
            Ok(Some(reply)) => Ok(reply),
            Err(failure) => Err(failure),
        };
        match &result {
            Ok(_) => liveness.record_reply(),
            Err(Failure::NotOurs) => {
                if liveness.desynchronize() {
                    // A server that always sends wrong replies must not get a new connection for
                    // each request.
                    self.pooled.back_off(Failure::Unreachable(desynchronized()));
                }
            }
            Err(failure) if failure.ends_connection() => {
                liveness.close();
                if let Failure::ServerError(_) = failure {
                    // The server will refuse requests on a new connection, too.
                    self.pooled.back_off(failure.clone());
                }
            }
            Err(Failure::ServerError(_)) => liveness.record_reply(),
            Err(_) => return result,
        }
        self.is_answered = true;
        result
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.pool.iter().for_each(PooledConnection::start_check);
        }
    }
}

fn desynchronized() -> RedisError {
    let message = "the last connection replied to a request that was not sent";
    io::Error::new(io::ErrorKind::InvalidData, message).into()
}
