//! Finds the format of a file by its first lines.

use super::{Entry, Format, ReadOptions, parse::Parser};

/// The format of a file, as its first lines show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Detected {
    pub(super) format: Format,
    /// The number of lines that have it.
    lines: usize,
    /// True if one of them has a part of a request.
    pub(super) has_requests: bool,
    /// The earliest time of them.
    pub(super) earliest: u64,
}

impl Detected {
    /// Finds the format that most of these lines have. The options may give the format: then it is read for the times.
    pub(super) fn of<'a>(
        lines: impl Iterator<Item = &'a [u8]> + Clone,
        options: &ReadOptions,
    ) -> Option<Self> {
        let mut best: Option<Self> = None;
        for format in Format::all().filter(|it| options.format.is_none_or(|given| given == *it)) {
            let found = Self::by(format, lines.clone(), options);
            if found.lines > best.map_or(0, |it| it.lines) {
                best = Some(found);
            }
        }
        best
    }

    /// Reads the lines in a format.
    fn by<'a>(
        format: Format,
        lines: impl Iterator<Item = &'a [u8]>,
        options: &ReadOptions,
    ) -> Self {
        let mut parser = Parser::new(format, options);
        let mut entry = Entry::default();
        let mut found = Self { format, lines: 0, has_requests: false, earliest: u64::MAX };
        for line in lines {
            if parser.parse(line, &mut entry) == Ok(true) {
                found.lines += 1;
                found.has_requests |= entry.has_request();
                found.earliest = found.earliest.min(entry.at());
            }
        }
        found
    }
}
