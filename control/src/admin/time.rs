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
    let end = match duration(text) {
        Some(ahead) => now.checked_add(ahead)?,
        None => instant(text)?,
    };
    (end > now && end <= now + MAX_AHEAD).then_some(end)
}

/// Reads a whole number and its unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|it: char| !it.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "s" => 1,
        "min" | "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

/// Reads a time as RFC 3339 writes it.
fn instant(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone);
    let [year, month, day] = numbers(date.split('-'), [4, 2, 2])?;
    // Fractions of a second are dropped.
    let clock = clock.split_once('.').map_or(clock, |(clock, _)| clock);
    let [hour, minute, second] = numbers(clock.split(':'), [2, 2, 2])?;
    let is_valid = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 61;
    let days = is_valid.then(|| days(year, month, day))?;
    // A day that the month does not have.
    if civil(days) != (year, month, day) {
        return None;
    }
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    let seconds = match zone.as_bytes() {
        [b'Z' | b'z'] => seconds,
        [sign, ..] => {
            let [hours, minutes] = numbers(zone[1..].split(':'), [2, 2])?;
            let offset = hours * 3_600 + minutes * 60;
            match sign {
                b'+' => seconds.checked_sub(offset)?,
                _ => seconds + offset,
            }
        }
        [] => return None,
    };
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Reads numbers with exactly these digits.
fn numbers<'t, const N: usize>(
    mut parts: impl Iterator<Item = &'t str>,
    digits: [usize; N],
) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|it| it.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns the days from 1970-01-01 to a date (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Returns the date of a day since 1970-01-01, by the same source.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn times_are_read() {
        // `date -u -d @1709164799 +%FT%TZ`
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_709_164_799, "2024-02-28T23:59:59Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(instant(written), Some(at(seconds)));
        }
        for day in 0..60_000 {
            let (year, month, date) = civil(day);
            assert_eq!(days(year, month, date), day);
        }
        assert_eq!(instant("2024-02-29T01:30:00.5+01:30"), instant("2024-02-29T00:00:00Z"));
        assert_eq!(instant("2024-02-28T23:00:00-01:00"), instant("2024-02-29T00:00:00Z"));
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
            "2w",
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
