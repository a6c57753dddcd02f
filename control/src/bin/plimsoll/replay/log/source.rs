//! One log of a replay.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use super::{
    Entry, LogError, ReadOptions,
    detect::Detected,
    error::printable,
    input,
    lines::{Line, Lines},
    parse::Parser,
};

/// The number of lines by which the format of a file is found.
const HEAD_LINES: usize = 32;

/// One log: a file, or the standard input.
pub(super) struct Source {
    path: PathBuf,
    /// The name in messages.
    name: String,
    parser: Parser,
    /// Open files are the logs that are being read. Before that, only streams are open, which cannot be opened twice.
    lines: Option<Lines>,
    /// True if a line without any part of a request is skipped, such as a message of the server between its requests. A
    /// log of other events has none at all.
    requires_request: bool,
    /// The earliest time of the first lines.
    start: u64,
    /// Microseconds that are added to each time.
    shift: i64,
    /// The bytes of the file, if it is one.
    size: Option<u64>,
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A request, which the entry has.
    Request,
    /// No request: an empty line, or the header line of CSV.
    Nothing,
    /// A line that cannot be read, with the reason.
    Skipped(&'static str),
    /// The end of the log.
    End,
    /// The end of what can be read, with the reason.
    Cut(String),
}

impl Source {
    /// Opens a log and finds its format. Returns `None` for an empty one.
    pub(super) fn open(
        path: &Path,
        options: &ReadOptions,
        bytes: &Arc<AtomicU64>,
    ) -> Result<Option<Self>, LogError> {
        let name =
            if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
        let failed = |error| LogError::Io { file: name.clone(), error };
        let metadata = fs::metadata(path).ok().filter(|_| path != Path::new("-"));
        if metadata.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let size = metadata.filter(fs::Metadata::is_file).map(|it| it.len());
        // A file is opened again when its requests are due, so that a year of files is not open at once.
        let count = if size.is_some() { Arc::default() } else { bytes.clone() };
        let mut lines = Lines::new(input::open(path, count).map_err(failed)?);
        let head = match lines.head(HEAD_LINES) {
            Ok(head) => head,
            Err(error) => return Err(failed(error)),
        };
        let texts =
            head.split(|it| *it == b'\n').map(<[u8]>::trim_ascii).filter(|it| !it.is_empty());
        let Some(first) = texts.clone().next() else { return Ok(None) };
        let detected = Detected::of(texts, options);
        let Some(format) = detected.map(|it| it.format).or(options.format) else {
            let line = printable(first);
            return Err(LogError::UnknownFormat { file: name, line });
        };
        // The times of a file without a request among its first lines begin at zero, so that it is read at once.
        let start = detected.map_or(0, |it| it.earliest);
        let shift = options.shift_of(path);
        Ok(Some(Self {
            path: path.to_owned(),
            parser: Parser::new(format, options),
            lines: size.is_none().then_some(lines),
            requires_request: detected.is_some_and(|it| it.has_requests),
            start: start.saturating_add_signed(shift),
            shift,
            size,
            name,
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the earliest time of the first lines.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the bytes of the file, if it is one.
    pub(super) fn size(&self) -> Option<u64> {
        self.size
    }

    /// Returns the number of the last line, from 1.
    pub(super) fn line_number(&self) -> u64 {
        self.lines.as_ref().map_or(0, Lines::number)
    }

    /// Begins to read the log.
    pub(super) fn begin(&mut self, bytes: &Arc<AtomicU64>) -> Result<(), LogError> {
        if self.lines.is_none() {
            let stream = input::open(&self.path, bytes.clone());
            let stream = stream.map_err(|error| LogError::Io { file: self.name.clone(), error })?;
            self.lines = Some(Lines::new(stream));
        }
        Ok(())
    }

    /// Closes the log.
    pub(super) fn end(&mut self) {
        self.lines = None;
    }

    /// Reads a line into an entry. A line that is skipped is left in it.
    pub(super) fn read(&mut self, entry: &mut Entry) -> Read {
        let Some(lines) = &mut self.lines else { return Read::End };
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Read::End,
            Err(error) => return Read::Cut(error.to_string()),
        };
        let text = match line {
            Line::Text(text) => text,
            Line::TooLong(begin) => {
                entry.begin(begin);
                return Read::Skipped("the line is longer than 256 KiB");
            }
        };
        if text.trim_ascii().is_empty() {
            return Read::Nothing;
        }
        match self.parser.parse(text, entry) {
            Ok(true) if self.requires_request && !entry.has_request() => {
                Read::Skipped("no part of a request")
            }
            Ok(true) => {
                entry.at = entry.at.saturating_add_signed(self.shift);
                Read::Request
            }
            Ok(false) => Read::Nothing,
            Err(reason) => Read::Skipped(reason),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("parser", &self.parser).finish()
    }
}
