//! The health check of a connection, which finds out whether it still delivers replies.
//!
//! A connection can end without notice: a cable is cut, a firewall forgets the connection, or the
//! server loses its power. Its requests then time out, but a single timeout may also be a slow
//! reply. So after a timeout the connection gets a `PING`. Redis replies in order: if the
//! connection works, the reply to the `PING` arrives after all earlier replies; if not, none
//! arrives.

use std::{pin::pin, sync::Arc, time::Duration};

use redis::{Cmd, Value, aio::MultiplexedConnection};
use tokio::time::sleep;

use super::Liveness;
use crate::{random, redis::error::Failure, runtime::TimeLimit};

/// Returns the time to wait for other replies before a `PING` is sent.
pub(super) fn quiet_period(response_timeout: Duration) -> Duration {
    response_timeout / 8
}

/// Returns the time within which the reply to a `PING` must arrive: half of the response timeout,
/// plus up to a quarter of it at random. So the instances do not all reconnect at once after a
/// pause of the server.
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
    let reply = pin!(ping.query_async::<Value>(&mut redis));
    let reply = TimeLimit::after(ping_timeout(response_timeout)).wait(reply).await;
    match reply.map(|reply| reply.map_err(Failure::of_request)) {
        Ok(Ok(Value::SimpleString(pong))) if pong == "PONG" => liveness.record_reply(),
        Ok(Ok(_)) => drop(liveness.desynchronize()),
        // An error, such as that of a user without the right to PING, is also a reply.
        Ok(Err(Failure::ServerError(_))) => liveness.record_reply(),
        _ => liveness.close(),
    }
    Ok(())
}
