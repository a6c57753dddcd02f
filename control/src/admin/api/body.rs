//! The bodies of changes, and the forms of their values.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequest, Request};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};

use crate::{
    time::wall_time,
    web::{self, Problem},
};

/// The longest body, in bytes.
const MAX_BYTES: usize = 16 * 1_024;

/// The time for reading a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// The forms of a time that an operator may write.
const ALLOWED: &str = "a time in UTC such as \"2030-01-31T14:00:00Z\", or a duration such as \"2h\" or \
     \"90min\", of at most 400 days";

/// The longest time ahead.
const MAX_AHEAD: Duration = Duration::from_secs(400 * 86_400);

/// A change that an operator asks for.
pub(in crate::admin) struct Change<T>(pub(in crate::admin) T);

/// The end of an override: a text as operators write it, or digits: milliseconds since the Unix epoch.
pub(in crate::admin) struct End(pub(super) SystemTime);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Change<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        web::json(request, MAX_BYTES, PATIENCE).await.map(Self)
    }
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        until(&text, wall_time()).map(Self).map_err(|cause| {
            D::Error::custom(format!("found {text:.80?}{cause}, allowed is {ALLOWED}"))
        })
    }
}

/// Reads the end of an override: a time in the future, the duration until then, or milliseconds since the Unix epoch.
///
/// # Errors
///
/// Returns the end of the sentence that names the time, which is empty if the text has another form.
fn until(text: &str, now: SystemTime) -> Result<SystemTime, &'static str> {
    const TOO_FAR: &str = ", which is more than 400 days ahead";
    let text = text.trim();
    let end = if let Ok(millis) = text.parse() {
        UNIX_EPOCH.checked_add(Duration::from_millis(millis)).ok_or(TOO_FAR)?
    } else if let Ok(duration) = humantime::parse_duration(text) {
        now.checked_add(duration).ok_or(TOO_FAR)?
    } else {
        humantime::parse_rfc3339(text).map_err(|_| "")?
    };
    if end <= now {
        return Err(", which is not in the future");
    }
    if end > now + MAX_AHEAD { Err(TOO_FAR) } else { Ok(end) }
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
        for past in ["0s", "5", "2001-09-09T01:46:40Z", "1970-01-01T00:00:00Z"] {
            assert_eq!(until(past, now), Err(", which is not in the future"), "{past:?}");
        }
        for far in ["401d", "18446744073709551615", "9999-12-31T23:59:59Z"] {
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
