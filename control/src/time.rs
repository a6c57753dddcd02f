//! Times as milliseconds since the Unix epoch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The latest time, in the year 2255. Its microseconds are below 2^53, as in the library.
const MAX_MILLIS: u64 = ((1 << 53) - 1) / 1_000;

/// Returns the wall time of the operating system.
#[expect(
    clippy::disallowed_methods,
    reason = "the library takes the end of a key's quota as wall time"
)]
pub(crate) fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Returns the milliseconds from the Unix epoch to a time.
pub(crate) fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).min(MAX_MILLIS)
}

/// Returns the time so many milliseconds after the Unix epoch.
pub(crate) fn from_millis(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.min(MAX_MILLIS))
}

/// The serialized form of a time.
pub(crate) mod millis {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        to_millis(*time).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        u64::deserialize(from).map(from_millis)
    }
}

/// The serialized form of a time that may be missing.
pub(crate) mod optional_millis {
    use super::*;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(to_millis).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(from_millis))
    }
}
