//! Configurations as maps of their fields.

use serde_core::de::{Error, MapAccess};

use super::Form;

/// Implements the traits of serde for a configuration with a default. `validate` checks the whole
/// configuration. Each line is a field, its form, and the allowed values for errors.
macro_rules! fields {
    ($type:ident, $validate:expr; $($field:ident: $form:ty, $allowed:literal;)+) => {
        impl serde_core::Serialize for $type {
            fn serialize<S: serde_core::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde_core::ser::SerializeStruct;
                const COUNT: usize = [$(stringify!($field)),+].len();
                let mut fields = serializer.serialize_struct(stringify!($type), COUNT)?;
                $(
                    let form = <$form as $crate::settings::Form>::of(&self.$field);
                    fields.serialize_field(stringify!($field), &form)?;
                )+
                fields.end()
            }
        }

        impl<'de> serde_core::Deserialize<'de> for $type {
            fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
            where
                D: serde_core::Deserializer<'de>,
            {
                const FIELDS: &[&str] = &[$(stringify!($field)),+];
                struct FieldsVisitor;
                impl<'de> serde_core::de::Visitor<'de> for FieldsVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a map of the fields of ", stringify!($type)))
                    }

                    fn visit_map<A>(self, mut map: A) -> Result<$type, A::Error>
                    where
                        A: serde_core::de::MapAccess<'de>,
                    {
                        let mut settings = <$type>::default();
                        let mut seen = Vec::new();
                        while let Some(name) = map.next_key::<String>()? {
                            match name.as_str() {
                                $(stringify!($field) => {
                                    let field = concat!(stringify!($type), "::", stringify!($field));
                                    $crate::settings::once(field, &mut seen)?;
                                    settings.$field = $crate::settings::read::<$form, A>(
                                        field, $allowed, &mut map,
                                    )?;
                                })+
                                _ => {
                                    let of = stringify!($type);
                                    return Err($crate::settings::unknown_field(of, &name, FIELDS));
                                }
                            }
                        }
                        let validate: fn(&$type) -> Result<(), crate::error::Error> = $validate;
                        validate(&settings).map_err(<A::Error as serde_core::de::Error>::custom)?;
                        Ok(settings)
                    }
                }
                deserializer.deserialize_struct(stringify!($type), FIELDS, FieldsVisitor)
            }
        }
    };
}
pub(crate) use fields;

/// Reads the value of a field. An error names the field and the allowed values.
pub(crate) fn read<'de, F: Form, A: MapAccess<'de>>(
    field: &str,
    allowed: &str,
    map: &mut A,
) -> Result<F::Value, A::Error> {
    let named = |error| A::Error::custom(format_args!("{field}: {error}; allowed is {allowed}"));
    map.next_value::<F>().map(F::into_value).map_err(named)
}

/// Adds `field` to those seen so far. Without this error the last of two values would win, which
/// formats such as JSON allow.
pub(crate) fn once<E: Error>(field: &'static str, seen: &mut Vec<&'static str>) -> Result<(), E> {
    if seen.contains(&field) {
        return Err(E::custom(format_args!("{field} is set twice, allowed is once")));
    }
    seen.push(field);
    Ok(())
}

/// Returns the error of a field that the configuration does not have.
pub(crate) fn unknown_field<E: Error>(of: &str, name: &str, fields: &[&str]) -> E {
    let name: String = name.chars().take(64).collect();
    E::custom(format_args!("{of} has no field {name:?}, allowed are {}", fields.join(", ")))
}
