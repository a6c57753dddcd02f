//! The lines of a stream, in bounded memory.

use std::{
    io::{self, Read},
    ops::Range,
};

use memchr::{memchr, memchr_iter};

/// The longest line that is read.
pub(super) const MAX_LINE_BYTES: usize = 256 * 1024;

/// A line of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A line without its end.
    Text(&'a [u8]),
    /// The begin of a line that is too long.
    TooLong(&'a [u8]),
}

/// The lines of a stream, read into one buffer of the size of the longest line.
pub(super) struct Lines {
    stream: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The number of the last line, from 1.
    number: u64,
    is_over: bool,
    /// The error of the stream, which the lines before it hide.
    failure: Option<io::Error>,
}

impl Lines {
    pub(super) fn new(stream: Box<dyn Read + Send>) -> Self {
        let buffer = vec![0; MAX_LINE_BYTES];
        Self { stream, buffer, start: 0, end: 0, number: 0, is_over: false, failure: None }
    }

    /// Returns the number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the first `count` lines without reading them, or fewer if the stream or the buffer ends before.
    pub(super) fn head(&mut self, count: usize) -> io::Result<&[u8]> {
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(last) = memchr_iter(b'\n', held).nth(count - 1) {
                return Ok(without_mark(&self.buffer[self.start..self.start + last]));
            }
            if !self.fill() {
                break;
            }
        }
        if self.start == self.end
            && let Some(error) = self.failure.take()
        {
            return Err(error);
        }
        Ok(without_mark(&self.buffer[self.start..self.end]))
    }

    /// Returns the next line, or `None` at the end of the stream.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        loop {
            let held = &self.buffer[self.start..self.end];
            if let Some(found) = memchr(b'\n', &held[searched..]) {
                let start = self.start;
                let end = start + searched + found;
                self.start = end + 1;
                self.number += 1;
                return Ok(Some(self.text(start..end)));
            }
            searched = held.len();
            if self.fill() {
                continue;
            }
            if searched == self.buffer.len() {
                return Ok(Some(self.skip_line()));
            }
            // The rest of a stream that fails is a part of a line.
            if let Some(error) = self.failure.take() {
                self.start = self.end;
                return Err(error);
            }
            if searched == 0 {
                return Ok(None);
            }
            // The last line has no end.
            let start = self.start;
            self.start = self.end;
            self.number += 1;
            return Ok(Some(self.text(start..self.end)));
        }
    }

    /// Returns a line without its return, and the first line without its byte order mark.
    fn text(&self, range: Range<usize>) -> Line<'_> {
        let line = &self.buffer[range];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        Line::Text(if self.number == 1 { without_mark(line) } else { line })
    }

    /// Reads more of the stream. Returns false at its end, if it fails, or if the buffer is full.
    fn fill(&mut self) -> bool {
        if self.end == self.buffer.len() && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while !self.is_over && self.end < self.buffer.len() {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.is_over = true,
                Ok(read) => {
                    self.end += read;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_over = true;
                    self.failure = Some(error);
                }
            }
        }
        false
    }

    /// Skips the rest of a line that fills the buffer. Keeps its begin.
    fn skip_line(&mut self) -> Line<'_> {
        const KEPT: usize = 1_024;
        self.number += 1;
        self.end = KEPT;
        self.start = KEPT;
        while self.fill() {
            if let Some(found) = memchr(b'\n', &self.buffer[KEPT..self.end]) {
                self.start = KEPT + found + 1;
                break;
            }
            self.end = KEPT;
        }
        Line::TooLong(&self.buffer[..KEPT])
    }
}

fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text)
}
