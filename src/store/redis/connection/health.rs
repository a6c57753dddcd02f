//! The check whether a connection still delivers replies.
//!
//! A connection can end without notice: a cable is cut, a firewall forgets the connection, the
//! server loses its power. A request then only times out, and a request that was given up learns
//! nothing from a late reply. So a connection with such a request gets a `PING`. Redis replies in
//! order, so either the reply to the `PING` arrives after all earlier ones, or no reply ever does.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value, aio::MultiplexedConnection};
use tokio::time::{sleep, timeout};

use super::Liveness;
use crate::{random, store::redis::error::Failure};

/// Returns the time to wait for other replies before a `PING` is sent.
pub(super) fn quiet_period(response_timeout: Duration) -> Duration {
    response_timeout / 8
}

/// Returns the time in which the reply to a `PING` must arrive: half of the response timeout, and up
/// to a quarter more at random. Instances that felt the same pause of a server then do not all
/// reconnect at once.
fn ping_timeout(response_timeout: Duration) -> Duration {
    let part = (random::number() % 1_000) as f64 / 4_000.0;
    response_timeout / 2 + response_timeout.mul_f64(part)
}

/// Closes a connection on which no reply arrives, neither during `quiet_period` nor to a `PING`.
///
/// A reply to the `PING` that is not `PONG` belongs to another request: the connection is
/// desynchronized then. The check itself always succeeds; its result is in `liveness`.
pub(super) async fn check(
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
    let reply = timeout(ping_timeout(response_timeout), ping.query_async::<Value>(&mut redis));
    match reply.await.map(|reply| reply.map_err(Failure::of_request)) {
        Ok(Ok(Value::SimpleString(pong))) if pong == "PONG" => liveness.record_reply(),
        Ok(Ok(_)) => drop(liveness.desynchronize()),
        // The server also answers a user that has no right to send a PING.
        Ok(Err(Failure::ServerError(_))) => liveness.record_reply(),
        _ => liveness.close(),
    }
    Ok(())
}
