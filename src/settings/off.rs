//! Optional settings: the value, or `off`.

use std::{fmt, marker::PhantomData};

use serde_core::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::Form;

const OFF: &str = "off";

/// An optional value, serialized as the value or as `off`, because formats such as TOML have no null.
pub(crate) struct OrOff<F>(Option<F>);

impl<F: Form> Form for OrOff<F> {
    type Value = Option<F::Value>;

    fn of(value: &Self::Value) -> Self {
        Self(value.as_ref().map(F::of))
    }

    fn into_value(self) -> Self::Value {
        self.0.map(F::into_value)
    }
}

impl<F: Serialize> Serialize for OrOff<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(form) => form.serialize(serializer),
            None => serializer.serialize_str(OFF),
        }
    }
}

impl<'de, F: Deserialize<'de>> Deserialize<'de> for OrOff<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueOrOff(PhantomData))
    }
}

struct ValueOrOff<F>(PhantomData<F>);

impl<'de, F: Deserialize<'de>> Visitor<'de> for ValueOrOff<F> {
    type Value = OrOff<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value, or off")
    }

    /// Reads `false` as `off`, because YAML 1.1 does.
    fn visit_bool<E: Error>(self, value: bool) -> Result<OrOff<F>, E> {
        match value {
            false => Ok(OrOff(None)),
            true => F::deserialize(value.into_deserializer()).map(|form| OrOff(Some(form))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OrOff<F>, E> {
        match text {
            OFF => Ok(OrOff(None)),
            _ => F::deserialize(text.into_deserializer()).map(|form| OrOff(Some(form))),
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<OrOff<F>, E> {
        F::deserialize(value.into_deserializer()).map(|form| OrOff(Some(form)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<OrOff<F>, E> {
        F::deserialize(value.into_deserializer()).map(|form| OrOff(Some(form)))
    }

    // The default of this method names the value, which may be a secret.
    fn visit_u128<E: Error>(self, value: u128) -> Result<OrOff<F>, E> {
        F::deserialize(value.into_deserializer()).map(|form| OrOff(Some(form)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<OrOff<F>, E> {
        F::deserialize(value.into_deserializer()).map(|form| OrOff(Some(form)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrOff<F>, A::Error> {
        F::deserialize(MapAccessDeserializer::new(map)).map(|form| OrOff(Some(form)))
    }
}

#[cfg(test)]
mod tests {
    use serde_core::de::value::Error;

    use super::*;
    use crate::settings::SecretText;

    /// YAML reads `0x` and 32 hexadecimal digits as such a number.
    #[test]
    fn an_error_does_not_name_a_secret_that_is_written_as_a_number() {
        let secret = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128;
        let read: Result<OrOff<SecretText>, Error> =
            Deserialize::deserialize(secret.into_deserializer());
        let error = read.err().expect("a number is not a secret").to_string();
        assert!(!error.contains(&secret.to_string()), "{error}");
    }
}
