//! Texts of a certain form.

use std::time::Duration;

use http::{HeaderName, Method};
use serde::Deserialize;

/// A route: `/path`, or `METHOD /path`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String", expecting = "a route")]
pub(in crate::config) struct Route(pub(in crate::config) String);

impl TryFrom<String> for Route {
    type Error = String;

    /// Accepts what [`plimsoll::route::is`] accepts.
    fn try_from(text: String) -> Result<Self, String> {
        let (method, path) =
            text.split_once(' ').map_or((None, &*text), |(method, path)| (Some(method), path));
        let is_method = |method: &str| {
            let lower = method.bytes().any(|byte| byte.is_ascii_lowercase());
            !lower && method.parse::<Method>().is_ok()
        };
        let in_path = |byte: u8| byte > b' ' && !matches!(byte, b'?' | b'#' | 0x7f);
        if method.is_none_or(is_method) && path.starts_with('/') && path.bytes().all(in_path) {
            return Ok(Self(text));
        }
        Err(format!("the route is {text:?}, allowed is \"/path\" or \"METHOD /path\""))
    }
}

/// The name of a header, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::config) struct HeaderText(pub(in crate::config) HeaderName);

impl TryFrom<String> for HeaderText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        HeaderName::from_bytes(text.as_bytes()).map(Self).map_err(|_| {
            format!(
                "the header name is {text:?}, allowed is a text of letters, digits and \
                 !#$%&'*+-.^_`|~"
            )
        })
    }
}

/// A duration of at most one hour: a whole number and `ms`, `s`, `min` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::config) struct Time(pub(in crate::config) Duration);

impl Time {
    const MAX: Duration = Duration::from_secs(3_600);

    fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = text.split_at(digits);
        let millis = match unit.trim_start() {
            "ms" => 1,
            "s" => 1_000,
            "min" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        let time = Duration::from_millis(count.parse::<u64>().ok()?.checked_mul(millis)?);
        (time <= Self::MAX).then_some(Self(time))
    }
}

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| {
            format!(
                "the time is {text:?}, allowed is a whole number and ms, s, min or h, up to 1h, \
                 such as 50ms"
            )
        })
    }
}
