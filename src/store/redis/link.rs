//! A few connections to one server, each shared by many requests, and replaced when it ends.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use redis::{Cmd, ErrorKind, RedisError, Value, aio::ConnectionLike};
use tokio::{sync::watch, task::AbortHandle, time::Instant};

use super::{
    failure::Failure,
    origin::{Live, Origin},
};

pub(super) struct Link {
    origin: Arc<Origin>,
    slots: Box<[Arc<Slot>]>,
    next: AtomicUsize,
    response_timeout: Duration,
    started: Instant,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    live: ArcSwapOption<Live>,
    /// Attempts to open a connection, the latest last.
    opening: Mutex<Vec<Opening>>,
    /// When the connection last answered, in milliseconds since the link was made.
    answered: AtomicU64,
}

/// A connection on its way, for which all wait who need it. It is opened by a task of its own: that
/// takes longer, at times, than anybody who waits has patience.
struct Opening {
    begun: Instant,
    result: Opened,
    task: AbortHandle,
}

/// What comes of an attempt, when something has.
type Opened = watch::Receiver<Option<Result<Arc<Live>, RedisError>>>;

impl Opening {
    fn is_over(&self) -> bool {
        self.result.borrow().is_some() || self.task.is_finished()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An attempt that takes longer gets another one beside it, once: it may have begun when nobody was
/// there yet to answer it.
const AFRESH: Duration = Duration::from_millis(500);
const MOST: usize = 2;

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
        let slots = (0..connections).map(|_| Arc::default()).collect();
        let (next, started) = (AtomicUsize::new(0), Instant::now());
        Self { origin: Arc::new(origin), slots, next, response_timeout, started }
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

    /// The next place, but no place without a connection while another has one: that is opened
    /// meanwhile.
    fn slot(&self) -> &Arc<Slot> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let place = |after: usize| &self.slots[first.wrapping_add(after) % self.slots.len()];
        let next = place(0);
        if usable(next).is_some() {
            return next;
        }
        match (1..self.slots.len()).map(place).find(|slot| usable(slot).is_some()) {
            Some(other) => {
                let _ = self.opening(next);
                other
            }
            None => next,
        }
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
    async fn live(&self, slot: &Arc<Slot>) -> Result<Arc<Live>, Failure> {
        if let Some(live) = usable(slot) {
            if self.origin.ends_unnoticed() {
                self.test_if_idle(slot, &live).await;
            }
            if !live.ended.load(Ordering::Acquire) {
                return Ok(live);
            }
        }
        let mut result = match self.opening(slot) {
            Ok(live) => return Ok(live),
            Err(opening) => opening,
        };
        let opened = match result.wait_for(Option::is_some).await {
            Ok(opened) => opened.clone(),
            Err(_) => None,
        };
        let gone = || Err((ErrorKind::Io, "what opened the connection has ended").into());
        opened.unwrap_or_else(gone).map_err(Failure::Unreachable)
    }

    /// The connection in this place, or the attempt to open it, begun now if need be.
    fn opening(&self, slot: &Arc<Slot>) -> Result<Arc<Live>, Opened> {
        let mut opening = slot.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = usable(slot) {
            return Ok(live);
        }
        opening.retain(|attempt| !attempt.is_over());
        let enough = opening.len() >= MOST;
        match opening.last() {
            Some(latest) if enough || latest.begun.elapsed() < AFRESH => Err(latest.result.clone()),
            _ => {
                let latest = self.open(slot);
                let result = latest.result.clone();
                opening.push(latest);
                Err(result)
            }
        }
    }

    fn open(&self, slot: &Arc<Slot>) -> Opening {
        // A weak handle: when the link goes, so does the task.
        let (origin, slot) = (Arc::clone(&self.origin), Arc::downgrade(slot));
        let (sender, result) = watch::channel(None);
        let started = self.started;
        let task = tokio::spawn(async move {
            let opened = origin.open().await.map(Arc::new);
            if let (Ok(live), Some(slot)) = (&opened, slot.upgrade())
                && usable(&slot).is_none()
            {
                slot.answered.store(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                slot.live.store(Some(Arc::clone(live)));
            }
            // Perhaps nobody waits any more.
            let _ = sender.send(Some(opened));
        });
        Opening { begun: Instant::now(), result, task: task.abort_handle() }
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
