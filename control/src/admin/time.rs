//! Times as operators write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The forms of a time that an operator may write.
pub(super) const ALLOWED: &str = "a time such as \"2030-01-31T14:00:00Z\" or \"2030-01-31T14:00:00+02:00\", or a \
     duration such as \"2h\" or \"90min\", of at most 400 days";

/// The longest time ahead.
const MAX_AHEAD: Duration = Duration::from_secs(400 * 86_400);

/// Reads the end of an override: a time in the future, the duration until then, or milliseconds since the Unix epoch.
///
/// # Errors
///
/// Returns the end of the sentence that names the time, which is empty if the text has another form.
pub(super) fn until(text: &str, now: SystemTime) -> Result<SystemTime, &'static str> {
    const TOO_FAR: &str = ", which is more than 400 days ahead";
    let text = text.trim();
    let end = if let Ok(millis) = text.parse() {
        UNIX_EPOCH.checked_add(Duration::from_millis(millis)).ok_or(TOO_FAR)?
    } else if let Ok(duration) = humantime::parse_duration(text) {
        now.checked_add(duration).ok_or(TOO_FAR)?
    } else {
        rfc3339(text).ok_or("")?
    };
    if end <= now {
        return Err(", which is not in the future");
    }
    if end > now + MAX_AHEAD { Err(TOO_FAR) } else { Ok(end) }
}

/// Reads a time in UTC, or with the offset of a time zone (RFC 3339, section 5.6).
fn rfc3339(text: &str) -> Option<SystemTime> {
    if let Ok(time) = humantime::parse_rfc3339(text) {
        return Some(time);
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let number = |text: &str, max: u64| {
        let is_number = text.len() == 2 && text.bytes().all(|it| it.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| is_number && *number <= max)
    };
    let offset_seconds = 3_600 * number(hours, 23)? + 60 * number(minutes, 59)?;
    // The library overlooks a second Z.
    let local = Some(local).filter(|it| it.ends_with(|last: char| last.is_ascii_digit()))?;
    let time = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    match offset.as_bytes()[0] {
        b'+' => time.checked_sub(Duration::from_secs(offset_seconds)),
        b'-' => time.checked_add(Duration::from_secs(offset_seconds)),
        _ => None,
    }
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
        assert_eq!(until("2h", now), Ok(at(1_000_007_200)));
        assert_eq!(until(" 90 min", now), Ok(at(1_000_005_400)));
        assert_eq!(until("2001-09-09T01:46:41Z", now), Ok(at(1_000_000_001)));
        // The offset of a time zone is the time there less UTC.
        assert_eq!(until("2001-09-09T03:46:41+02:00", now), Ok(at(1_000_000_001)));
        assert_eq!(until("2001-09-08T20:16:41-05:30", now), Ok(at(1_000_000_001)));
        for past in
            ["0s", "5", "2001-09-09T01:46:40Z", "2001-09-09T03:46:40+02:00", "1970-01-01T00:00:00Z"]
        {
            assert_eq!(until(past, now), Err(", which is not in the future"), "{past:?}");
        }
        for far in
            ["401d", "18446744073709551615", "9999-12-31T23:59:59Z", "2002-11-01T00:00:00+02:00"]
        {
            assert_eq!(until(far, now), Err(", which is more than 400 days ahead"), "{far:?}");
        }
        for refused in [
            "",
            "h",
            "-2h",
            "99999999999999999999d",
            "9999999999999999d",
            "2001-09-09",
            "14:00",
            "2001-02-30T00:00:00Z",
            "2001-9-9T1:1:1Z",
            "2001-10-09T24:00:00Z",
            "2001-10-09T01:00:00",
            "2001-10-09T01:00:00+24:00",
            "2001-10-09T01:00:00+1:000",
            "2001-10-09T01:00:00Z+01:00",
            "2001-10-09T01:00:00*01:00",
            "0000-00-00T00:00:00Z",
            "1970-01-01T00:00:00+01:00é",
            "2001-10-09T01:00:00+1",
            "morgen",
            "2001-10-09T01:00:00+é",
        ] {
            assert_eq!(until(refused, now), Err(""), "{refused:?}");
        }
        assert_eq!(until("1000000000001", now), Ok(now + Duration::from_millis(1)));
    }
}
