//! The pool of connections to one server.

use std::{
    fmt, io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, Value};

use super::{Connection, Connector, InFlight, PooledConnection};
use crate::{
    redis::{
        RedisConfig,
        error::{Failure, SentFlag},
    },
    runtime::{TimeLimit, is_own_thread},
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
    response_timeout: Duration,
}

impl Pool {
    /// Creates a pool that opens its connections when they are needed.
    pub(in crate::redis) fn new(connector: Connector, config: &RedisConfig) -> Self {
        let connector = Arc::new(connector);
        let pooled = |_| PooledConnection::new(&connector, config);
        let connections = (0..config.connections).map(pooled).collect();
        let (of_threads, response_timeout) = ([pooled(0)], config.response_timeout);
        Self { connector, connections, of_threads, next: AtomicUsize::new(0), response_timeout }
    }

    /// Returns the connector, which describes the server.
    pub(in crate::redis) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Opens all connections, so that a wrong address or password is reported at once.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them cannot be opened.
    pub(in crate::redis) async fn warm_up(&self) -> Result<(), Failure> {
        for pooled in &self.connections {
            pooled.connect().await?;
        }
        Ok(())
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
        sent_flag: &SentFlag,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let (pooled, connection) = self.next_connection().await?;
        let mut redis = connection.redis.clone();
        let in_flight = InFlight::start(self.of_caller(), pooled, &connection, sent_flag);
        let reply = self.in_time(redis.send_packed_command(command), sent_flag).await;
        in_flight.finish(reply, parse)
    }

    /// Sends a command to a cluster node behind `ASKING`, and parses its reply as
    /// [`send`](Self::send) does.
    pub(in crate::redis) async fn send_asking<T>(
        &self,
        command: &Cmd,
        sent_flag: &SentFlag,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let (pooled, connection) = self.next_connection().await?;
        let mut redis = connection.redis.clone();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING");
        pipeline.add_command(command.clone());
        let in_flight = InFlight::start(self.of_caller(), pooled, &connection, sent_flag);
        let replies = self.in_time(redis.send_packed_commands(&pipeline, 0, 2), sent_flag).await;
        let reply = replies.map(|replies| replies.into_iter().next_back().unwrap_or(Value::Nil));
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
        let limit = TimeLimit::after(self.response_timeout);
        if sent_flag.ends_by(limit.time()) {
            return reply.await;
        }
        let reply = limit.wait(pin!(reply)).await;
        reply.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Returns the connections of the runtime that the caller runs in.
    fn of_caller(&self) -> &[PooledConnection] {
        if is_own_thread() { &self.of_threads } else { &self.connections }
    }

    /// Returns the next open connection, and waits for a new one only if none is open.
    async fn next_connection(&self) -> Result<(&PooledConnection, Arc<Connection>), Failure> {
        if is_own_thread() {
            let [pooled] = &self.of_threads;
            let connection = match pooled.checked_connection().await {
                Some(connection) => connection,
                None => pooled.connect().await?,
            };
            return Ok((pooled, connection));
        }
        let count = self.connections.len();
        let next = self.next.fetch_add(1, Ordering::Relaxed) % count;
        for pooled in (next..next + count).map(|index| &self.connections[index % count]) {
            if let Some(connection) = pooled.checked_connection().await {
                return Ok((pooled, connection));
            }
            pooled.start_connecting();
        }
        let pooled = &self.connections[next];
        Ok((pooled, pooled.connect().await?))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}
