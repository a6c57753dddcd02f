//! All logs of a replay as one stream.

use std::path::PathBuf;

use super::{Disorder, Entry, LogError, ReadOptions, Skipped};

/// All logs of a replay as one stream of requests in the order of time.
#[derive(Debug)]
pub(crate) struct Logs {
    skipped: Skipped,
    disorder: Disorder,
    current: Entry,
}

impl Logs {
    /// Opens the logs, and finds the format of each. `-` is the standard input.
    pub(crate) fn open(_paths: &[PathBuf], _options: &ReadOptions) -> Result<Self, LogError> {
        Ok(Self {
            skipped: Skipped::default(),
            disorder: Disorder::default(),
            current: Entry::default(),
        })
    }

    /// Returns the next request, or `None` after the last one. [`Entry::at`] never decreases.
    pub(crate) fn next(&mut self) -> Result<Option<&Entry>, LogError> {
        Ok(None)
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
        (0, None)
    }
}
