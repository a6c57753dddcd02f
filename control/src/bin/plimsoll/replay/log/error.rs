//! The errors of logs that cannot be read.

use std::{error::Error, fmt, io};

use super::Format;

/// The error of a log that cannot be read at all. A line that cannot be read is skipped and counted instead.
#[derive(Debug)]
pub(crate) enum LogError {
    /// A file cannot be opened or read.
    Io { file: String, error: io::Error },
    /// The first lines of a file have no known format.
    UnknownFormat { file: String, line: String },
    /// The same file is given twice.
    Twice { file: String },
    /// The options do not fit the file.
    Options { file: String, reason: String },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, error } => write!(f, "{file} cannot be read: {error}"),
            Self::UnknownFormat { file, line } => {
                let allowed = Format::names();
                writeln!(f, "{file} has no format that is known; its first line is \"{line}\"")?;
                write!(f, "allowed for --format is {allowed}; the fields of JSON and CSV ")?;
                f.write_str("are given with --time-field, --ip-field and so on")
            }
            Self::Twice { file } => write!(f, "{file} is given twice"),
            Self::Options { file, reason } => write!(f, "{file}: {reason}"),
        }
    }
}

impl Error for LogError {}

/// Returns the begin of a line, printable.
pub(super) fn printable(line: &[u8]) -> String {
    const SHOWN: usize = 100;
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
