//! A few connections to one server, each shared by many requests, and replaced when it ends.

use std::{
    fmt,
    sync::{
        Arc, Mutex as Lock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use redis::{Cmd, RedisError, Value, aio::ConnectionLike};
use tokio::{sync::Mutex, time::Instant};

use super::{
    failure::Failure,
    origin::{Live, Origin},
};

pub(super) struct Link {
    origin: Origin,
    slots: Box<[Slot]>,
    next: AtomicUsize,
    response_timeout: Duration,
    started: Instant,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    live: ArcSwapOption<Live>,
    /// Held by the one who opens a connection; the others wait for what comes of it.
    opening: Mutex<()>,
    attempts: AtomicU64,
    failure: Lock<Option<RedisError>>,
    /// When the connection last answered, in milliseconds since the link was made.
    answered: AtomicU64,
}

/// A connection whose end shows only when it is used is tested after so many idle milliseconds.
const IDLE: u64 = 1_000;

/// A question on a connection. If it is dropped because nobody waits for the answer any more, and
/// the connection has been silent for long, the connection is replaced.
struct Asking<'l> {
    live: &'l Arc<Live>,
}

impl<'l> Asking<'l> {
    fn begin(live: &'l Arc<Live>) -> Self {
        live.silence.begin();
        Self { live }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.live.silence.is_death() {
            self.live.ended.store(true, Ordering::Release);
        }
    }
}

impl Link {
    pub(super) fn new(origin: Origin, connections: usize, response_timeout: Duration) -> Self {
        let slots = (0..connections).map(|_| Slot::default()).collect();
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        Self { origin, slots, next, response_timeout, started }
    }

    /// Connects, so that a wrong address or password shows now.
    pub(super) async fn warm_up(&self) -> Result<(), Failure> {
        for slot in &self.slots {
            self.live(slot).await?;
        }
        Ok(())
    }

    pub(super) async fn send(&self, command: Cmd) -> Result<Value, Failure> {
        let slot = self.slot();
        let live = self.live(slot).await?;
        let mut connection = live.connection.clone();
        let asking = Asking::begin(&live);
        let answer = self.in_time(command.query_async(&mut connection)).await;
        self.judge(slot, asking, answer.map_err(Failure::of_request))
    }

    /// Sends a command to a cluster node that takes it only when asked to.
    pub(super) async fn send_asking(&self, command: Cmd) -> Result<Value, Failure> {
        let slot = self.slot();
        let live = self.live(slot).await?;
        let mut connection = live.connection.clone();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING");
        pipeline.add_command(command);
        let answer = async {
            let values = connection.req_packed_commands(&pipeline, 0, 2).await?;
            values.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
        };
        let asking = Asking::begin(&live);
        let answer = self.in_time(answer).await;
        self.judge(slot, asking, answer.map_err(Failure::of_request))
    }

    fn slot(&self) -> &Slot {
        &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()]
    }

    /// A pool's connections have the deadline that the application gave them, if any.
    async fn in_time<F>(&self, answer: F) -> Result<Value, RedisError>
    where
        F: Future<Output = Result<Value, RedisError>>,
    {
        if !self.origin.ends_unnoticed() {
            return answer.await;
        }
        match tokio::time::timeout(self.response_timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    fn judge(
        &self,
        slot: &Slot,
        asking: Asking<'_>,
        answer: Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        let live = asking.live;
        match &answer {
            Ok(_) | Err(Failure::Refused(_)) => live.silence.end(),
            Err(_) => {}
        }
        match &answer {
            Ok(_) if self.origin.ends_unnoticed() => {
                slot.answered.store(self.millis(), Ordering::Relaxed);
            }
            Err(failure) if failure.ends_connection() => {
                live.ended.store(true, Ordering::Release);
            }
            _ => {}
        }
        answer
    }

    /// The connection in this place, a new one if there is none or it has ended.
    async fn live(&self, slot: &Slot) -> Result<Arc<Live>, Failure> {
        if let Some(live) = usable(slot) {
            if self.origin.ends_unnoticed() {
                self.test_if_idle(slot, &live).await;
            }
            if !live.ended.load(Ordering::Acquire) {
                return Ok(live);
            }
        }
        let before = slot.attempts.load(Ordering::Acquire);
        let _opening = slot.opening.lock().await;
        if let Some(live) = usable(slot) {
            return Ok(live);
        }
        // Whoever waited while another tried has the other's result.
        if slot.attempts.load(Ordering::Acquire) != before
            && let Some(error) = slot.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
        {
            return Err(Failure::Unreachable(error));
        }
        let opened = self.origin.open().await;
        slot.attempts.fetch_add(1, Ordering::AcqRel);
        let mut failure = slot.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match opened {
            Ok(live) => {
                let live = Arc::new(live);
                *failure = None;
                slot.answered.store(self.millis(), Ordering::Relaxed);
                slot.live.store(Some(Arc::clone(&live)));
                Ok(live)
            }
            Err(error) => {
                *failure = Some(error.clone());
                Err(Failure::Unreachable(error))
            }
        }
    }

    async fn test_if_idle(&self, slot: &Slot, live: &Arc<Live>) {
        let now = self.millis();
        let answered = slot.answered.load(Ordering::Relaxed);
        if now.saturating_sub(answered) < IDLE {
            return;
        }
        // One test for all who come now.
        let take =
            slot.answered.compare_exchange(answered, now, Ordering::Relaxed, Ordering::Relaxed);
        if take.is_ok() {
            let mut connection = live.connection.clone();
            let mut ping = Cmd::new();
            ping.arg("PING");
            if self.in_time(ping.query_async(&mut connection)).await.is_err() {
                live.ended.store(true, Ordering::Release);
            }
        }
    }

    fn millis(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

fn usable(slot: &Slot) -> Option<Arc<Live>> {
    slot.live.load_full().filter(|live| !live.ended.load(Ordering::Acquire))
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("connections", &self.slots.len()).finish_non_exhaustive()
    }
}
