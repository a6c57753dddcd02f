//! The arguments of `plimsoll replay`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use plimsoll::Quota;

use super::log::{CostExpression, Filter, Format, KeyExpression, ReadOptions, Shift, TimeZone};

/// The shortest and the longest window of a recommendation.
const WINDOWS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(400 * 86_400);

#[derive(Debug, Clone, Args)]
pub(crate) struct ReplayArgs {
    /// The logs, also .gz and .zst, merged by time; `-` is the standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(super) logs: Vec<PathBuf>,
    /// Judge by the rules of a configuration file, with its keys, tiers, costs and exemptions.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "cost", "limit", "window"])]
    pub(super) limits: Option<PathBuf>,
    /// The client that is charged: ip, ip/24, header:x-api-key, field:user, or several, such as ip+path.
    #[arg(long, default_value = "ip")]
    pub(super) key: KeyExpression,
    /// The units that a request costs: a number, bytes, or field:NAME.
    #[arg(long, default_value = "1")]
    pub(super) cost: CostExpression,
    /// Only these requests: 'path=/api/* status<500'.
    #[arg(long = "where", value_name = "TERMS")]
    pub(super) filter: Option<Filter>,
    /// A limit to judge, such as 100/min. Repeat it to compare several. Without it, limits are searched.
    #[arg(long, value_name = "QUOTA", value_parser = limit)]
    pub(super) limit: Vec<Quota>,
    /// The window of the searched limits: 1s, 1min, 1h. Repeat it to search several.
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "1min", conflicts_with = "limit")]
    pub(super) window: Vec<Duration>,
    /// Write the report to this file as one HTML page.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Show keys as they are. Without it, a report has a short hash of each.
    #[arg(long)]
    pub(super) show_keys: bool,
    #[command(flatten)]
    pub(super) reading: Reading,
}

/// The options of reading.
#[derive(Debug, Clone, Args)]
pub(super) struct Reading {
    /// The format of all logs: combined, envoy, alb, json or csv. By default it is found.
    #[arg(long)]
    format: Option<Format>,
    /// The field of the time, in CSV and JSON.
    #[arg(long, value_name = "FIELD")]
    time_field: Option<String>,
    /// The field of the address.
    #[arg(long, value_name = "FIELD")]
    ip_field: Option<String>,
    /// The field of the method.
    #[arg(long, value_name = "FIELD")]
    method_field: Option<String>,
    /// The field of the path.
    #[arg(long, value_name = "FIELD")]
    path_field: Option<String>,
    /// The field of the host.
    #[arg(long, value_name = "FIELD")]
    host_field: Option<String>,
    /// The field of the status.
    #[arg(long, value_name = "FIELD")]
    status_field: Option<String>,
    /// The field of the bytes that were sent.
    #[arg(long, value_name = "FIELD")]
    bytes_field: Option<String>,
    /// The zone of times that are written without one: +02:00.
    #[arg(long, value_name = "OFFSET")]
    time_zone: Option<TimeZone>,
    /// The longest time by which lines may be out of order and are still sorted.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "10s")]
    reorder: Duration,
    /// Correct the clock of a log: web-2.log=+1.5s.
    #[arg(long, value_name = "LOG=TIME")]
    shift: Vec<Shift>,
}

impl Reading {
    pub(super) fn options(&self) -> ReadOptions {
        let own = self.clone();
        ReadOptions {
            format: own.format,
            time_field: own.time_field,
            ip_field: own.ip_field,
            method_field: own.method_field,
            path_field: own.path_field,
            host_field: own.host_field,
            status_field: own.status_field,
            bytes_field: own.bytes_field,
            time_zone: own.time_zone.unwrap_or_default(),
            reorder: own.reorder,
            shifts: own.shift,
        }
    }
}

/// Reads a limit. A concurrency limit is refused, because a log does not say how long a request was in flight.
fn limit(text: &str) -> Result<Quota, String> {
    let quota: Quota = text.parse().map_err(|error: plimsoll::Error| error.to_string())?;
    if quota.is_concurrent() {
        return Err("a log does not say which requests were in flight together; allowed is a \
                    quota with a window, such as 100/min"
            .into());
    }
    Ok(quota)
}

fn window(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok().filter(|time| WINDOWS.contains(time));
    time.ok_or_else(|| "allowed is a time of 1ms to 400days, such as 1s, 1min or 1h".to_owned())
}
