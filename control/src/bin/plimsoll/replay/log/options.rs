//! The options of reading.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use super::{format::Format, roles::Role, time::TimeZone};

/// The options of reading logs.
#[derive(Debug, Clone)]
pub(crate) struct ReadOptions {
    /// The format of all files. Without it, the first lines of each file say its format.
    pub(crate) format: Option<Format>,
    /// The name of the field with the time, in place of the common names. The other names are alike.
    pub(crate) time_field: Option<String>,
    pub(crate) ip_field: Option<String>,
    pub(crate) method_field: Option<String>,
    pub(crate) path_field: Option<String>,
    pub(crate) host_field: Option<String>,
    pub(crate) status_field: Option<String>,
    pub(crate) bytes_field: Option<String>,
    /// The zone of times that are written without one.
    pub(crate) time_zone: TimeZone,
    /// The reorder window: lines that are out of order by less are sorted.
    pub(crate) reorder: Duration,
    /// Corrections of the clocks of files.
    pub(crate) shifts: Vec<Shift>,
}

/// A correction of the clock of a file: `web-2.log=+1.5s` adds 1.5 seconds to its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(super) file: PathBuf,
    pub(super) micros: i64,
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

impl ReadOptions {
    /// Returns the name that is given for a role.
    pub(super) fn field_of(&self, role: Role) -> Option<&str> {
        let field = match role {
            Role::Time => &self.time_field,
            Role::Ip => &self.ip_field,
            Role::Request => &None,
            Role::Method => &self.method_field,
            Role::Target => &self.path_field,
            Role::Host => &self.host_field,
            Role::Status => &self.status_field,
            Role::Bytes => &self.bytes_field,
        };
        field.as_deref()
    }

    /// Returns the correction of a file in microseconds.
    pub(super) fn shift_of(&self, path: &Path) -> i64 {
        self.shifts.iter().filter(|shift| shift.file == path).map(|shift| shift.micros).sum()
    }
}

impl Shift {
    fn parse(text: &str) -> Option<Self> {
        let (file, shift) = text.rsplit_once('=')?;
        let (sign, time) = match shift.strip_prefix('+') {
            Some(time) => (1, time),
            None => (-1, shift.strip_prefix('-')?),
        };
        let time = humantime::parse_duration(time).ok()?;
        let micros = i64::try_from(time.as_micros()).ok()?;
        Some(Self { file: file.into(), micros: sign * micros })
    }
}

impl FromStr for Shift {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = "allowed is FILE=+TIME or FILE=-TIME, such as web-2.log=-1s500ms";
        Self::parse(text).ok_or_else(|| format!("{text:?} corrects no clock; {allowed}"))
    }
}
