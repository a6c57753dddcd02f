//! The state machine agrees with a model that keeps a list of everything that happened.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    BreakerConfig, BreakerState, CallOutcome,
    machine::{Breaker, MAX_HALF_OPEN_FAILURES, Permission},
};
use crate::seed;

const WINDOW: u64 = 1_000;
const OPEN: u64 = 500;
const RAMP: u64 = 300;
const MAX_CONSECUTIVE: usize = 6;
const MIN_CALLS: usize = 4;

fn config() -> BreakerConfig {
    BreakerConfig {
        window: Duration::from_millis(WINDOW),
        min_calls: MIN_CALLS as u32,
        failures_percent: 50,
        consecutive: MAX_CONSECUTIVE as u32,
        open: Duration::from_millis(OPEN),
        ramp: Duration::from_millis(RAMP),
        ..BreakerConfig::default()
    }
}

/// A call in flight: its number, permission and start.
type ModelCall = (u64, Permission, u64);

#[derive(Default)]
struct Model {
    /// The calls that ended since the last successful probe: their start, end and success.
    ended: Vec<(u64, u64, bool)>,
    open_since: Option<u64>,
    /// The number of the probe in flight.
    probe: Option<u64>,
    /// The limited calls in flight since the last successful probe.
    limited: Vec<u64>,
    trusted_since: Option<u64>,
}

impl Model {
    fn try_acquire(&self, now: u64, urgent: bool) -> Permission {
        if self.open_since.is_some() {
            return Permission::Rejected;
        }
        match self.window(now) {
            None => Permission::Unlimited,
            Some(window) if urgent || self.limited.len() < window => Permission::Limited,
            Some(_) => Permission::Rejected,
        }
    }

    fn try_probe(&self, now: u64) -> bool {
        self.probe.is_none() && self.open_since.is_some_and(|since| now >= since + OPEN)
    }

    /// Returns the most calls in flight at once, while the breaker is half-open or recovering.
    fn window(&self, now: u64) -> Option<usize> {
        let trusted_since = self.trusted_since?;
        let successes = || self.ended.iter().filter(|(.., success)| *success);
        let first_success = successes().map(|(_, end, _)| *end).next();
        // The ramp begins anew with the first call that succeeds, if it does so in time.
        let since = match first_success {
            Some(time) if time < trusted_since + RAMP => time,
            _ => trusted_since,
        };
        (now < since + RAMP).then(|| 1 + successes().count())
    }

    fn record(&mut self, now: u64, call: ModelCall, outcome: CallOutcome) {
        let (number, _, start) = call;
        if self.probe == Some(number) {
            self.probe = None;
            match outcome {
                // Another probe may begin at once.
                CallOutcome::Unknown => self.open_since = now.checked_sub(OPEN),
                CallOutcome::Failure => self.open_since = Some(now),
                CallOutcome::Success => {
                    *self = Self { trusted_since: Some(now), ..Self::default() };
                }
            }
            return;
        }
        if self.open_since.is_some() || Some(start) < self.trusted_since {
            return;
        }
        self.limited.retain(|other| *other != number);
        if outcome == CallOutcome::Unknown {
            return;
        }
        let is_half_open = self.window(now) == Some(1);
        self.ended.push((start, now, outcome == CallOutcome::Success));
        if outcome == CallOutcome::Success {
            return;
        }
        let tenth = |time: u64| time / (WINDOW / 10);
        let recent: Vec<bool> = self
            .ended
            .iter()
            .filter(|(_, end, _)| tenth(*end) + 10 > tenth(now))
            .map(|(.., success)| *success)
            .collect();
        let failures = recent.iter().filter(|success| !**success).count();
        let rate_exceeded = recent.len() >= MIN_CALLS && failures * 2 >= recent.len();
        let max = if is_half_open { MAX_HALF_OPEN_FAILURES as usize } else { MAX_CONSECUTIVE };
        if self.consecutive_failures() >= max || rate_exceeded {
            self.open_since = Some(now);
        }
    }

    /// Returns the length of the longest chain of failures since the last success of which each
    /// began after the previous one had ended.
    fn consecutive_failures(&self) -> usize {
        let since = self.ended.iter().rposition(|(.., success)| *success).map_or(0, |at| at + 1);
        let mut chain: Vec<(u64, u64)> = Vec::new();
        for (start, end, _) in &self.ended[since..] {
            if chain.last().is_none_or(|(_, last)| start >= last) {
                chain.push((*start, *end));
            }
        }
        chain.len()
    }
}

#[derive(Debug, Clone)]
enum BreakerStep {
    Wait(u64),
    Acquire { urgent: bool },
    Probe,
    Record { which: usize, outcome: CallOutcome },
}

fn steps() -> impl Strategy<Value = Vec<BreakerStep>> {
    let outcome = prop_oneof![
        3 => Just(CallOutcome::Failure),
        3 => Just(CallOutcome::Success),
        1 => Just(CallOutcome::Unknown),
    ];
    prop::collection::vec(
        prop_oneof![
            3 => prop_oneof![0..40_u64, 0..700_u64].prop_map(BreakerStep::Wait),
            5 => prop::bool::weighted(0.2).prop_map(|urgent| BreakerStep::Acquire { urgent }),
            2 => Just(BreakerStep::Probe),
            6 => (0..8_usize, outcome).prop_map(|(which, outcome)| BreakerStep::Record { which, outcome }),
        ],
        1..300,
    )
}

#[test]
fn agrees_with_a_list_of_all_calls() {
    let reached = RefCell::new(BTreeMap::<String, u64>::new());
    let count = |what: String| *reached.borrow_mut().entry(what).or_default() += 1;
    seed::property("breaker", ProptestConfig::with_cases(500), steps(), |steps| {
        let (mut breaker, mut model) = (Breaker::new(config()), Model::default());
        // The machine tells calls apart by their start, so nothing starts when a probe ends.
        let (mut now, mut calls, mut number) = (1, Vec::<ModelCall>::new(), 0);
        for step in steps {
            let time = Duration::from_millis(now);
            number += 1;
            match step {
                BreakerStep::Wait(millis) => now += millis,
                BreakerStep::Acquire { urgent } => {
                    let permission = breaker.try_acquire(time, urgent);
                    prop_assert_eq!(permission, model.try_acquire(now, urgent));
                    count(format!("{permission:?} when {}", breaker.state().name()));
                    if permission == Permission::Limited {
                        model.limited.push(number);
                    }
                    if permission != Permission::Rejected {
                        calls.push((number, permission, now));
                    }
                }
                BreakerStep::Probe => {
                    breaker.advance(time);
                    let probes = breaker.try_probe(time);
                    prop_assert_eq!(probes, model.try_probe(now));
                    if probes {
                        count("Probe".to_owned());
                        model.probe = Some(number);
                        calls.push((number, Permission::Probe, now));
                    }
                }
                BreakerStep::Record { which, outcome } if !calls.is_empty() => {
                    let call = calls.remove(which % calls.len());
                    let start = Duration::from_millis(call.2);
                    breaker.record(time, (call.1, start), outcome, || 0);
                    model.record(now, call, outcome);
                    now += 1;
                }
                BreakerStep::Record { .. } => {}
            }
            let is_open =
                matches!(breaker.state(), BreakerState::Open { .. } | BreakerState::Probing { .. });
            prop_assert_eq!(is_open, model.open_since.is_some());
        }
        Ok(())
    });
    let reached = reached.into_inner();
    eprintln!("breaker reached: {reached:?}");
    // Unlimited when closed; limited and rejected when half-open and when recovering; rejected when
    // open and while a probe is in flight; and the probe itself.
    assert_eq!(reached.len(), 7, "{reached:?}");
}

#[test]
fn settings_out_of_range_count_as_the_nearest() {
    let opens_after = |config: BreakerConfig| {
        let mut breaker = Breaker::new(config);
        (1..=20).find(|number| {
            let start = Duration::from_millis(10 * number);
            let permission = breaker.try_acquire(start, false);
            breaker.record(start, (permission, start), CallOutcome::Failure, || 0);
            breaker.state() != BreakerState::Closed
        })
    };
    let only_by_percent = |failures_percent| {
        opens_after(config().failures_percent(failures_percent).consecutive(1_000))
    };
    let only_in_a_row =
        |consecutive| opens_after(config().consecutive(consecutive).min_calls(1_000));
    assert_eq!((only_by_percent(200), only_by_percent(100)), (Some(4), Some(4)));
    assert_eq!((only_in_a_row(0), only_in_a_row(1), only_in_a_row(2)), (Some(1), Some(1), Some(2)));
}
