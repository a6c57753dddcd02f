//! Configurations as maps of their fields.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor},
};

/// Implements the traits of serde for a configuration by those that serde derives for its mirror: a
/// struct of the same name in a module `mirror`, with `#[serde(remote = "..")]`. Errors then name the
/// field, and the functions that serde derives are not public.
macro_rules! by_mirror {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                mirror::$type::serialize(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                mirror::$type::deserialize($crate::serialized::Fields(from))
            }
        }
    };
}
pub(crate) use by_mirror;

/// A deserializer of a configuration whose errors begin with the name of the configuration and the
/// field.
pub(crate) struct Fields<T>(pub(crate) T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Fields<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, FieldsVisitor { name, visitor })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct FieldsVisitor<V> {
    name: &'static str,
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for FieldsVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map of the fields of {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let mut map = NamedFields { map, field: None };
        let read = self.visitor.visit_map(&mut map);
        read.map_err(|error| match map.field {
            Some(field) => A::Error::custom(format_args!("{}::{field}: {error}", self.name)),
            None => error,
        })
    }
}

struct NamedFields<A> {
    map: A,
    /// The field that is being read.
    field: Option<String>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for &mut NamedFields<A> {
    type Error = A::Error;

    fn next_key_seed<S>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error>
    where
        S: DeserializeSeed<'de>,
    {
        self.field = None;
        let Some(name) = self.map.next_key::<String>()? else { return Ok(None) };
        let name = self.field.insert(name);
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<S>(&mut self, seed: S) -> Result<S::Value, A::Error>
    where
        S: DeserializeSeed<'de>,
    {
        self.map.next_value_seed(seed)
    }
}
