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
    /// So many failed and slow calls one after the other are enough, however well it went before.
    /// The default is 10.
    pub consecutive: u32,
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
            consecutive: 10,
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
    /// Failures since the last success.
    in_a_row: u32,
}

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self { config, state: State::Closed, slices: Default::default(), in_a_row: 0 }
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
                (self.slices, self.in_a_row) = Default::default();
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
        self.in_a_row = if failed { self.in_a_row.saturating_add(1) } else { 0 };
        slice.calls += 1;
        slice.failures += u32::from(failed);
    }

    fn is_bad(&self, now: Duration) -> bool {
        if self.in_a_row >= self.config.consecutive {
            return true;
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Says what the breaker should, from a list of everything that happened.
    #[derive(Default)]
    struct Model {
        /// Calls that were heard since the store was last trusted: when, and whether they failed.
        heard: Vec<(u64, bool)>,
        open_since: Option<u64>,
        probing: bool,
        trusted_since: Option<u64>,
    }

    const WINDOW: u64 = 1_000;
    const OPEN: u64 = 500;
    const RAMP: u64 = 300;

    fn config() -> BreakerConfig {
        let millis = Duration::from_millis;
        BreakerConfig {
            window: millis(WINDOW),
            min_calls: 4,
            failures_percent: 50,
            consecutive: 6,
            open: millis(OPEN),
            ramp: millis(RAMP),
            ..BreakerConfig::default()
        }
    }

    impl Model {
        fn ask(&mut self, now: u64, percentile: u64) -> Pass {
            if let Some(since) = self.open_since {
                if now < since + OPEN || self.probing {
                    return Pass::No;
                }
                self.probing = true;
                return Pass::Probe;
            }
            match self.trusted_since {
                Some(since) if now < since + RAMP => {
                    let percent = 10 + 90 * (now - since) / RAMP;
                    if percentile < percent { Pass::Through } else { Pass::No }
                }
                _ => Pass::Through,
            }
        }

        fn hear(&mut self, now: u64, pass: Pass, failed: Option<bool>) {
            match (pass, failed) {
                (Pass::Probe, None) => self.probing = false,
                (Pass::Probe, Some(true)) => (self.probing, self.open_since) = (false, Some(now)),
                (Pass::Probe, Some(false)) => {
                    *self = Self { trusted_since: Some(now), ..Self::default() };
                }
                (_, Some(failed)) if self.open_since.is_none() => {
                    self.heard.push((now, failed));
                    // Whole tenths of the window count.
                    let tenth = |time: u64| time / (WINDOW / 10);
                    let recent: Vec<bool> = self
                        .heard
                        .iter()
                        .filter(|(time, _)| tenth(*time) + 10 > tenth(now))
                        .map(|(_, failed)| *failed)
                        .collect();
                    let failures = recent.iter().filter(|failed| **failed).count();
                    let last = self.heard.iter().rev().take(6);
                    let in_a_row = last.filter(|(_, failed)| *failed).count() == 6;
                    if in_a_row || recent.len() >= 4 && failures * 2 >= recent.len() {
                        (self.open_since, self.trusted_since) = (Some(now), None);
                    }
                }
                _ => {}
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Pass(u64),
        Ask { percentile: u64 },
        Hear { which: usize, failed: Option<bool> },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let failed = prop_oneof![3 => Just(Some(true)), 3 => Just(Some(false)), 1 => Just(None)];
        prop::collection::vec(
            prop_oneof![
                3 => prop_oneof![0..40_u64, 0..700_u64].prop_map(Step::Pass),
                5 => (0..100_u64).prop_map(|percentile| Step::Ask { percentile }),
                5 => (0..8_usize, failed).prop_map(|(which, failed)| Step::Hear { which, failed }),
            ],
            1..300,
        )
    }

    #[test]
    fn it_is_what_the_list_of_calls_says() {
        let reached = std::cell::RefCell::new(BTreeMap::<String, u64>::new());
        let config =
            ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) };
        proptest::test_runner::TestRunner::new(config)
            .run(&steps(), |steps| {
                let (mut breaker, mut model) = (Breaker::new(self::config()), Model::default());
                let (mut now, mut calls) = (0, Vec::new());
                for step in steps {
                    let time = Duration::from_millis(now);
                    match step {
                        Step::Pass(by) => now += by,
                        Step::Ask { percentile } => {
                            let pass = breaker.ask(time, || percentile);
                            prop_assert_eq!(pass, model.ask(now, percentile));
                            let state =
                                format!("{pass:?} when {:?}", discriminant(breaker.state()));
                            *reached.borrow_mut().entry(state).or_default() += 1;
                            if pass != Pass::No {
                                calls.push(pass);
                            }
                        }
                        Step::Hear { which, failed } if !calls.is_empty() => {
                            let pass = calls.remove(which % calls.len());
                            breaker.hear(time, pass, failed, || 0);
                            model.hear(now, pass, failed);
                        }
                        Step::Hear { .. } => {}
                    }
                }
                Ok(())
            })
            .unwrap();
        let reached = reached.into_inner();
        eprintln!("breaker reached: {reached:?}");
        // Through and No while recovering, through while closed, no while open and half-open, probe.
        assert_eq!(reached.len(), 6, "{reached:?}");
    }

    fn discriminant(state: State) -> &'static str {
        match state {
            State::Closed => "closed",
            State::Open { .. } => "open",
            State::HalfOpen { .. } => "half-open",
            State::Recovering { .. } => "recovering",
        }
    }
}
