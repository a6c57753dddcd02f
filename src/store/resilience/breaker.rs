//! A store that fails is left alone for a while.
//!
//! [`Breaker`] is the state machine: closed (all calls go through), open (none does), half-open (one
//! probe at a time), and recovering (a share of the calls that grows). It knows neither clock nor
//! store.

use std::time::Duration;

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
    /// Calls that were on their way together count as one: one pause of the store fails them all.
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

impl State {
    /// Returns the name of this state in events.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half-open",
            Self::Recovering { .. } => "recovering",
        }
    }

    /// Returns the number of this state in metrics.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Open { .. } => 1,
            Self::HalfOpen { .. } => 2,
            Self::Recovering { .. } => 3,
        }
    }
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
    /// Failures since the last success, each of a call that began when the one before had failed.
    in_a_row: u32,
    /// When the last of them failed.
    last_in_a_row: Duration,
    /// When the store was last trusted again.
    trusted: Duration,
}

/// A call that went through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trip {
    pub(crate) pass: Pass,
    pub(crate) start: Duration,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    /// With an error of the store, or too late.
    Badly,
    /// Nothing was heard of the store.
    Unheard,
}

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            state: State::Closed,
            slices: Default::default(),
            in_a_row: 0,
            last_in_a_row: Duration::ZERO,
            trusted: Duration::ZERO,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Asks for a call. `random` decides whose call goes through while the store recovers, unless it
    /// is `urgent`.
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        urgent: bool,
        random: impl FnOnce() -> u64,
    ) -> Pass {
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
            State::Recovering { .. } if urgent => Pass::Through,
            State::Open { .. } | State::HalfOpen { probing: true } => Pass::No,
            State::HalfOpen { probing: false } => {
                self.state = State::HalfOpen { probing: true };
                Pass::Probe
            }
            State::Recovering { since } => {
                // Before the end of the ramp, so it has a length.
                let grown = 90 * (now - since).as_nanos() / self.config.ramp.as_nanos();
                if u128::from(random() % 100) < 10 + grown { Pass::Through } else { Pass::No }
            }
        }
    }

    /// Hears how a call that went through has ended.
    pub(crate) fn hear(
        &mut self,
        now: Duration,
        trip: Trip,
        end: End,
        random: impl FnOnce() -> u64,
    ) {
        match (trip.pass, end) {
            (Pass::Probe, End::Unheard) => self.state = State::HalfOpen { probing: false },
            (Pass::Probe, End::Badly) => self.open(now, random),
            (Pass::Probe, End::Well) => {
                (self.slices, self.in_a_row) = Default::default();
                self.trusted = now;
                self.state = State::Recovering { since: now };
            }
            // Calls that began before the store was left alone say nothing of it now.
            (Pass::Through, End::Well | End::Badly)
                if trip.start >= self.trusted
                    && matches!(self.state, State::Closed | State::Recovering { .. }) =>
            {
                self.count(now, trip.start, end == End::Badly);
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

    fn count(&mut self, now: Duration, start: Duration, failed: bool) {
        let number = self.slice(now);
        let slice = &mut self.slices[(number % u64::from(SLICES)) as usize];
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        if !failed {
            self.in_a_row = 0;
        } else if self.in_a_row == 0 || start >= self.last_in_a_row {
            (self.in_a_row, self.last_in_a_row) = (self.in_a_row.saturating_add(1), now);
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Says what the breaker should, from a list of everything that happened.
    #[derive(Default)]
    struct Model {
        /// Calls that were heard since the store was last trusted: from when, until when, and
        /// whether they failed.
        heard: Vec<(u64, u64, bool)>,
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
        fn ask(&mut self, now: u64, urgent: bool, percentile: u64) -> Pass {
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
                    if urgent || percentile < percent { Pass::Through } else { Pass::No }
                }
                _ => Pass::Through,
            }
        }

        fn hear(&mut self, now: u64, (pass, start): (Pass, u64), end: End) {
            match (pass, end) {
                (Pass::Probe, End::Unheard) => self.probing = false,
                (Pass::Probe, End::Badly) => (self.probing, self.open_since) = (false, Some(now)),
                (Pass::Probe, End::Well) => {
                    *self = Self { trusted_since: Some(now), ..Self::default() };
                }
                (_, End::Well | End::Badly)
                    if self.open_since.is_none() && Some(start) >= self.trusted_since =>
                {
                    self.heard.push((start, now, end == End::Badly));
                    // Whole tenths of the window count.
                    let tenth = |time: u64| time / (WINDOW / 10);
                    let recent: Vec<bool> = self
                        .heard
                        .iter()
                        .filter(|(_, time, _)| tenth(*time) + 10 > tenth(now))
                        .map(|(_, _, failed)| *failed)
                        .collect();
                    let failures = recent.iter().filter(|failed| **failed).count();
                    let enough = recent.len() >= 4 && failures * 2 >= recent.len();
                    if self.in_a_row() >= 6 || enough {
                        (self.open_since, self.trusted_since) = (Some(now), None);
                    }
                }
                _ => {}
            }
        }

        /// The longest chain of failures since the last success of which each began after the one
        /// before had ended.
        fn in_a_row(&self) -> usize {
            let since = self.heard.iter().rposition(|(.., failed)| !failed).map_or(0, |at| at + 1);
            let mut chain: Vec<(u64, u64)> = Vec::new();
            for (start, end, _) in &self.heard[since..] {
                if chain.last().is_none_or(|(_, last)| start >= last) {
                    chain.push((*start, *end));
                }
            }
            chain.len()
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Pass(u64),
        Ask { urgent: bool, percentile: u64 },
        Hear { which: usize, end: End },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let end = prop_oneof![3 => Just(End::Badly), 3 => Just(End::Well), 1 => Just(End::Unheard)];
        let ask = (0..100_u64, prop::bool::weighted(0.2));
        prop::collection::vec(
            prop_oneof![
                3 => prop_oneof![0..40_u64, 0..700_u64].prop_map(Step::Pass),
                5 => ask.prop_map(|(percentile, urgent)| Step::Ask { urgent, percentile }),
                5 => (0..8_usize, end).prop_map(|(which, end)| Step::Hear { which, end }),
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
                        Step::Ask { urgent, percentile } => {
                            let pass = breaker.ask(time, urgent, || percentile);
                            prop_assert_eq!(pass, model.ask(now, urgent, percentile));
                            let state =
                                format!("{pass:?} when {:?}", discriminant(breaker.state()));
                            *reached.borrow_mut().entry(state).or_default() += 1;
                            if pass != Pass::No {
                                calls.push((pass, now));
                            }
                        }
                        Step::Hear { which, end } if !calls.is_empty() => {
                            let call = calls.remove(which % calls.len());
                            let trip = Trip { pass: call.0, start: Duration::from_millis(call.1) };
                            breaker.hear(time, trip, end, || 0);
                            model.hear(now, call, end);
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
