//! The options of reading.

use std::{path::PathBuf, str::FromStr, time::Duration};

use super::format::Format;

/// How logs are read.
#[derive(Debug, Clone)]
pub(crate) struct ReadOptions {
    /// The format of all files, in place of detection.
    pub(crate) format: Option<Format>,
    /// The names of fields of CSV and JSON, where they are not common names.
    pub(crate) time_field: Option<String>,
    pub(crate) ip_field: Option<String>,
    pub(crate) method_field: Option<String>,
    pub(crate) path_field: Option<String>,
    pub(crate) host_field: Option<String>,
    pub(crate) status_field: Option<String>,
    pub(crate) bytes_field: Option<String>,
    /// The zone of times that are written without one.
    pub(crate) time_zone: TimeZone,
    /// How far lines may be out of order and are still sorted.
    pub(crate) reorder: Duration,
    /// Corrections of the clocks of files.
    pub(crate) shifts: Vec<Shift>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            format: None,
            time_field: None,
            ip_field: None,
            method_field: None,
            path_field: None,
            host_field: None,
            status_field: None,
            bytes_field: None,
            time_zone: TimeZone::default(),
            reorder: Duration::from_secs(10),
            shifts: Vec::new(),
        }
    }
}

/// A fixed offset from UTC: `UTC`, `Z`, `+02:00`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TimeZone {
    pub(super) seconds_east: i32,
}

impl FromStr for TimeZone {
    type Err = String;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}

/// A correction of the clock of a file: `web-2.log=+1.5s` adds 1.5 seconds to its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(super) file: PathBuf,
    pub(super) micros: i64,
}

impl FromStr for Shift {
    type Err = String;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}
