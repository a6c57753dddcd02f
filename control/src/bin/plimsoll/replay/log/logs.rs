//! All logs of a replay as one stream.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    Disorder, Entry, LogError, ReadOptions, Skipped,
    source::{Read, Source},
    window::Window,
};

/// All logs of a replay as one stream of requests in the order of time.
///
/// The next line is read of the log whose latest time is the earliest. A request is held until all logs are later than
/// its time by the reorder window, or until the window is full. So the window sorts the lines of one log and merges
/// all logs, and its size bounds the memory. A file is opened when the others have reached its first time.
#[derive(Debug)]
pub(crate) struct Logs {
    sources: Vec<Source>,
    /// The sources that are not open yet, the earliest last.
    pending: Vec<usize>,
    /// The sources that are being read, by the latest time of each.
    active: BinaryHeap<Reverse<(u64, usize)>>,
    window: Window,
    /// The slot of the request that was returned last.
    current: Option<usize>,
    /// The time of the request that was returned last.
    now: u64,
    reorder_micros: u64,
    bytes: Arc<AtomicU64>,
    size: Option<u64>,
    skipped: Skipped,
    disorder: Disorder,
}

impl Logs {
    /// Opens the logs, and finds the format of each. `-` is the standard input.
    ///
    /// # Errors
    ///
    /// Fails if a log cannot be opened, is given twice, or has no format that is known.
    pub(crate) fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<Self, LogError> {
        check_paths(paths, options)?;
        let bytes = Arc::default();
        let mut sources = Vec::with_capacity(paths.len());
        for path in paths {
            sources.extend(Source::open(path, options, &bytes)?);
        }
        let mut pending: Vec<usize> = (0..sources.len()).collect();
        pending.sort_by_key(|source| Reverse((sources[*source].start(), *source)));
        Ok(Self {
            size: sources.iter().map(Source::size).sum(),
            sources,
            pending,
            active: BinaryHeap::new(),
            window: Window::default(),
            current: None,
            now: 0,
            reorder_micros: u64::try_from(options.reorder.as_micros()).unwrap_or(u64::MAX),
            bytes,
            skipped: Skipped::default(),
            disorder: Disorder { whole_seconds: true, ..Disorder::default() },
        })
    }

    /// Returns the next request, or `None` after the last one. [`Entry::at`] never decreases.
    ///
    /// # Errors
    ///
    /// Fails if a log that was readable cannot be opened any more.
    pub(crate) fn next(&mut self) -> Result<Option<&Entry>, LogError> {
        if let Some(slot) = self.current.take() {
            self.window.put_back(slot);
        }
        while !self.is_due() {
            if !self.begin_pending()? {
                break;
            }
            self.read();
        }
        let Some(slot) = self.window.release() else { return Ok(None) };
        self.current = Some(slot);
        let entry = self.window.entry(slot);
        if let Some(late) = self.now.checked_sub(entry.at).filter(|late| *late > 0) {
            self.disorder.late_lines += 1;
            let late = Duration::from_micros(late);
            self.disorder.largest_move = self.disorder.largest_move.max(late);
            entry.at = self.now;
        }
        self.now = entry.at;
        Ok(Some(entry))
    }

    /// Returns the lines that were skipped so far.
    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Returns how far the lines so far were from the order of time.
    pub(crate) fn disorder(&self) -> &Disorder {
        &self.disorder
    }

    /// Returns how many bytes were read, and of how many, if that is known. Bytes of compressed files count as they
    /// are stored.
    pub(crate) fn position(&self) -> (u64, Option<u64>) {
        (self.bytes.load(Relaxed), self.size)
    }

    /// Returns whether no request is expected that is earlier than the earliest of the window.
    fn is_due(&self) -> bool {
        let Some(earliest) = self.window.earliest() else { return false };
        let active = self.active.peek().map(|Reverse((clock, _))| *clock);
        let pending = self.pending.last().map(|source| self.sources[*source].start());
        let Some(reached) = active.into_iter().chain(pending).min() else { return true };
        earliest.saturating_add(self.reorder_micros) <= reached || self.window.is_full()
    }

    /// Opens the pending logs that the active ones have reached. Returns whether there is a log to read.
    fn begin_pending(&mut self) -> Result<bool, LogError> {
        while let Some(source) = self.pending.last().copied() {
            let start = self.sources[source].start();
            if self.active.peek().is_some_and(|Reverse((clock, _))| *clock <= start) {
                break;
            }
            self.sources[source].begin(&self.bytes)?;
            self.pending.pop();
            self.active.push(Reverse((start, source)));
            self.disorder.overlapping_files =
                self.disorder.overlapping_files.max(self.active.len());
        }
        Ok(!self.active.is_empty())
    }

    /// Reads a line of the log whose latest time is the earliest.
    fn read(&mut self) {
        let Some(mut active) = self.active.peek_mut() else { return };
        let Reverse((clock, source)) = &mut *active;
        let source = &mut self.sources[*source];
        let (slot, entry) = self.window.slot();
        match source.read(entry) {
            Read::Request => {
                let at = entry.at;
                self.disorder.count(at, clock);
                self.window.hold(slot);
                return;
            }
            Read::Nothing => {}
            Read::Skipped(reason) => {
                self.skipped.count(source.name(), source.line_number(), reason, &entry.line);
            }
            Read::Cut(reason) => {
                self.skipped.cut_files.push((source.name().to_owned(), reason));
                source.end();
                std::collections::binary_heap::PeekMut::pop(active);
            }
            Read::End => {
                source.end();
                std::collections::binary_heap::PeekMut::pop(active);
            }
        }
        self.window.put_back(slot);
    }
}

/// Refuses files that are given twice, and corrections of clocks of other files.
fn check_paths(paths: &[PathBuf], options: &ReadOptions) -> Result<(), LogError> {
    let mut known = Vec::new();
    for path in paths {
        let file = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if known.contains(&file) {
            return Err(LogError::Twice { file: path.display().to_string() });
        }
        known.push(file);
    }
    for shift in &options.shifts {
        if !paths.contains(&shift.file) {
            let file = shift.file.display().to_string();
            let reason = "its clock is corrected, and it is none of the logs".to_owned();
            return Err(LogError::Options { file, reason });
        }
    }
    Ok(())
}
