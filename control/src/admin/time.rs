//! Times as operators write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::{Clock, SystemClock};

/// The forms of a time that an operator may write.
pub(super) const ALLOWED: &str = "a time such as \"2030-01-31T14:00:00Z\", or a duration such as \"2h\" \
     or \"90min\", of at most 400 days";

/// The longest time ahead.
const MAX_AHEAD: Duration = Duration::from_secs(400 * 86_400);

/// Returns the time.
pub(super) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(SystemClock::new().now().as_micros())
}

/// Returns the milliseconds from the Unix epoch to a time.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time so many milliseconds after the Unix epoch, if an override may end then.
pub(super) fn at_millis(millis: u64, now: SystemTime) -> Option<SystemTime> {
    let end = UNIX_EPOCH.checked_add(Duration::from_millis(millis))?;
    (end > now && end <= now + MAX_AHEAD).then_some(end)
}

/// Reads the end of an override: a time in the future, or the duration until then.
pub(super) fn until(text: &str, now: SystemTime) -> Option<SystemTime> {
    let text = text.trim();
    let end = match humantime::parse_duration(text) {
        Ok(ahead) => now.checked_add(ahead)?,
        Err(_) => humantime::parse_rfc3339(text).ok()?,
    };
    (end > now && end <= now + MAX_AHEAD).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn an_end_is_a_time_ahead() {
        let now = at(1_000_000_000);
        assert_eq!(until("2h", now), Some(at(1_000_007_200)));
        assert_eq!(until(" 90 min", now), Some(at(1_000_005_400)));
        assert_eq!(until("2001-09-09T01:46:41Z", now), Some(at(1_000_000_001)));
        for refused in [
            "",
            "2",
            "h",
            "-2h",
            "0s",
            "401d",
            "99999999999999999999d",
            "9999999999999999d",
            "2001-09-09T01:46:40Z",
            "2001-09-09",
            "2001-02-30T00:00:00Z",
            "2001-9-9T1:1:1Z",
            "2001-10-09T24:00:00Z",
            "2001-10-09T01:00:00",
            "0000-00-00T00:00:00Z",
            "2001-10-09T01:00:00+1",
            "morgen",
            "9999-12-31T23:59:59Z",
            "2001-10-09T01:00:00+é",
        ] {
            assert_eq!(until(refused, now), None, "{refused:?}");
        }
    }
}
