//! A store that fails is left alone for a while.
//!
//! [`Breaker`] is the state machine: closed (all calls go through), open (none does), half-open (one
//! probe at a time), and recovering (a share of the calls that grows). It knows neither clock nor
//! store; [`Guarded`] is the store around a store.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    error::{Error, ErrorKind},
    random,
    store::{Answer, Request, Ruling, Store},
    telemetry,
};

/// When a failing store is left alone, and how it is trusted again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// How far back calls count. The default is 10 s.
    pub window: Duration,
    /// With fewer calls in the window nothing is concluded. The default is 10.
    pub min_calls: u32,
    /// The share of failed and slow calls, in percent, from which on the store is left alone. The
    /// default is 50.
    pub failures_percent: u32,
    /// From how long on a call counts as slow, which is as bad as failed. The default is 40 ms.
    pub slow: Duration,
    /// For how long the store is left alone before one call tries again, up to a tenth more at
    /// random. The default is 500 ms.
    pub open: Duration,
    /// For how long the share of calls that go through then grows, from a tenth to all. The default
    /// is 1 s.
    pub ramp: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            min_calls: 10,
            failures_percent: 50,
            slow: Duration::from_millis(40),
            open: Duration::from_millis(500),
            ramp: Duration::from_secs(1),
        }
    }
}

/// What the breaker thinks of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It works.
    Closed,
    /// It is left alone until then.
    Open { until: Duration },
    /// It is tried, by one call at a time.
    HalfOpen { probing: bool },
    /// It has answered again then, and gets a growing share of the calls.
    Recovering { since: Duration },
}

/// Whether a call goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    Through,
    /// Through, and everything depends on it.
    Probe,
    No,
}

/// Calls of a part of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    number: u64,
    calls: u32,
    failures: u32,
}

const SLICES: u32 = 10;

/// The state machine. Times are since some beginning, and never go back.
#[derive(Debug)]
pub(crate) struct Breaker {
    config: BreakerConfig,
    state: State,
    slices: [Slice; SLICES as usize],
}

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self { config, state: State::Closed, slices: Default::default() }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Asks for a call. `random` decides whose call goes through while the store recovers.
    pub(crate) fn ask(&mut self, now: Duration, random: impl FnOnce() -> u64) -> Pass {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.state = State::HalfOpen { probing: false };
        }
        if let State::Recovering { since } = self.state
            && now >= since + self.config.ramp
        {
            self.state = State::Closed;
        }
        match self.state {
            State::Closed => Pass::Through,
            State::Open { .. } | State::HalfOpen { probing: true } => Pass::No,
            State::HalfOpen { probing: false } => {
                self.state = State::HalfOpen { probing: true };
                Pass::Probe
            }
            State::Recovering { since } => {
                let grown = (now - since).as_secs_f64() / self.config.ramp.as_secs_f64();
                let percent = 10 + (90.0 * grown) as u64;
                if random() % 100 < percent { Pass::Through } else { Pass::No }
            }
        }
    }

    /// Hears how a call that went through has ended; `None` if nobody waited for its end.
    pub(crate) fn hear(
        &mut self,
        now: Duration,
        pass: Pass,
        failed: Option<bool>,
        random: impl FnOnce() -> u64,
    ) {
        match (pass, failed) {
            (Pass::Probe, None) => self.state = State::HalfOpen { probing: false },
            (Pass::Probe, Some(true)) => self.open(now, random),
            (Pass::Probe, Some(false)) => {
                self.slices = Default::default();
                self.state = State::Recovering { since: now };
            }
            // Calls that began before the store was left alone say nothing of it now.
            (Pass::Through, Some(failed))
                if matches!(self.state, State::Closed | State::Recovering { .. }) =>
            {
                self.count(now, failed);
                if self.is_bad(now) {
                    self.open(now, random);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, now: Duration, random: impl FnOnce() -> u64) {
        let spread = self.config.open.mul_f64(0.1 * (random() % 1_000) as f64 / 1_000.0);
        self.state = State::Open { until: now + self.config.open + spread };
    }

    fn slice(&self, now: Duration) -> u64 {
        let length = (self.config.window / SLICES).as_nanos().max(1);
        (now.as_nanos() / length) as u64
    }

    fn count(&mut self, now: Duration, failed: bool) {
        let number = self.slice(now);
        let slice = &mut self.slices[(number % u64::from(SLICES)) as usize];
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        slice.calls += 1;
        slice.failures += u32::from(failed);
    }

    fn is_bad(&self, now: Duration) -> bool {
        let newest = self.slice(now);
        let counts = |slice: &&Slice| slice.number + u64::from(SLICES) > newest;
        let (calls, failures) =
            self.slices.iter().filter(counts).fold((0_u64, 0_u64), |(calls, failures), slice| {
                (calls + u64::from(slice.calls), failures + u64::from(slice.failures))
            });
        calls >= u64::from(self.config.min_calls)
            && failures * 100 >= calls * u64::from(self.config.failures_percent)
    }
}

/// A store behind a breaker.
#[derive(Debug)]
pub(super) struct Guarded {
    inner: Box<dyn Store>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    breaker: Mutex<Breaker>,
    slow: Duration,
    begin: Instant,
}

impl Guarded {
    pub(super) fn new(inner: Box<dyn Store>, config: BreakerConfig) -> Self {
        let (breaker, begin) = (Mutex::new(Breaker::new(config)), Instant::now());
        Self { inner, shared: Arc::new(Shared { breaker, slow: config.slow, begin }) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the breaker, and reports a change of its state, once.
    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut Breaker, Duration) -> T) -> T {
        let mut breaker = self.lock();
        let before = breaker.state();
        let result = act(&mut breaker, now.saturating_duration_since(self.begin));
        let after = breaker.state();
        drop(breaker);
        if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
            telemetry::breaker(after);
        }
        result
    }
}

/// A call that went through. Dropped without an end, it was given up by whoever asked.
struct Call {
    shared: Arc<Shared>,
    pass: Pass,
    start: Instant,
    ended: bool,
}

impl Call {
    fn end(mut self, ruling: &Result<Ruling, Error>) {
        self.ended = true;
        let now = Instant::now();
        let slow = now.saturating_duration_since(self.start) >= self.shared.slow;
        let failed = slow || ruling.as_ref().is_err_and(Error::is_unavailable);
        let pass = self.pass;
        self.shared.with(now, |breaker, now| breaker.hear(now, pass, Some(failed), random::number));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            let (now, pass) = (Instant::now(), self.pass);
            self.shared.with(now, |breaker, now| breaker.hear(now, pass, None, random::number));
        }
    }
}

impl Store for Guarded {
    fn call(&self, request: Request<'_>) -> Answer {
        let start = Instant::now();
        let pass = self.shared.with(start, |breaker, now| breaker.ask(now, random::number));
        if pass == Pass::No {
            let message = "the store has failed too often and is left alone for a moment";
            return Answer::ready(Err(Error::new(ErrorKind::BreakerOpen, message)));
        }
        let call = Call { shared: Arc::clone(&self.shared), pass, start, ended: false };
        match self.inner.call(request).now() {
            Ok(ruling) => {
                call.end(&ruling);
                Answer::ready(ruling)
            }
            Err(coming) => Answer::pending(async move {
                let ruling = coming.await;
                call.end(&ruling);
                ruling
            }),
        }
    }
}
