//! The pool of connections to one server, and the connectors that open them.

use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use redis::{Cmd, RedisError, Value};
use tokio::{task::JoinSet, time};

use super::{Connection, SentinelConnector, ServerConnector, sentinel::first_ok};
use crate::{
    redis::{
        RedisConfig,
        config::AppPool,
        error::Failure,
        script::{ScriptBy, ScriptCall, SentFlag},
        wire::{self, CallReply},
    },
    runtime::{RunningFlag, SingleFlight, TimeLimit, is_own_thread},
};

/// A fixed number of connections to one server, each shared by many requests.
///
/// Requests use the connections in turn. A connection that has ended is replaced in the background,
/// and requests use the other connections meanwhile.
///
/// The task that drives a connection runs in the runtime that has opened it. So the [threads](is_own_thread) that
/// renew units in flight have a connection of their own, and use no other.
pub(in crate::redis) struct Pool {
    connector: Arc<Connector>,
    connections: Box<[PooledConnection]>,
    of_threads: [PooledConnection; 1],
    next: AtomicUsize,
    /// Set while a call sends the text of the script.
    loading: RunningFlag,
    response_timeout: Duration,
}

impl Pool {
    /// Creates a pool that opens its connections when they are needed.
    pub(in crate::redis) fn new(connector: Connector, config: &RedisConfig) -> Self {
        let connector = Arc::new(connector);
        let connections = 0..config.connections;
        Self {
            connections: connections.map(|_| PooledConnection::new(&connector, config)).collect(),
            of_threads: [PooledConnection::new(&connector, config)],
            next: AtomicUsize::new(0),
            loading: RunningFlag::default(),
            response_timeout: config.response_timeout,
            connector,
        }
    }

    /// Returns the connector, which describes the server.
    pub(in crate::redis) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Runs a call of the script. A node of a cluster to which an `ASK` redirects takes it only behind `ASKING`.
    ///
    /// If several calls find the script missing, the first one sends its text. The others send the
    /// digest once more, which arrives after that text, and send the text only if the script is
    /// still missing. So no call waits for another one.
    ///
    /// # Errors
    ///
    /// Returns an error if the call fails for another reason than a missing script.
    pub(in crate::redis) async fn run(
        &self,
        call: &ScriptCall<'_>,
        is_asking: bool,
    ) -> Result<CallReply, Failure> {
        let mut loading = None;
        for _ in 0..2 {
            match self.run_by(ScriptBy::Digest, call, is_asking).await {
                Err(failure) if failure.is_missing_script() => call.sent_flag.mark_unsent(),
                result => return result,
            }
            loading = self.loading.set();
            if loading.is_some() {
                break;
            }
        }
        let result = self.run_by(ScriptBy::Text, call, is_asking).await;
        drop(loading);
        result
    }

    async fn run_by(
        &self,
        by: ScriptBy,
        call: &ScriptCall<'_>,
        is_asking: bool,
    ) -> Result<CallReply, Failure> {
        self.send(&call.encode(by), is_asking, call.sent_flag, |value| {
            wire::parse(call.operation, call.checks, &value)
        })
        .await
    }

    /// Sends a command over one of the connections and parses its reply.
    ///
    /// `parse` returns `None` for a value that cannot be the reply to this command. The connection
    /// is then replaced: if there was one reply too many, each later reply belongs to another
    /// request.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection can be opened, if there is no reply in time, or if the reply is an
    /// error or not valid.
    pub(in crate::redis) async fn send<T>(
        &self,
        command: &Cmd,
        is_asking: bool,
        sent_flag: &SentFlag,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let (pooled, connection) = self.next_connection().await?;
        let mut redis = connection.redis.clone();
        sent_flag.mark_sent();
        let in_flight = InFlight {
            pool: self.of_caller(),
            pooled,
            connection: &connection,
            is_answered: false,
        };
        let reply = async {
            if !is_asking {
                return redis.send_packed_command(command).await;
            }
            let mut pipeline = redis::pipe();
            pipeline.cmd("ASKING").add_command(command.clone());
            let replies = redis.send_packed_commands(&pipeline, 1, 1).await?;
            Ok(replies.into_iter().next().unwrap_or(Value::Nil))
        };
        let reply = self.in_time(reply, sent_flag).await;
        in_flight.finish(reply, parse)
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    ///
    /// Returns an error if none can be opened.
    pub(in crate::redis) async fn ready(&self) -> Result<(), Failure> {
        if self.of_caller().iter().any(|pooled| pooled.connection().is_some()) {
            return Ok(());
        }
        self.next_connection().await.map(drop)
    }

    /// Returns whether all connections have ended and none has been replaced, as when the server is
    /// gone.
    pub(in crate::redis) fn is_lost(&self) -> bool {
        self.of_caller().iter().all(PooledConnection::is_lost)
    }

    /// Waits for a reply until the response timeout. A caller with an earlier deadline has a timer of its
    /// own, so this one is not set.
    async fn in_time<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
        sent_flag: &SentFlag,
    ) -> Result<T, RedisError> {
        // It is pinned once, so that the future of a call has room for one reply.
        let mut reply = pin!(reply);
        let limit = TimeLimit::after(self.response_timeout);
        if sent_flag.ends_by(limit) {
            return reply.await;
        }
        let reply = limit.wait(reply.as_mut()).await;
        reply.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Returns the connections of the runtime that the caller runs in.
    fn of_caller(&self) -> &[PooledConnection] {
        if is_own_thread() { &self.of_threads } else { &self.connections }
    }

    /// Returns the next open connection, and waits for a new one only if none is open.
    async fn next_connection(&self) -> Result<(&PooledConnection, Arc<Connection>), Failure> {
        let connections = self.of_caller();
        let count = connections.len();
        let next = self.next.fetch_add(1, Ordering::Relaxed) % count;
        for pooled in (next..next + count).map(|index| &connections[index % count]) {
            if let Some(connection) = pooled.checked_connection().await {
                return Ok((pooled, connection));
            }
            pooled.start_connecting();
        }
        let pooled = &connections[next];
        Ok((pooled, pooled.connect().await?))
    }
}

/// One connection of a [`Pool`]. It is replaced when it has ended.
struct PooledConnection {
    connector: Arc<Connector>,
    current: Arc<ArcSwapOption<Connection>>,
    connecting: SingleFlight<Failure>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl PooledConnection {
    /// Creates it without a connection, which the first request opens.
    fn new(connector: &Arc<Connector>, config: &RedisConfig) -> Self {
        Self {
            connector: Arc::clone(connector),
            current: Arc::default(),
            connecting: SingleFlight::new(),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
        }
    }

    /// Returns the connection, if it is open.
    fn connection(&self) -> Option<Arc<Connection>> {
        self.current.load_full().filter(|connection| connection.is_open())
    }

    /// Returns the connection, if it is open. If its end may have gone unnoticed, it is first
    /// tested with a `PING`.
    async fn checked_connection(&self) -> Option<Arc<Connection>> {
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
    async fn connect(&self) -> Result<Arc<Connection>, Failure> {
        self.connecting.run(|| self.replace_connection()).await?;
        self.connection().ok_or_else(|| {
            let message = "the new connection has ended at once";
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, message);
            Failure::Unreachable(error.into())
        })
    }

    /// Starts to open a connection without waiting for it.
    fn start_connecting(&self) {
        self.connecting.start(|| self.replace_connection());
    }

    /// Delays the next connection, because the last one was useless.
    fn back_off(&self, failure: Failure) {
        self.connecting.fail(failure);
    }

    /// Starts a health check of the connection.
    fn start_check(&self) {
        if let Some(connection) = self.connection() {
            connection.start_check(self.response_timeout);
        }
    }

    /// Returns whether the connection has ended, or could not be opened.
    fn is_lost(&self) -> bool {
        match &*self.current.load() {
            Some(connection) => !connection.is_open(),
            None => self.connecting.failure().is_some(),
        }
    }

    fn replace_connection(&self) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        let connector = Arc::clone(&self.connector);
        let current = Arc::clone(&self.current);
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
struct InFlight<'p> {
    /// All connections of the pool.
    pool: &'p [PooledConnection],
    pooled: &'p PooledConnection,
    connection: &'p Connection,
    is_answered: bool,
}

impl InFlight<'_> {
    /// Parses the reply, and updates the state of the connection.
    ///
    /// `parse` returns `None` for a value that cannot be the reply to this request.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no reply, if it is an error, or if it may belong to another request.
    fn finish<T>(
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
