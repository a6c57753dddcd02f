//! The formats of logs.

use std::str::FromStr;

/// The format of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Common and combined log format, of nginx and Apache.
    Combined,
    /// The default text format of Envoy, and of Istio.
    Envoy,
    /// The access logs of AWS application load balancers.
    Alb,
    /// JSON lines: of nginx, Caddy, Envoy, or with named fields.
    Json,
    /// CSV with a header line.
    Csv,
}

/// The names of each format. Of formats that fit a file equally well, the first is taken.
const FORMATS: &[(Format, &[&str])] = &[
    (Format::Json, &["json", "nginx-json", "caddy", "envoy-json"]),
    (Format::Alb, &["alb"]),
    (Format::Envoy, &["envoy", "istio"]),
    (Format::Combined, &["combined", "common", "nginx", "apache"]),
    (Format::Csv, &["csv"]),
];

impl Format {
    /// Returns all formats. Of formats that fit a file equally well, the first is taken.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(|(format, _)| *format)
    }

    /// Returns the names of all formats.
    pub(super) fn names() -> String {
        let names = FORMATS.iter().flat_map(|(_, names)| names.iter().copied());
        names.collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = FORMATS.iter().find(|(_, names)| names.contains(&text));
        let found = found.map(|(format, _)| *format);
        found.ok_or_else(|| format!("{text:?} is no format; allowed is {}", Self::names()))
    }
}
