//! The values of a report. The JSON has the same names.

use std::time::{Duration, SystemTime};

use plimsoll::{Key, Quota};
use serde::Serialize;

use crate::replay::{
    input::Pass, peaks::Peaks, redis::RedisPlan, retries::Retries, search::Search, search::fitting,
    tally::Tally,
};

/// Above this share of denied requests a limit counts as too strict, and below the other one it protects from nothing.
const TOO_STRICT: f64 = 0.05;
const PROTECTS_NOTHING: f64 = 0.001;

/// The number of keys that are listed.
const TOP: usize = 10;

#[derive(Debug, Default, Serialize)]
pub(in crate::replay) struct Report {
    pub(in crate::replay) logs: Vec<String>,
    /// The expressions, or the file with the rules.
    pub(in crate::replay) key: Option<String>,
    pub(in crate::replay) cost: Option<String>,
    #[serde(rename = "where")]
    pub(in crate::replay) filter: Option<String>,
    pub(in crate::replay) limits: Option<String>,
    /// True if an interrupt ended the replay early.
    pub(in crate::replay) partial: bool,
    pub(in crate::replay) requests: u64,
    pub(in crate::replay) keys: u64,
    pub(in crate::replay) from: Option<String>,
    pub(in crate::replay) to: Option<String>,
    /// The requests that `--where` leaves out.
    pub(in crate::replay) filtered: u64,
    /// The requests that rules have denied, if there are rules.
    pub(in crate::replay) denied: Option<u64>,
    pub(in crate::replay) skipped_lines: u64,
    /// The first lines that were skipped, each with its place and the reason.
    pub(in crate::replay) skipped: Vec<String>,
    /// The causes that limit the accuracy of the numbers.
    pub(in crate::replay) notes: Vec<String>,
    pub(in crate::replay) windows: Vec<Window>,
    pub(in crate::replay) candidates: Vec<Candidate>,
    /// The recommended limit of the first window.
    pub(in crate::replay) recommended: Option<String>,
}

/// The demand of keys in a window, and the limits that were searched over it.
#[derive(Debug, Serialize)]
pub(in crate::replay) struct Window {
    /// As in a quota: `1min`, `10s`.
    pub(in crate::replay) window: String,
    /// The most units in a window, of the keys in the order of their peaks.
    pub(in crate::replay) p50: u64,
    pub(in crate::replay) p90: u64,
    pub(in crate::replay) p99: u64,
    pub(in crate::replay) p99_9: u64,
    pub(in crate::replay) most: u64,
    /// The most units of all keys together.
    pub(in crate::replay) whole: u64,
    /// The smallest limit that denies less than 1 % of the keys.
    pub(in crate::replay) fits_99_percent_of_keys: String,
    pub(in crate::replay) curve: Vec<Point>,
    pub(in crate::replay) recommended: Option<String>,
}

/// The denials of one limit of a search.
#[derive(Debug, Clone, Serialize)]
pub(in crate::replay) struct Point {
    pub(in crate::replay) limit: u64,
    pub(in crate::replay) denied: u64,
    pub(in crate::replay) denied_share: f64,
    pub(in crate::replay) denied_keys: u64,
    pub(in crate::replay) denied_keys_share: f64,
}

/// A limit under one algorithm.
#[derive(Debug, Serialize)]
pub(in crate::replay) struct Candidate {
    /// The policy, and its kind: live, shadow or trial. Only of rules.
    pub(in crate::replay) policy: Option<String>,
    pub(in crate::replay) kind: Option<&'static str>,
    pub(in crate::replay) limit: String,
    pub(in crate::replay) algorithm: String,
    pub(in crate::replay) requests: u64,
    pub(in crate::replay) denied: u64,
    pub(in crate::replay) denied_share: f64,
    pub(in crate::replay) denied_keys: u64,
    pub(in crate::replay) denied_keys_share: f64,
    pub(in crate::replay) mark: Option<&'static str>,
    pub(in crate::replay) longest_shut_out_seconds: f64,
    pub(in crate::replay) top: Vec<TopKey>,
    pub(in crate::replay) retrying: Option<Retrying>,
    pub(in crate::replay) redis: Option<RedisPlan>,
}

/// A key with many denials.
#[derive(Debug, Serialize)]
pub(in crate::replay) struct TopKey {
    pub(in crate::replay) key: String,
    pub(in crate::replay) denied: u64,
    pub(in crate::replay) longest_shut_out_seconds: f64,
}

/// The requests that clients which honour `Retry-After` get through.
#[derive(Debug, Serialize)]
pub(in crate::replay) struct Retrying {
    pub(in crate::replay) at_once: u64,
    pub(in crate::replay) late: u64,
    pub(in crate::replay) given_up: u64,
    pub(in crate::replay) longest_wait_seconds: f64,
}

impl Report {
    /// Adds what reading has found.
    pub(in crate::replay) fn read(&mut self, pass: &Pass) {
        self.filtered = pass.filtered;
        self.from = pass.span.map(|(first, _)| time(first));
        self.to = pass.span.map(|(_, last)| time(last));
        self.skipped_lines = pass.skipped.lines;
        let first = pass.skipped.first.iter();
        self.skipped = first
            .map(|it| format!("{}:{}: {}: {}", it.file, it.line, it.reason, it.text))
            .collect();
        for (file, cause) in &pass.skipped.cut_files {
            self.notes.push(format!("{file} ends inside its compressed data: {cause}"));
        }
        let disorder = &pass.disorder;
        if disorder.backward_lines > 0 {
            self.notes.push(format!(
                "{} lines are earlier than a line before them, by {} at most: sorted by time",
                disorder.backward_lines,
                seconds(disorder.largest_step.as_secs_f64())
            ));
        }
        if disorder.late_lines > 0 {
            self.notes.push(format!(
                "{} lines came later than --reorder allows: judged at the time of the request before, which is up \
                 to {} later",
                disorder.late_lines,
                seconds(disorder.largest_move.as_secs_f64())
            ));
        }
        if disorder.overlapping_files > 1 {
            self.notes.push(format!(
                "{} logs overlap and are merged by their times: a clock that is off by a second moves the requests \
                 of its log by a second, and --shift corrects it",
                disorder.overlapping_files
            ));
        }
        if disorder.whole_seconds && pass.requests > 0 {
            let note =
                "all times are whole seconds: requests of the same second count as one burst";
            self.notes.push(note.into());
        }
        if pass.answered_429 > 0 {
            self.notes.push(format!(
                "{} requests were answered with status 429: a limit was in force already, and clients may have \
                 asked less or again because of it",
                pass.answered_429
            ));
        }
    }
}

impl Window {
    pub(in crate::replay) fn new(peaks: &Peaks, search: Option<&Search>, keys: u64) -> Self {
        let sorted = peaks.sorted();
        let of = |share: f64| {
            let rank = (sorted.len() as f64 * share).ceil() as usize;
            sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
        };
        let text = |limit: u64| quota_text(limit, peaks.window());
        let unit = text(1).trim_start_matches("1/").to_owned();
        let is_whole = unit.starts_with(|first: char| first.is_ascii_digit());
        let points = search.iter().flat_map(|search| {
            search.points().iter().map(|point| Point {
                limit: point.limit,
                denied: point.denied,
                denied_share: share(point.denied, search.requests()),
                denied_keys: point.denied_keys,
                denied_keys_share: share(point.denied_keys, keys),
            })
        });
        Self {
            window: if is_whole { unit } else { format!("1{unit}") },
            p50: of(0.5),
            p90: of(0.9),
            p99: of(0.99),
            p99_9: of(0.999),
            most: sorted.last().copied().unwrap_or_default(),
            whole: peaks.whole(),
            fits_99_percent_of_keys: text(fitting(&sorted)),
            curve: points.collect(),
            recommended: search.and_then(|it| it.recommended(keys)).map(|it| it.to_string()),
        }
    }
}

impl Window {
    /// Returns a limit over the window as a quota writes it.
    pub(super) fn limit(&self, limit: u64) -> String {
        let unit = self.window.strip_prefix('1');
        let is_unit = |unit: &&str| unit.starts_with(|first: char| first.is_ascii_alphabetic());
        format!("{limit}/{}", unit.filter(is_unit).unwrap_or(&self.window))
    }

    pub(super) fn is_recommended(&self, point: &Point) -> bool {
        self.recommended == Some(self.limit(point.limit))
    }
}

impl Candidate {
    pub(in crate::replay) fn new(
        quota: &Quota,
        tally: &Tally,
        peaks: Option<&Peaks>,
        keys: u64,
        show_keys: bool,
    ) -> Self {
        let denied_share = share(tally.denied, tally.requests);
        let top = tally.top(TOP).into_iter().map(|key| TopKey {
            key: key_text(&key.key, show_keys),
            denied: key.denied,
            longest_shut_out_seconds: key.longest_shut_out() as f64 / 1e6,
        });
        let text = quota.to_string();
        Self {
            policy: None,
            kind: None,
            limit: text.split(' ').next().unwrap_or_default().to_owned(),
            algorithm: quota.algorithm().to_string(),
            requests: tally.requests,
            denied: tally.denied,
            denied_share,
            denied_keys: tally.denied_keys(),
            denied_keys_share: share(tally.denied_keys(), keys),
            mark: mark(denied_share),
            longest_shut_out_seconds: tally.longest_shut_out() as f64 / 1e6,
            top: top.collect(),
            retrying: None,
            redis: peaks.map(|peaks| RedisPlan::new(quota, peaks)),
        }
    }

    pub(in crate::replay) fn retried(mut self, retries: &Retries) -> Self {
        self.retrying = Some(Retrying {
            at_once: retries.at_once,
            late: retries.late,
            given_up: retries.given_up,
            longest_wait_seconds: retries.longest_wait as f64 / 1e6,
        });
        self
    }
}

/// Returns the mark of a share of denied requests, if it is beyond one.
pub(super) fn mark(denied_share: f64) -> Option<&'static str> {
    if denied_share > TOO_STRICT {
        return Some("too strict");
    }
    (denied_share < PROTECTS_NOTHING).then_some("protects from nothing")
}

/// Returns a number of seconds as a text with three digits at most behind the point.
pub(super) fn seconds(seconds: f64) -> String {
    let millis = Duration::from_millis((seconds * 1e3).round() as u64);
    humantime::format_duration(millis).to_string()
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn quota_text(limit: u64, window: Duration) -> String {
    let quota = Quota::new(limit, window, plimsoll::Algorithm::SlidingLog);
    quota.map(|quota| quota.to_string()).unwrap_or_default()
}

fn key_text(key: &Key, show_keys: bool) -> String {
    if show_keys {
        return key.display_revealed().to_string();
    }
    // `Key(#1f2e3d4c)`, without the name of the type.
    let digest = format!("{key:?}");
    digest.trim_start_matches("Key(").trim_end_matches(')').to_owned()
}

fn time(micros: u64) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(micros));
    time.map(|time| humantime::format_rfc3339_millis(time).to_string()).unwrap_or_default()
}
