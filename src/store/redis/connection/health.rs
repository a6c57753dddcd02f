//! A connection that says nothing any more.
//!
//! The other end of a connection can go without a word: a cable, a firewall, a machine that lost its
//! power. Whoever asked gives up after its deadline, and a late answer tells nobody anything; so who
//! gives up leaves a PING behind, which is answered after all that was asked before it, or never.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Value, aio::MultiplexedConnection};
use tokio::time::{Instant, sleep, timeout};

use crate::{random, store::redis::error::Failure};

/// Whether a connection still says something.
#[derive(Debug)]
pub(in crate::store::redis) struct Pulse {
    begin: Instant,
    /// When something came back last, in microseconds since `begin`.
    heard: AtomicU64,
    ended: AtomicBool,
    /// An answer came that cannot be one to what was asked: no other can be believed.
    astray: AtomicBool,
}

/// A connection whose end shows only when it is used is tested after so much idle time.
const IDLE: Duration = Duration::from_secs(1);

impl Default for Pulse {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            heard: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            astray: AtomicBool::new(false),
        }
    }
}

impl Pulse {
    /// Something has come back.
    pub(in crate::store::redis) fn beat(&self) {
        self.heard.store(self.now(), Ordering::Relaxed);
    }

    pub(in crate::store::redis) fn is_idle(&self) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        self.now().saturating_sub(heard) >= IDLE.as_micros() as u64
    }

    pub(in crate::store::redis) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(in crate::store::redis) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends it, and what is still on its way over it is not believed. Whether this is new.
    pub(in crate::store::redis) fn go_astray(&self) -> bool {
        let new = !self.astray.swap(true, Ordering::AcqRel);
        self.end();
        new
    }

    pub(in crate::store::redis) fn is_astray(&self) -> bool {
        self.astray.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }
}

/// How long an answer may take decides how long a connection may be silent.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct Patience {
    response_timeout: Duration,
}

impl Patience {
    pub(in crate::store::redis) fn new(response_timeout: Duration) -> Self {
        Self { response_timeout }
    }

    /// A connection on which other answers come soon is not asked at all.
    pub(in crate::store::redis) fn grace(self) -> Duration {
        self.response_timeout / 8
    }

    /// Half of the timeout, and up to a quarter more: after a pause that all instances felt, not
    /// all of them connect at once.
    fn for_an_answer(self) -> Duration {
        let part = (random::number() % 1_000) as f64 / 4_000.0;
        self.response_timeout / 2 + self.response_timeout.mul_f64(part)
    }
}

/// Ends a connection on which nothing comes back, neither within `grace` nor to a PING, or to the
/// PING something else.
pub(in crate::store::redis) async fn test(
    mut connection: MultiplexedConnection,
    pulse: Arc<Pulse>,
    grace: Duration,
    patience: Patience,
) -> Result<(), Failure> {
    let before = pulse.heard.load(Ordering::Relaxed);
    if !grace.is_zero() {
        sleep(grace).await;
        if pulse.heard.load(Ordering::Relaxed) != before {
            return Ok(());
        }
    }
    let mut ping = Cmd::new();
    ping.arg("PING");
    let answer = timeout(patience.for_an_answer(), ping.query_async::<Value>(&mut connection));
    match answer.await.map(|answer| answer.map_err(Failure::of_request)) {
        Ok(Ok(Value::SimpleString(pong))) if pong == "PONG" => pulse.beat(),
        Ok(Ok(_)) => drop(pulse.go_astray()),
        // A user without the right to PING is answered, too.
        Ok(Err(Failure::ServerError(_))) => pulse.beat(),
        _ => pulse.end(),
    }
    Ok(())
}
