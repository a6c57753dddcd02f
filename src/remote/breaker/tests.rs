//! The state machine agrees with a model that keeps a list of everything that happened.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    BreakerConfig, CallOutcome,
    breaker::{Breaker, Permit},
};
use crate::seed;

const WINDOW: u64 = 1_000;
const OPEN: u64 = 500;
const MAX_CONSECUTIVE: usize = 6;
const MIN_CALLS: usize = 4;

fn config() -> BreakerConfig {
    BreakerConfig {
        window: Duration::from_millis(WINDOW),
        min_calls: MIN_CALLS as u32,
        failures_percent: 50,
        consecutive: MAX_CONSECUTIVE as u32,
        open: Duration::from_millis(OPEN),
        ..BreakerConfig::default()
    }
}

/// A call in flight: its permit and start.
type ModelCall = (Permit, u64);

#[derive(Default)]
struct Model {
    /// The calls that ended since the breaker last closed: their start, end and success.
    ended: Vec<(u64, u64, bool)>,
    /// The start of the window.
    window: u64,
    /// The time at which a probe is due.
    probe_at: Option<u64>,
    changed_at: u64,
}

impl Model {
    /// Returns whether the call that goes through is a probe, or `None` if it is rejected.
    fn try_acquire(&mut self, now: u64, late: u64) -> Option<bool> {
        match self.probe_at {
            None => Some(false),
            Some(due) if now >= due + late => {
                self.probe_at = Some(now + OPEN);
                Some(true)
            }
            Some(_) => None,
        }
    }

    fn record(&mut self, now: u64, (permit, start): ModelCall, outcome: CallOutcome) {
        if start < self.changed_at || outcome == CallOutcome::Unknown {
            return;
        }
        let is_success = outcome == CallOutcome::Success;
        match (permit.is_probe, self.probe_at) {
            (true, Some(_)) if is_success => *self = Self { changed_at: now, ..Self::default() },
            (true, Some(_)) => self.probe_at = Some(now + OPEN),
            (false, None) => {
                if now >= self.window + WINDOW {
                    self.window = now;
                }
                self.ended.push((start, now, is_success));
                if !is_success && (self.has_failed_in_a_row() || self.has_too_many_failures()) {
                    (self.changed_at, self.probe_at) = (now, Some(now + OPEN));
                }
            }
            _ => {}
        }
    }

    fn has_too_many_failures(&self) -> bool {
        let recent = || self.ended.iter().filter(|(_, end, _)| *end >= self.window);
        let failures = recent().filter(|(.., is_success)| !is_success).count();
        recent().count() >= MIN_CALLS && failures * 2 >= recent().count()
    }

    /// Returns whether the longest chain of failures since the last success, of which each began after the
    /// previous one had ended, opens the breaker.
    fn has_failed_in_a_row(&self) -> bool {
        let since = self.ended.iter().rposition(|(.., success)| *success).map_or(0, |at| at + 1);
        let mut chain: Vec<(u64, u64)> = Vec::new();
        for (start, end, _) in &self.ended[since..] {
            if chain.last().is_none_or(|(_, last)| start >= last) {
                chain.push((*start, *end));
            }
        }
        chain.len() >= MAX_CONSECUTIVE
    }
}

#[derive(Debug, Clone)]
enum BreakerStep {
    Wait(u64),
    Acquire { late: u64 },
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
            6 => prop_oneof![Just(0), Just(OPEN)].prop_map(|late| BreakerStep::Acquire { late }),
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
        let (mut now, mut calls) = (1, Vec::<ModelCall>::new());
        for step in steps {
            let time = Duration::from_millis(now);
            match step {
                BreakerStep::Wait(millis) => now += millis,
                BreakerStep::Acquire { late } => {
                    let permit = breaker.try_acquire(time, Duration::from_millis(late));
                    let is_probe = permit.map(|permit| permit.is_probe);
                    prop_assert_eq!(is_probe, model.try_acquire(now, late));
                    count(format!("acquired: {is_probe:?}"));
                    calls.extend(permit.map(|permit| (permit, now)));
                }
                BreakerStep::Record { which, outcome } if !calls.is_empty() => {
                    let call = calls.remove(which % calls.len());
                    let was_open = breaker.probe_at().is_some();
                    breaker.record(time, call.0, outcome, || 0);
                    model.record(now, call, outcome);
                    let is_open = breaker.probe_at().is_some();
                    count(format!("from {was_open} to {is_open} by a probe: {}", call.0.is_probe));
                    now += 1;
                }
                BreakerStep::Record { .. } => {}
            }
            let probe_at = breaker.probe_at().map(|time| time.as_millis() as u64);
            prop_assert_eq!(probe_at, model.probe_at);
        }
        Ok(())
    });
    let reached = reached.into_inner();
    eprintln!("breaker reached: {reached:?}");
    // A call that goes through, is rejected, or is a probe. A call leaves the breaker closed or open, or opens
    // it. A probe leaves the breaker closed, because another one closed it, or open, or closes it.
    assert_eq!(reached.len(), 9, "{reached:?}");
}

#[test]
fn settings_out_of_range_count_as_the_nearest() {
    let opens_after = |config: BreakerConfig| {
        let mut breaker = Breaker::new(config);
        (1..=20).find(|number| {
            let start = Duration::from_millis(10 * number);
            let permit = breaker.try_acquire(start, Duration::ZERO).expect("closed");
            breaker.record(start, permit, CallOutcome::Failure, || 0);
            breaker.probe_at().is_some()
        })
    };
    let only_by_percent = |failures_percent| {
        opens_after(BreakerConfig { failures_percent, consecutive: 1_000, ..config() })
    };
    let only_in_a_row =
        |consecutive| opens_after(BreakerConfig { consecutive, min_calls: 1_000, ..config() });
    assert_eq!((only_by_percent(200), only_by_percent(100)), (Some(4), Some(4)));
    assert_eq!((only_in_a_row(0), only_in_a_row(1), only_in_a_row(2)), (Some(1), Some(1), Some(2)));
}
