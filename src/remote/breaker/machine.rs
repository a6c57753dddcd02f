//! The state machine of the circuit breaker.

use std::time::Duration;

use super::BreakerConfig;

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::remote) enum BreakerState {
    /// All calls go through.
    Closed,
    /// No call goes through. From `until` on the store may be probed.
    Open { until: Duration },
    /// A probe began at `since`. No call goes through.
    Probing { since: Duration },
    /// A probe succeeded at `since`. One call at a time goes through.
    HalfOpen { since: Duration },
    /// A call succeeded at `since`. At most `max_in_flight` calls are in flight at a time.
    Recovering { since: Duration, max_in_flight: u32 },
}

/// The breaker's answer to a call that asks for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// The call goes through.
    Unlimited,
    /// The call goes through, and counts as one of the calls in flight, whose number is limited.
    Limited,
    /// The call is the probe that decides whether the breaker stays open.
    Probe,
    /// The call does not go through.
    Rejected,
}

/// The outcome of a call: what it says about the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::remote) enum CallOutcome {
    Success,
    /// The store failed, or took too long.
    Failure,
    /// The store was not called, or the caller stopped waiting early.
    Unknown,
}

/// The number of consecutive failures at which a half-open breaker opens again. It is more than one
/// because the first call may fail for a reason of its own, such as a damaged key.
pub(super) const MAX_HALF_OPEN_FAILURES: u32 = 3;

/// The shortest time between two probes, whatever [`BreakerConfig::open`] is. Without it, the
/// prober of a store that answers at once would never yield to other tasks.
const MIN_OPEN: Duration = Duration::from_millis(1);

/// The state machine. All times are durations since a common origin, and never decrease.
#[derive(Debug)]
pub(super) struct Breaker {
    config: BreakerConfig,
    state: BreakerState,
    failure_rate: FailureRate,
    /// The number of failures since the last success. A failed call counts if it began after the
    /// previous counted failure had ended.
    consecutive: u32,
    last_failure: Duration,
    /// The calls in flight whose permission is [`Permission::Limited`].
    in_flight: u32,
    /// The time at which the breaker last opened.
    opened_at: Duration,
    /// The time at which the last probe succeeded. Calls that began earlier are not counted.
    trusted_since: Duration,
}

impl Breaker {
    pub(super) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            state: BreakerState::Closed,
            failure_rate: FailureRate::default(),
            consecutive: 0,
            last_failure: Duration::ZERO,
            in_flight: 0,
            opened_at: Duration::ZERO,
            trusted_since: Duration::ZERO,
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.state
    }

    pub(super) fn opened_at(&self) -> Duration {
        self.opened_at
    }

    /// Closes the breaker if its ramp has ended by `now`.
    pub(super) fn advance(&mut self, now: Duration) {
        if self.ramp_end().is_some_and(|end| now >= end) {
            self.state = BreakerState::Closed;
        }
    }

    /// Returns the time at which a half-open or recovering breaker closes if no more calls fail.
    pub(super) fn ramp_end(&self) -> Option<Duration> {
        match self.state {
            BreakerState::HalfOpen { since } | BreakerState::Recovering { since, .. } => {
                Some(since.saturating_add(self.config.ramp))
            }
            BreakerState::Closed | BreakerState::Open { .. } | BreakerState::Probing { .. } => None,
        }
    }

    /// Decides whether a call goes through. An `urgent` call is not subject to the limit of calls
    /// in flight.
    pub(super) fn try_acquire(&mut self, now: Duration, urgent: bool) -> Permission {
        self.advance(now);
        let max_in_flight = match self.state {
            BreakerState::Closed => return Permission::Unlimited,
            BreakerState::Open { .. } | BreakerState::Probing { .. } => {
                return Permission::Rejected;
            }
            BreakerState::HalfOpen { .. } => 1,
            BreakerState::Recovering { max_in_flight, .. } => max_in_flight,
        };
        if self.in_flight >= max_in_flight && !urgent {
            return Permission::Rejected;
        }
        self.in_flight += 1;
        Permission::Limited
    }

    /// Begins a probe. Returns `false` if the breaker is not open, or was opened too recently.
    pub(super) fn try_probe(&mut self, now: Duration) -> bool {
        let is_due = matches!(self.state, BreakerState::Open { until } if now >= until);
        if is_due {
            self.state = BreakerState::Probing { since: now };
        }
        is_due
    }

    /// Begins a probe in place of one that is overdue. Returns `false` if none is overdue.
    ///
    /// A probe is overdue if its task is not polled, as on a current-thread runtime while no caller
    /// blocks on it.
    pub(super) fn try_overdue_probe(&mut self, now: Duration) -> bool {
        let due = match self.state {
            BreakerState::Open { until: time } | BreakerState::Probing { since: time } => time,
            _ => return false,
        };
        let is_overdue = now >= due.saturating_add(self.open_time());
        if is_overdue {
            self.state = BreakerState::Probing { since: now };
        }
        is_overdue
    }

    /// Records the outcome of a call that began at `start` and ended at `now`. `random` spreads the
    /// probes of several instances.
    pub(super) fn record(
        &mut self,
        now: Duration,
        (permission, start): (Permission, Duration),
        outcome: CallOutcome,
        random: impl FnOnce() -> u64,
    ) {
        self.advance(now);
        match (self.state, permission) {
            (BreakerState::Probing { .. }, Permission::Probe) => {
                self.record_probe(now, outcome, random)
            }
            (
                BreakerState::Closed
                | BreakerState::HalfOpen { .. }
                | BreakerState::Recovering { .. },
                _,
            ) if start >= self.trusted_since => {
                if permission == Permission::Limited {
                    self.in_flight = self.in_flight.saturating_sub(1);
                }
                match outcome {
                    CallOutcome::Success => self.record_success(now),
                    CallOutcome::Failure => self.record_failure(now, start, random),
                    CallOutcome::Unknown => {}
                }
            }
            // A call that began before the breaker opened says nothing about the store now.
            _ => {}
        }
    }

    fn record_probe(&mut self, now: Duration, outcome: CallOutcome, random: impl FnOnce() -> u64) {
        match outcome {
            CallOutcome::Success => {
                self.failure_rate = FailureRate::default();
                (self.consecutive, self.in_flight) = (0, 0);
                self.trusted_since = now;
                self.state = BreakerState::HalfOpen { since: now };
            }
            CallOutcome::Failure => self.open(now, random),
            CallOutcome::Unknown => self.state = BreakerState::Open { until: now },
        }
    }

    fn record_success(&mut self, now: Duration) {
        self.consecutive = 0;
        self.failure_rate.count(&self.config, now, false);
        self.state = match self.state {
            BreakerState::HalfOpen { .. } => {
                BreakerState::Recovering { since: now, max_in_flight: 2 }
            }
            // Each success allows one more call in flight, so the number doubles with each round
            // trip.
            BreakerState::Recovering { since, max_in_flight } => {
                BreakerState::Recovering { since, max_in_flight: max_in_flight.saturating_add(1) }
            }
            other => other,
        };
    }

    fn record_failure(&mut self, now: Duration, start: Duration, random: impl FnOnce() -> u64) {
        self.failure_rate.count(&self.config, now, true);
        if self.consecutive == 0 || start >= self.last_failure {
            (self.consecutive, self.last_failure) = (self.consecutive.saturating_add(1), now);
        }
        let max_consecutive = match self.state {
            BreakerState::HalfOpen { .. } => self.config.consecutive.min(MAX_HALF_OPEN_FAILURES),
            _ => self.config.consecutive,
        };
        if self.consecutive >= max_consecutive || self.failure_rate.is_exceeded(&self.config, now) {
            self.open(now, random);
        }
    }

    fn open(&mut self, now: Duration, random: impl FnOnce() -> u64) {
        if !matches!(self.state, BreakerState::Probing { .. }) {
            self.opened_at = now;
        }
        let open = self.open_time();
        let spread = open.mul_f64(0.1 * (random() % 1_000) as f64 / 1_000.0);
        self.state = BreakerState::Open { until: now.saturating_add(open).saturating_add(spread) };
    }

    fn open_time(&self) -> Duration {
        self.config.open.max(MIN_OPEN)
    }
}

impl BreakerState {
    /// Returns the name of this state in events.
    pub(in crate::remote) fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::Probing { .. } | Self::HalfOpen { .. } => "half-open",
            Self::Recovering { .. } => "recovering",
        }
    }

    /// Returns whether nearly all calls are rejected.
    pub(in crate::remote) fn is_open(self) -> bool {
        !matches!(self, Self::Closed | Self::Recovering { .. })
    }
}

/// The number of parts that the window consists of. It slides by one part at a time.
const SLICES: u32 = 10;

/// The numbers of calls and failures in each slice of the window.
#[derive(Debug, Clone, Default)]
struct FailureRate([Slice; SLICES as usize]);

/// The calls that ended in one slice of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    number: u64,
    calls: u32,
    failures: u32,
}

impl FailureRate {
    /// Counts a call that ended at `now`.
    fn count(&mut self, config: &BreakerConfig, now: Duration, failed: bool) {
        let number = slice_number(config, now);
        let slice = &mut self.0[(number % u64::from(SLICES)) as usize];
        if slice.number != number {
            *slice = Slice { number, ..Slice::default() };
        }
        slice.calls = slice.calls.saturating_add(1);
        slice.failures = slice.failures.saturating_add(u32::from(failed));
    }

    /// Returns whether at least [`min_calls`](BreakerConfig::min_calls) calls ended within the
    /// window and at least [`failures_percent`](BreakerConfig::failures_percent) of them failed.
    fn is_exceeded(&self, config: &BreakerConfig, now: Duration) -> bool {
        let newest = slice_number(config, now);
        let recent = self.0.iter().filter(|slice| slice.number + u64::from(SLICES) > newest);
        let (calls, failures) = recent.fold((0_u64, 0_u64), |(calls, failures), slice| {
            (calls + u64::from(slice.calls), failures + u64::from(slice.failures))
        });
        calls >= u64::from(config.min_calls)
            && failures * 100 >= calls * u64::from(config.failures_percent)
    }
}

fn slice_number(config: &BreakerConfig, now: Duration) -> u64 {
    let length = (config.window / SLICES).as_nanos().max(1);
    (now.as_nanos() / length) as u64
}
