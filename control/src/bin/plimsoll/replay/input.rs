//! Passes over the logs, with a progress bar, until the end or an interrupt.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::{consts::SIGINT, flag};

use super::log::{Disorder, Entry, Filter, LogError, Logs, ReadOptions, Skipped};

/// The number of requests between two updates of the progress bar.
const STEP: u64 = 4_096;

/// The logs of a replay.
pub(super) struct Input {
    logs: Vec<PathBuf>,
    options: ReadOptions,
    filter: Option<Filter>,
    is_interrupted: Arc<AtomicBool>,
}

/// The findings of one pass beside its requests.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// The times of the first and of the last request, in microseconds since the epoch.
    pub(super) span: Option<(u64, u64)>,
    pub(super) requests: u64,
    /// The requests that the filter has left out.
    pub(super) filtered: u64,
    /// The requests that the service answered with status 429.
    pub(super) answered_429: u64,
    pub(super) skipped: Skipped,
    pub(super) disorder: Disorder,
}

impl Input {
    /// Creates the input, and from now on takes the first interrupt (Ctrl-C) as the end of the logs. The second one
    /// ends the program.
    pub(super) fn new(
        logs: Vec<PathBuf>,
        options: ReadOptions,
        filter: Option<Filter>,
    ) -> io::Result<Self> {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&is_interrupted))?;
        flag::register(SIGINT, Arc::clone(&is_interrupted))?;
        Ok(Self { logs, options, filter, is_interrupted })
    }

    /// Returns whether the logs can be read more than once: all of them are files.
    pub(super) fn is_repeatable(&self) -> bool {
        self.logs.iter().all(|path| path.is_file())
    }

    /// Returns whether an interrupt has ended a pass.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Relaxed)
    }

    /// Returns the names of the logs.
    pub(super) fn names(&self) -> Vec<String> {
        self.logs.iter().map(|path| path.display().to_string()).collect()
    }

    /// Reads all requests once.
    ///
    /// # Errors
    ///
    /// Returns the error of a log that cannot be read, or the first error of `visit`.
    pub(super) fn read<E: From<LogError>>(
        &self,
        purpose: &str,
        mut visit: impl FnMut(&Entry) -> Result<(), E>,
    ) -> Result<Pass, E> {
        let mut logs = Logs::open(&self.logs, &self.options)?;
        let mut pass = Pass::default();
        let bar = bar(purpose, logs.position().1);
        let mut lines = 0_u64;
        loop {
            if self.is_interrupted() {
                break;
            }
            if lines.is_multiple_of(STEP) {
                show(&bar, lines, logs.position().0);
            }
            let Some(entry) = logs.next()? else { break };
            lines += 1;
            if self.filter.as_ref().is_some_and(|filter| !filter.matches(entry)) {
                pass.filtered += 1;
                continue;
            }
            pass.requests += 1;
            pass.answered_429 += u64::from(entry.status() == Some(429));
            let first = pass.span.map_or(entry.at(), |(first, _)| first);
            pass.span = Some((first, entry.at()));
            visit(entry)?;
        }
        bar.finish_and_clear();
        pass.skipped = logs.skipped().clone();
        pass.disorder = logs.disorder().clone();
        Ok(pass)
    }
}

/// Returns a progress bar on the standard error output. It is hidden if that is no terminal.
fn bar(purpose: &str, bytes: Option<u64>) -> ProgressBar {
    let (bar, form) = match bytes {
        Some(bytes) => {
            (ProgressBar::new(bytes), "{msg} {wide_bar} {percent}% {prefix}, {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{msg} {spinner} {bytes} {prefix}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    // The forms are valid. If one were not, the bar of the library would stay.
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.set_message(purpose.to_owned());
    bar
}

fn show(bar: &ProgressBar, lines: u64, bytes: u64) {
    let elapsed = bar.elapsed().max(Duration::from_millis(1));
    bar.set_prefix(format!("{:.0} lines/s", lines as f64 / elapsed.as_secs_f64()));
    bar.set_position(bytes);
}
