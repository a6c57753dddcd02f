//! The figures of a run, computed from its samples.

use std::{fmt, time::Duration};

use crate::{
    load::{KEYS, Sample},
    server::{INSTANCES, LIMIT},
};
use plimsoll_testing::fault_row::FaultRow;

/// Quantiles of the durations of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Waits {
    pub(crate) fn of(samples: impl IntoIterator<Item = Duration>) -> Self {
        let mut waits: Vec<Duration> = samples.into_iter().collect();
        waits.sort_unstable();
        let quantile = |percent: usize| waits[(waits.len() - 1) * percent / 100];
        Self { p50: quantile(50), p99: quantile(99), max: quantile(100) }
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |wait: Duration| wait.as_secs_f64() * 1e3;
        let [p50, p99, max] = [self.p50, self.p99, self.max].map(millis);
        write!(f, "{p50:.1} / {p99:.1} / {max:.1} ms")
    }
}

/// The effects of one fault. Times of the run are in microseconds since the epoch.
pub(crate) struct Figures {
    /// The same figures as a row of the table of faults.
    pub(crate) row: FaultRow,
    pub(crate) requests: usize,
    pub(crate) server: Waits,
    pub(crate) control: Waits,
    /// Requests that failed because of the fault: no answer, or one with a server error.
    pub(crate) errors: usize,
    pub(crate) admitted: u64,
    /// Checks decided without Redis.
    pub(crate) fell_back: usize,
    /// True if no check may be decided without Redis.
    pub(crate) is_unnoticed: bool,
    /// Units beyond the limits, which the local shares have admitted.
    pub(crate) beyond: u64,
    /// Units beyond the stated bound.
    pub(crate) wrong: u64,
    /// From the fault to the first decision without Redis.
    pub(crate) degraded: Option<Duration>,
    /// From the fault's end to the last decision without Redis.
    pub(crate) recovered: Duration,
}

impl Figures {
    /// `lives` is the number of times that Redis started without data, the first start included.
    pub(crate) fn of(
        fault: &str,
        [server, control]: &[Vec<Sample>; 2],
        began: u64,
        ended: u64,
        lives: u64,
    ) -> Self {
        let mut admitted = [0_u64; KEYS as usize];
        for sample in server.iter().filter(|sample| sample.status == 200) {
            admitted[sample.key as usize] += 1;
        }
        // In the few seconds of a run, less than one unit comes back.
        let beyond =
            |bound: u64| admitted.iter().map(|units: &u64| units.saturating_sub(bound)).sum();
        let fell_back = |sample: &&Sample| sample.source == "fallback";
        let degraded = server.iter().filter(|it| it.due >= began).find(fell_back);
        let last = server.iter().rfind(fell_back);
        let since = |time: u64, from: u64| Duration::from_micros(time.saturating_sub(from));
        let bound = LIMIT * lives + LIMIT / u64::from(INSTANCES) + 1;
        let took = |samples: &[Sample]| samples.iter().map(|sample| sample.took).collect();
        let recovered = last.map_or(Duration::ZERO, |last| since(last.due, ended));
        let row = FaultRow {
            fault: fault.to_owned(),
            waits: took(server),
            control: took(control),
            errors: server.iter().filter(|it| !matches!(it.status, 200 | 429)).count(),
            admitted: admitted.iter().sum(),
            bound: bound * KEYS,
            recovery: Some(recovered),
        };
        Self {
            requests: server.len(),
            server: Waits::of(row.waits.iter().copied()),
            control: Waits::of(row.control.iter().copied()),
            errors: row.errors,
            admitted: row.admitted,
            fell_back: server.iter().filter(fell_back).count(),
            is_unnoticed: false,
            beyond: beyond(LIMIT + 1),
            wrong: beyond(bound),
            degraded: degraded.map(|it| since(it.due + it.took.as_micros() as u64, began)),
            recovered,
            row,
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, server, control, errors, fell_back, admitted, beyond, wrong, .. } =
            self;
        write!(
            f,
            "{requests} requests, p50 / p99 / max {server}, control {control}, {errors} errors, \
             {fell_back} checks without Redis, \
             {admitted} units admitted, {beyond} beyond the limits, {wrong} beyond the bound, "
        )?;
        match self.degraded {
            Some(degraded) => write!(f, "degraded after {degraded:.0?}, ")?,
            None => write!(f, "never degraded, ")?,
        }
        write!(f, "recovered {:.0?} after the end", self.recovered)
    }
}
