//! Settings that may be missing, or `off`, because TOML has no null.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// Returns a configuration with a setting, if there is one.
pub(in crate::config) fn set<C, T>(config: C, value: Option<T>, setter: fn(C, T) -> C) -> C {
    match value {
        Some(value) => setter(config, value),
        None => config,
    }
}

/// A value, or `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum OrOff<T> {
    Off,
    On(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OrOffVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrOffVisitor<T> {
            type Value = OrOff<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or `off`")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<OrOff<T>, E> {
                match value {
                    false => Ok(OrOff::Off),
                    true => T::deserialize(value.into_deserializer()).map(OrOff::On),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OrOff<T>, E> {
                match text {
                    "off" => Ok(OrOff::Off),
                    _ => T::deserialize(text.into_deserializer()).map(OrOff::On),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OrOff<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OrOff::On)
            }
        }

        from.deserialize_any(OrOffVisitor(PhantomData))
    }
}
