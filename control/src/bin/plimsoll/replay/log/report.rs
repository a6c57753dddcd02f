//! Findings of reading beside the requests.

use std::time::Duration;

use super::error::printable;

/// The number of skipped lines that are kept.
const KEPT_LINES: usize = 5;

/// The lines that were skipped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Skipped {
    /// The number of lines that could not be read.
    pub(crate) lines: u64,
    /// The first of them.
    pub(crate) first: Vec<SkippedLine>,
    /// Files that end inside their compressed data, with the cause. Their lines before it are read.
    pub(crate) cut_files: Vec<(String, String)>,
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkippedLine {
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: u64,
    pub(crate) reason: &'static str,
    /// The begin of the line, printable.
    pub(crate) text: String,
}

/// The distance of the lines from the order of time, and the handling of the clocks of several files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disorder {
    /// Lines that are earlier than one before in the same file.
    pub(crate) backward_lines: u64,
    /// The largest step back of them.
    pub(crate) largest_step: Duration,
    /// Lines that were earlier than the reorder window reaches. They count at the time of the request before.
    pub(crate) late_lines: u64,
    /// The farthest move of one of them.
    pub(crate) largest_move: Duration,
    /// The most files that had requests in the same span of time. Their clocks are taken as they are, but for the
    /// corrections of the options.
    pub(crate) overlapping_files: usize,
    /// True if all times are whole seconds, so that the order within a second is the order of the lines.
    pub(crate) whole_seconds: bool,
}

impl Skipped {
    /// Counts a line, and keeps it if it is one of the first.
    pub(super) fn count(&mut self, file: &str, line: u64, reason: &'static str, text: &str) {
        self.lines += 1;
        if self.first.len() < KEPT_LINES {
            let text = printable(text.as_bytes());
            self.first.push(SkippedLine { file: file.to_owned(), line, reason, text });
        }
    }
}

impl Disorder {
    /// Counts a line of a file whose latest time is `clock`, and sets the clock forward.
    pub(super) fn count(&mut self, at: u64, clock: &mut u64) {
        if at < *clock {
            self.backward_lines += 1;
            self.largest_step = self.largest_step.max(Duration::from_micros(*clock - at));
        }
        *clock = at.max(*clock);
        self.whole_seconds &= at.is_multiple_of(1_000_000);
    }
}
