//! One connection that many requests share, its state, and its health check.
//!
//! A connection can end without notice: a cable is cut, a firewall forgets the connection, or the
//! server loses its power. Its requests then time out, but a single timeout may also be a slow
//! reply. So after a timeout the connection gets a `PING`. Redis replies in order: if the
//! connection works, the reply to the `PING` arrives after all earlier replies; if not, none
//! arrives.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, sleep};

use crate::{
    random,
    redis::error::Failure,
    runtime::{SingleFlight, TimeLimit},
};

/// One connection that many requests share, and its state.
pub(in crate::redis) struct Connection {
    pub(in crate::redis) redis: MultiplexedConnection,
    pub(super) liveness: Arc<Liveness>,
    check: SingleFlight<Failure>,
}

impl Connection {
    pub(super) fn new(redis: MultiplexedConnection, liveness: Arc<Liveness>) -> Self {
        Self { redis, liveness, check: SingleFlight::new() }
    }

    /// Returns whether requests can be sent over this connection.
    pub(super) fn is_open(&self) -> bool {
        !self.liveness.is_closed.load(Ordering::Acquire)
    }

    /// Starts a [health check](check_health), which sends a `PING` unless other replies arrive.
    pub(super) fn start_check(&self, response_timeout: Duration) {
        // Replies to other requests may arrive meanwhile.
        let quiet_period = response_timeout / 8;
        self.check.start(|| self.health_check(quiet_period, response_timeout));
    }

    /// Waits for the result of a [health check](check_health) with a `PING`, and returns whether
    /// the connection is open.
    pub(super) async fn check(&self, response_timeout: Duration) -> bool {
        // The health check itself fails only if it did not run. The connection is used then.
        let _ = self.check.run(|| self.health_check(Duration::ZERO, response_timeout)).await;
        self.is_open()
    }

    fn health_check(
        &self,
        quiet_period: Duration,
        response_timeout: Duration,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        check_health(self.redis.clone(), Arc::clone(&self.liveness), quiet_period, response_timeout)
    }
}

/// The time without a reply from which on a connection is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The state of a connection, which its requests and its health check update.
pub(super) struct Liveness {
    created: Instant,
    /// The time of the last reply, in microseconds since `created`.
    last_reply: AtomicU64,
    is_closed: AtomicBool,
    is_desynchronized: AtomicBool,
}

impl Default for Liveness {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            last_reply: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_desynchronized: AtomicBool::new(false),
        }
    }
}

impl Liveness {
    /// Records that a reply has arrived.
    pub(super) fn record_reply(&self) {
        self.last_reply.store(self.now(), Ordering::Relaxed);
    }

    /// Returns the time of the last reply, in microseconds since the connection was created.
    pub(super) fn last_reply(&self) -> u64 {
        self.last_reply.load(Ordering::Relaxed)
    }

    /// Returns whether no reply has arrived for [`IDLE_AFTER`].
    pub(super) fn is_idle(&self) -> bool {
        self.now().saturating_sub(self.last_reply()) >= IDLE_AFTER.as_micros() as u64
    }

    /// Closes the connection for new requests.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Closes the connection because a reply belonged to another request. The replies in flight are
    /// discarded. Returns whether this is the first such reply.
    pub(super) fn desynchronize(&self) -> bool {
        let is_first = !self.is_desynchronized.swap(true, Ordering::AcqRel);
        self.close();
        is_first
    }

    /// Returns whether a reply belonged to another request.
    pub(super) fn is_desynchronized(&self) -> bool {
        self.is_desynchronized.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        self.created.elapsed().as_micros() as u64
    }
}

/// Returns the time within which the reply to a `PING` must arrive: half of the response timeout,
/// plus up to a quarter of it at random. So the instances do not all reconnect at once after a
/// pause of the server.
fn ping_timeout(response_timeout: Duration) -> Duration {
    response_timeout / 2 + random::part_of(response_timeout / 4)
}

/// Closes a connection on which no reply arrives, neither during `quiet_period` nor to a `PING`.
///
/// A reply to the `PING` that is not `PONG` belongs to another request: the connection is
/// desynchronized then. The check itself always succeeds; its result is in `liveness`.
async fn check_health(
    mut redis: MultiplexedConnection,
    liveness: Arc<Liveness>,
    quiet_period: Duration,
    response_timeout: Duration,
) -> Result<(), Failure> {
    let last_reply = liveness.last_reply();
    if !quiet_period.is_zero() {
        sleep(quiet_period).await;
        if liveness.last_reply() != last_reply {
            return Ok(());
        }
    }
    let mut ping = Cmd::new();
    ping.arg("PING");
    let reply = pin!(ping.query_async::<Value>(&mut redis));
    let reply = TimeLimit::after(ping_timeout(response_timeout)).wait(reply).await;
    match reply.map(|reply| reply.map_err(Failure::of_request)) {
        Ok(Ok(Value::SimpleString(pong))) if pong == "PONG" => liveness.record_reply(),
        Ok(Ok(_)) => drop(liveness.desynchronize()),
        // An error, such as for a user without the right to PING, is also a reply.
        Ok(Err(Failure::ServerError(_))) => liveness.record_reply(),
        _ => liveness.close(),
    }
    Ok(())
}
