//! Values that are one text.

/// Implements the traits of serde for an enum, each variant of which is a name.
macro_rules! names {
    ($type:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl serde_core::Serialize for $type {
            fn serialize<S: serde_core::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }

        impl<'de> serde_core::Deserialize<'de> for $type {
            fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
            where
                D: serde_core::Deserializer<'de>,
            {
                struct NameVisitor;
                impl serde_core::de::Visitor<'_> for NameVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("the name of an ", stringify!($type)))
                    }

                    fn visit_str<E: serde_core::de::Error>(self, name: &str) -> Result<$type, E> {
                        match name {
                            $($name => Ok($type::$variant),)+
                            _ => Err(E::unknown_variant(name, &[$($name),+])),
                        }
                    }
                }
                deserializer.deserialize_str(NameVisitor)
            }
        }

        $crate::settings::own_form!($type);
    };
}
pub(crate) use names;

/// Implements the traits of serde for a type with `Display`, and a function that parses this text.
macro_rules! parsed_text {
    ($type:ident, $parse:expr) => {
        impl serde_core::Serialize for $type {
            fn serialize<S: serde_core::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde_core::Deserialize<'de> for $type {
            fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
            where
                D: serde_core::Deserializer<'de>,
            {
                struct TextVisitor;
                impl serde_core::de::Visitor<'_> for TextVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("the text of ", stringify!($type)))
                    }

                    fn visit_str<E: serde_core::de::Error>(self, text: &str) -> Result<$type, E> {
                        let parsed: Result<$type, crate::error::Error> = $parse(text);
                        parsed.map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(TextVisitor)
            }
        }
    };
}
pub(crate) use parsed_text;
