//! A store behind a breaker.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::breaker::{Breaker, BreakerConfig, End, Pass, State, Trip};
use crate::{
    clock::{Clock, Timestamp},
    decision::StoreReply,
    error::{Error, ErrorKind},
    random,
    store::{Answer, Request, Store},
    telemetry,
};

/// A store that is asked while its breaker lets calls through.
#[derive(Debug)]
pub(super) struct Guarded {
    inner: Box<dyn Store>,
    gate: Arc<Gate>,
}

/// The breaker, as calls on many threads share it.
#[derive(Debug)]
pub(super) struct Gate {
    breaker: Mutex<Breaker>,
    /// What can be known of the breaker without locking it: [`CLOSED`], [`ASK`], or until when it
    /// lets nothing through, in nanoseconds since the beginning.
    until: AtomicU64,
    /// When this was last found to be shut, in microseconds of the clock of who asked.
    looked: AtomicU64,
    slow: Duration,
    begin: Instant,
}

/// Everything goes through.
const CLOSED: u64 = 0;
/// The breaker has to be asked.
const ASK: u64 = 1;
/// For how many microseconds it is not looked up again whether the breaker is still open.
const A_MOMENT: u64 = 20;

impl Guarded {
    pub(super) fn new(inner: Box<dyn Store>, config: BreakerConfig) -> Self {
        let (breaker, until) = (Mutex::new(Breaker::new(config)), AtomicU64::new(CLOSED));
        let (looked, begin) = (AtomicU64::new(0), Instant::now());
        let gate = Gate { breaker, until, looked, slow: config.slow, begin };
        telemetry::breaker_made();
        Self { inner, gate: Arc::new(gate) }
    }

    /// For who wants to know whether it is worth asking.
    pub(super) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }
}

impl Gate {
    /// The time by this clock, if nothing goes through now.
    #[inline]
    pub(super) fn shut(&self, clock: &dyn Clock) -> Option<Timestamp> {
        // What is read may be old by a moment: then one call more or less is asked for.
        let until = self.until.load(Ordering::Relaxed);
        if until <= ASK {
            return None;
        }
        let time = clock.now();
        // A clock that moves tells that it was a moment ago; to ask the runtime's costs more.
        let since = time.as_micros().wrapping_sub(self.looked.load(Ordering::Relaxed));
        if (1..A_MOMENT).contains(&since) || self.is_before(until) {
            if since >= A_MOMENT {
                self.looked.store(time.as_micros(), Ordering::Relaxed);
            }
            return Some(time);
        }
        None
    }

    #[inline(never)]
    fn is_before(&self, until: u64) -> bool {
        self.nanos(Instant::now()) < until
    }

    fn ask(&self, now: Instant, urgent: bool) -> Pass {
        match self.until.load(Ordering::Relaxed) {
            CLOSED => Pass::Through,
            until if until > ASK && self.nanos(now) < until => Pass::No,
            _ => self.with(now, |breaker, now| breaker.ask(now, urgent, random::number)),
        }
    }

    fn hear(&self, now: Instant, pass: Pass, start: Instant, end: End) {
        let trip = Trip { pass, start: start.saturating_duration_since(self.begin) };
        self.with(now, |breaker, now| breaker.hear(now, trip, end, random::number));
    }

    /// Does something to the breaker, and reports a change of its state, once.
    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut Breaker, Duration) -> T) -> T {
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let before = breaker.state();
        let result = act(&mut breaker, now.saturating_duration_since(self.begin));
        let after = breaker.state();
        if before != after {
            let until = match after {
                State::Closed => CLOSED,
                State::Open { until } => whole_nanos(until).max(ASK + 1),
                State::HalfOpen { probing: true } => u64::MAX,
                State::HalfOpen { probing: false } | State::Recovering { .. } => ASK,
            };
            self.looked.store(0, Ordering::Relaxed);
            self.until.store(until, Ordering::Relaxed);
        }
        drop(breaker);
        if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
            telemetry::breaker_changed(before.name(), after.name(), after.number());
        }
        result
    }

    fn nanos(&self, now: Instant) -> u64 {
        whole_nanos(now.saturating_duration_since(self.begin))
    }
}

/// In 64 bits: 584 years.
fn whole_nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

/// A call that went through. Dropped without an end, it was given up by whoever asked.
struct Call {
    gate: Arc<Gate>,
    pass: Pass,
    start: Instant,
    ended: bool,
}

impl Call {
    fn end(mut self, reply: &Result<StoreReply, Error>) {
        self.ended = true;
        let now = Instant::now();
        let end = match reply {
            // It has not been asked.
            Err(error) if !error.is_unavailable() => End::Unheard,
            // One key is spoilt, and it says so: it works.
            Err(error) if error.kind() != ErrorKind::WrongType => End::Badly,
            _ if self.is_slow(now) => End::Badly,
            _ => End::Well,
        };
        self.gate.hear(now, self.pass, self.start, end);
    }

    fn is_slow(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.start) >= self.gate.slow
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            let now = Instant::now();
            let end = if self.is_slow(now) { End::Badly } else { End::Unheard };
            self.gate.hear(now, self.pass, self.start, end);
        }
    }
}

impl Store for Guarded {
    fn call(&self, request: Request<'_>) -> Answer {
        let start = Instant::now();
        // Nothing else can give back in the store's place.
        let urgent = matches!(request, Request::Refund(_));
        let pass = self.gate.ask(start, urgent);
        if pass == Pass::No {
            return Answer::ready(Err(left_alone()));
        }
        let call = Call { gate: Arc::clone(&self.gate), pass, start, ended: false };
        match self.inner.call(request).now() {
            Ok(reply) => {
                call.end(&reply);
                Answer::ready(reply)
            }
            Err(coming) => Answer::pending(async move {
                let reply = coming.await;
                call.end(&reply);
                reply
            }),
        }
    }
}

/// What is said in the place of a store that is left alone.
#[cold]
pub(super) fn left_alone() -> Error {
    let message = "the store has failed too often and is left alone for a moment";
    Error::new(ErrorKind::BreakerOpen, message)
}
