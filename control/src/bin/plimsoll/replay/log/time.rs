//! Times, as logs write them.

use std::str::FromStr;

/// The latest time, in the year 2255. Its microseconds are below 2^53, as in the library.
const MAX_MICROS: u64 = (1 << 53) - 1;

/// A fixed offset from UTC: `UTC`, `Z`, `+02:00`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TimeZone {
    pub(super) seconds_east: i32,
}

impl FromStr for TimeZone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds_east = offset(text.as_bytes(), Self::default());
        seconds_east
            .filter(|_| !text.is_empty())
            .map(|seconds_east| Self { seconds_east })
            .ok_or_else(|| {
                format!("{text:?} is no time zone; allowed is UTC, or an offset such as +02:00")
            })
    }
}

/// Returns a time in microseconds since the Unix epoch. `zone` is the zone of times without one.
///
/// The forms are `10/Oct/2000:13:55:36 -0700`, RFC 3339 with `T` or a space and with `-` or `/`, and seconds,
/// milliseconds, microseconds or nanoseconds since the epoch as a number.
pub(super) fn parse(text: &str, zone: TimeZone) -> Option<u64> {
    let bytes = text.as_bytes();
    let micros = match bytes {
        [_, _, b'/', ..] => common(bytes, zone),
        [_, _, _, _, b'-' | b'/', ..] => rfc3339(bytes, zone),
        _ => epoch(text),
    };
    micros.filter(|micros| *micros <= MAX_MICROS)
}

/// Reads `10/Oct/2000:13:55:36 -0700`.
fn common(bytes: &[u8], zone: TimeZone) -> Option<u64> {
    let [_, _, b'/', a, b, c, b'/', _, _, _, _, b':', clock @ ..] = bytes else { return None };
    let months = b"janfebmaraprmayjunjulaugsepoctnovdec";
    let name = [a, b, c].map(|it| it.to_ascii_lowercase());
    let month = months.chunks_exact(3).position(|it| it == name)? as u64 + 1;
    let date = days(number(&bytes[7..11])?, month, number(&bytes[..2])?)?;
    with_clock(date, clock, zone)
}

/// Reads `2000-10-10T13:55:36.123Z`.
fn rfc3339(bytes: &[u8], zone: TimeZone) -> Option<u64> {
    let [y, _, _, _, first, _, _, second, _, _, b'T' | b't' | b' ' | b'_', clock @ ..] = bytes
    else {
        return None;
    };
    if first != second || !y.is_ascii_digit() {
        return None;
    }
    let date = days(number(&bytes[..4])?, number(&bytes[5..7])?, number(&bytes[8..10])?)?;
    with_clock(date, clock, zone)
}

/// Reads the time of a day, with its fraction and its zone.
fn with_clock(days: i64, clock: &[u8], zone: TimeZone) -> Option<u64> {
    let [_, _, b':', _, _, b':', _, _, rest @ ..] = clock else { return None };
    let hour = number(&clock[..2])?;
    let minute = number(&clock[3..5])?;
    let second = number(&clock[6..8])?;
    // A leap second is the first second of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, rest) = match rest {
        [b'.' | b',', rest @ ..] => {
            let end = rest.iter().position(|it| !it.is_ascii_digit()).unwrap_or(rest.len());
            (fraction(&rest[..end])?, &rest[end..])
        }
        _ => (0, rest),
    };
    let east = offset(rest.trim_ascii(), zone)?;
    let seconds = days * 86_400 + (hour * 3_600 + minute * 60 + second) as i64 - i64::from(east);
    Some(u64::try_from(seconds).ok()? * 1_000_000 + fraction)
}

/// Reads an offset, in seconds east of Greenwich.
fn offset(text: &[u8], zone: TimeZone) -> Option<i32> {
    let (sign, hours, minutes) = match text {
        [] => return Some(zone.seconds_east),
        b"Z" | b"z" | b"UTC" | b"GMT" => return Some(0),
        [sign @ (b'+' | b'-'), a, b] => (*sign, [*a, *b], [b'0', b'0']),
        [sign @ (b'+' | b'-'), a, b, c, d] => (*sign, [*a, *b], [*c, *d]),
        [sign @ (b'+' | b'-'), a, b, b':', c, d] => (*sign, [*a, *b], [*c, *d]),
        _ => return None,
    };
    let hours = number(&hours)?;
    let minutes = number(&minutes)?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = (hours * 3_600 + minutes * 60) as i32;
    Some(if sign == b'-' { -seconds } else { seconds })
}

/// Reads a number since the epoch. Its size tells its unit: seconds are below 10^11 until the year 5138, and
/// milliseconds above it since 1973.
fn epoch(text: &str) -> Option<u64> {
    if text.contains(['e', 'E']) {
        let seconds = text.parse::<f64>().ok().filter(|it| (0.0..1e18).contains(it))?;
        return epoch(&format!("{seconds:.6}"));
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 19 {
        return None;
    }
    let digits = number(whole.as_bytes())?;
    let micros = fraction(part.as_bytes())?;
    match digits {
        ..100_000_000_000 => Some(digits * 1_000_000 + micros),
        100_000_000_000..100_000_000_000_000 => Some(digits * 1_000 + micros / 1_000),
        100_000_000_000_000..100_000_000_000_000_000 => Some(digits),
        _ => Some(digits / 1_000),
    }
}

/// Returns the digits behind a point as millionths. Further digits are cut.
fn fraction(digits: &[u8]) -> Option<u64> {
    let mut micros = 0;
    for at in 0..6 {
        let digit = digits.get(at).copied().unwrap_or(b'0');
        let digit = digit.checked_sub(b'0').filter(|it| *it <= 9)?;
        micros = micros * 10 + u64::from(digit);
    }
    digits.iter().all(u8::is_ascii_digit).then_some(micros)
}

fn number(digits: &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(number)
}

/// Returns the days from the Unix epoch to a date of the Gregorian calendar.
///
/// A year begins with March here, so that the leap day is its last: the algorithm of Howard Hinnant's
/// "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days(year: u64, month: u64, day: u64) -> Option<i64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) || year == 0 {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some((era * 146_097 + day_of_era) as i64 - 719_468)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn times_are_read_in_every_form() {
        let zone = TimeZone { seconds_east: 7_200 };
        for (text, micros) in [
            ("10/Oct/2000:13:55:36 -0700", 971_211_336_000_000),
            ("10/oct/2000:13:55:36.25 +0000", 971_186_136_250_000),
            ("2000-10-10T20:55:36Z", 971_211_336_000_000),
            ("2000-10-10 20:55:36,5 UTC", 971_211_336_500_000),
            ("2000/10/10 22:55:36", 971_211_336_000_000), // in the zone of the options
            ("2000-10-10T13:55:36.123456789-07:00", 971_211_336_123_456),
            ("2000-10-10T13:55:36-07", 971_211_336_000_000),
            ("971211336", 971_211_336_000_000),
            ("971211336.000001", 971_211_336_000_001),
            ("9.71211336e8", 971_211_336_000_000),
            ("971211336123", 971_211_336_123_000),
            ("971211336123.5", 971_211_336_123_500),
            ("971211336123456", 971_211_336_123_456),
            ("971211336123456789", 971_211_336_123_456),
            ("31/Dec/2016:23:59:60 +0000", 1_483_228_800_000_000),
        ] {
            assert_eq!(parse(text, zone), Some(micros), "{text}");
        }
        for text in [
            "",
            "-",
            "x",
            "10/Okt/2000:13:55:36 -0700",
            "30/Feb/2000:13:55:36 -0700",
            "29/Feb/2001:00:00:00 +0000",
            "10/Oct/2000:24:00:00 +0000",
            "10/Oct/2000:13:55",
            "10/Oct/1969:13:55:36 +0000",
            "2000-13-01T00:00:00Z",
            "2000-10-10T20:55:36+2500",
            "2000-10-10T20:55:36.Zx",
            "2000-10/10 00:00:00",
            "9999-12-31T00:00:00Z",
            "1.2.3",
            "-5",
            "99999999999999999999",
            "1e400",
            "NaN",
            "٣/Oct/2000:13:55:36 -0700",
        ] {
            assert_eq!(parse(text, zone), None, "{text}");
        }
    }

    #[test]
    fn all_days_agree_with_another_calendar() {
        for day in (0..104_000).step_by(7).chain(10_900..11_400) {
            let time = UNIX_EPOCH + std::time::Duration::from_secs(day * 86_400 + 12_345);
            let text = humantime::format_rfc3339_seconds(time).to_string();
            assert_eq!(
                parse(&text, TimeZone::default()),
                Some((day * 86_400 + 12_345) * 1_000_000),
                "{text}"
            );
        }
    }
}
