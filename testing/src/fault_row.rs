//! A row of the table of faults in docs/faults.md.

use std::{io::Write, time::Duration};

/// The deadline of a check, and what timers and a calm machine add.
const BAR: Duration = Duration::from_millis(55);

/// The effects of one fault on a process. [`print`](Self::print) prints the row past the capture of the test
/// harness, for `./scripts/faults` to collect.
#[derive(Debug, Clone)]
pub struct FaultRow {
    /// The part that fails and how, such as `Redis: SIGKILL, then a restart without data`. The table
    /// is sorted by it.
    pub fault: String,
    /// The duration of each request.
    pub waits: Vec<Duration>,
    /// The durations of the requests that were sent at the same time and needed no limiter.
    pub control: Vec<Duration>,
    /// Requests without an answer, or with a server error.
    pub errors: usize,
    pub admitted: u64,
    /// The most units that may be admitted, as docs/resilience.md says.
    pub bound: u64,
    /// From the fault's end until the store decides each check again, if it is measured.
    pub recovery: Option<Duration>,
}

impl FaultRow {
    pub fn print(&self) {
        let Self { fault, errors, admitted, bound, .. } = self;
        let with_control = |figure: fn(&[Duration]) -> String| match self.control.is_empty() {
            true => figure(&self.waits),
            false => format!("{} ({})", figure(&self.waits), figure(&self.control)),
        };
        let recovery = self.recovery.map_or("not measured".to_owned(), |recovery| {
            format!("{:.0} ms", recovery.as_secs_f64() * 1e3)
        });
        let row = format!(
            "fault\t{fault}\t{}\t{}\t{}\t{errors}\t{admitted} of {bound}\t{recovery}\n",
            self.waits.len(),
            with_control(worst),
            with_control(over)
        );
        std::io::stderr().write_all(row.as_bytes()).expect("stderr");
    }
}

/// Returns the longest wait.
fn worst(waits: &[Duration]) -> String {
    let worst = waits.iter().max().copied().unwrap_or_default();
    format!("{:.0} ms", worst.as_secs_f64() * 1e3)
}

/// Returns the share of waits over 55 ms.
fn over(waits: &[Duration]) -> String {
    let over = waits.iter().filter(|wait| **wait > BAR).count();
    format!("{:.2}%", 100.0 * over as f64 / waits.len().max(1) as f64)
}
