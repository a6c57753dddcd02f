//! The slot of one connection in a pool.

use std::{io, pin::pin, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use tokio::{task::JoinSet, time::timeout};

use super::{Connection, Connector, SingleFlight, first_ok};
use crate::{
    redis::{RedisConfig, error::Failure},
    runtime::TimeLimit,
};

/// The slot of one connection in a [`Pool`](super::Pool). It replaces a connection that has ended.
pub(super) struct Slot {
    connector: Arc<Connector>,
    current: Arc<ArcSwapOption<Connection>>,
    connecting: SingleFlight,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Slot {
    /// Creates a slot without a connection.
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
            let connection = connect_twice(connector, connect_timeout).await?;
            current.store(Some(Arc::new(connection)));
            Ok(())
        }
    }
}

/// Opens a connection within `connect_timeout`.
///
/// If the first attempt has not ended after half of that time, a second one starts beside it, and
/// the first success is used. While the first attempt hung, the server may have recovered, or a
/// replica may have become the primary.
async fn connect_twice(
    connector: Arc<Connector>,
    connect_timeout: Duration,
) -> Result<Connection, Failure> {
    let attempts = async {
        let mut attempts = JoinSet::new();
        attempts.spawn(Arc::clone(&connector).connect());
        if let Ok(Some(Ok(result))) = timeout(connect_timeout / 2, attempts.join_next()).await {
            return result;
        }
        attempts.spawn(connector.connect());
        first_ok(attempts).await
    };
    let result =
        TimeLimit::after(connect_timeout).wait(pin!(attempts)).await.unwrap_or_else(|_| {
            let message = "connecting took too long: the server or the name server does not answer";
            Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
        });
    result.map_err(Failure::Unreachable)
}
