//! Optional settings: the value, or `off`, because formats such as TOML have no null.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};

const OFF: &str = "off";

pub(crate) fn serialize<T: Serialize, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => value.serialize(to),
        None => to.serialize_str(OFF),
    }
}

pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let named = |error| D::Error::custom(format_args!("{error}, or off"));
    from.deserialize_any(ValueOrOff(PhantomData)).map_err(named)
}

struct ValueOrOff<T>(PhantomData<T>);

/// Methods that read a value of a type that cannot be `off`. The defaults of some of them would name the
/// value, which may be a secret.
macro_rules! read_value {
    ($($visit:ident: $type:ty),+) => {
        $(fn $visit<E: Error>(self, value: $type) -> Result<Option<T>, E> {
            T::deserialize(value.into_deserializer()).map(Some)
        })+
    };
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ValueOrOff<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value")
    }

    /// Reads `false` as `off`, because YAML 1.1 does.
    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<T>, E> {
        if value { T::deserialize(value.into_deserializer()).map(Some) } else { Ok(None) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<T>, E> {
        if text == OFF { Ok(None) } else { T::deserialize(text.into_deserializer()).map(Some) }
    }

    read_value! { visit_u64: u64, visit_i64: i64, visit_u128: u128, visit_f64: f64 }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

/// A duration, or `off`.
pub(crate) mod timeout {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use crate::serialized::Timeout;

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        super::serialize(&value.map(Timeout), to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(super::deserialize(from)?.map(|Timeout(duration)| duration))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, U128Deserializer};

    use super::*;
    use crate::serialized::Secret;

    /// YAML reads `0x` and 32 hexadecimal digits as such a number.
    #[test]
    fn an_error_does_not_name_a_secret_that_is_written_as_a_number() {
        let secret = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128;
        let from: U128Deserializer<Error> = secret.into_deserializer();
        let read: Result<Option<Secret>, Error> = deserialize(from);
        let error = read.map(|secret| secret.map(|Secret(it)| it)).unwrap_err().to_string();
        assert!(!error.contains(&secret.to_string()), "{error}");
    }
}
