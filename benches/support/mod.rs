//! Support for the benchmarks: times two sides in turns, and prints one row for each pair.
//!
//! A machine's speed drifts by more than the differences of interest. So both sides run in short
//! rounds, one right after the other and in alternating order, and the report is the median of the
//! rounds' ratios.
#![allow(dead_code, reason = "each benchmark uses a part")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

pub(crate) mod keys;

/// The time for which one side runs in one round.
const ROUND: Duration = Duration::from_millis(2);

/// The result of many rounds: medians, and the quartiles of the ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparison {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) ratio: f64,
    pub(crate) quartiles: (f64, f64),
}

/// The bar for a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    AtMost(f64),
    AtLeast(f64),
    /// Shown, not judged.
    Open,
}

/// Times `ours` and `theirs`, in nanoseconds a call.
pub(crate) fn compare(
    rounds: usize,
    mut ours: impl FnMut(),
    mut theirs: impl FnMut(),
) -> Comparison {
    let (calls_of_ours, calls_of_theirs) = (calls(&mut ours), calls(&mut theirs));
    compare_rounds(rounds, || time(calls_of_ours, &mut ours), || time(calls_of_theirs, &mut theirs))
}

/// As [`compare`], for sides that time a round themselves.
pub(crate) fn compare_rounds(
    rounds: usize,
    mut ours: impl FnMut() -> f64,
    mut theirs: impl FnMut() -> f64,
) -> Comparison {
    let pairs: Vec<(f64, f64)> = (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                let first = ours();
                (first, theirs())
            } else {
                let first = theirs();
                (ours(), first)
            }
        })
        .collect();
    let ratio = |at| quantile(pairs.iter().map(|(ours, theirs)| ours / theirs), at);
    Comparison {
        ours: quantile(pairs.iter().map(|pair| pair.0), 0.5),
        theirs: quantile(pairs.iter().map(|pair| pair.1), 0.5),
        ratio: ratio(0.5),
        quartiles: (ratio(0.25), ratio(0.75)),
    }
}

/// Prints one row of the table.
pub(crate) fn row(what: &str, unit: &str, comparison: Comparison, bar: Bar) {
    let Comparison { ours, theirs, ratio, quartiles: (low, high) } = comparison;
    let (bar, verdict) = judge(ratio, bar);
    println!(
        "{what:<58} {ours:>8.1} {theirs:>8.1} {unit:<6} {ratio:>5.2} [{low:>5.2}, {high:>5.2}] {bar:>7} {verdict}"
    );
}

/// Prints one row for a figure that has nothing to be compared with.
pub(crate) fn figure(what: &str, unit: &str, value: f64, bar: Bar) {
    let (bar, verdict) = judge(value, bar);
    println!("{what:<58} {value:>8.1} {:>8} {unit:<6} {:>20} {bar:>7} {verdict}", "-", "");
}

/// Prints the title and the names of the columns.
pub(crate) fn heading(title: &str) {
    println!("\n{title}");
    println!(
        "{:<58} {:>8} {:>8} {:<6} {:>5} {:<14} {:>7}",
        "", "ours", "theirs", "", "ratio", "[quartiles]", "bar"
    );
}

/// Returns whether Cargo asked for measurements: `cargo test` runs each benchmark once, too.
pub(crate) fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Returns the output of a future that is ready at once, such as a check of the embedded store. It is
/// inlined into its caller, as an `await` is.
#[inline(always)]
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the embedded store answers at the first poll"),
    }
}

pub(crate) fn time(calls: u64, call: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Returns the number of calls that fill a round, after a warm-up.
fn calls(call: &mut impl FnMut()) -> u64 {
    let mut calls = 1;
    loop {
        let took = time(calls, call) * calls as f64;
        if took >= ROUND.as_nanos() as f64 / 2.0 {
            let fitting = calls as f64 * ROUND.as_nanos() as f64 / took;
            return (fitting as u64).max(1);
        }
        calls *= 2;
    }
}

fn judge(value: f64, bar: Bar) -> (String, &'static str) {
    let verdict = |met| if met { "ok" } else { "MISS" };
    match bar {
        Bar::AtMost(most) => (format!("<= {most}"), verdict(value <= most)),
        Bar::AtLeast(least) => (format!(">= {least}"), verdict(value >= least)),
        Bar::Open => (String::new(), ""),
    }
}

fn quantile(values: impl Iterator<Item = f64>, at: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at).round() as usize]
}
