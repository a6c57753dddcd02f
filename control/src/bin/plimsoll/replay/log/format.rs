//! The formats of logs.

use std::str::FromStr;

/// The format of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Common and combined log format.
    Combined,
    /// The default text format of Envoy.
    Envoy,
    /// AWS application load balancers.
    Alb,
    /// JSON lines.
    Json,
    /// CSV with a header line.
    Csv,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}
