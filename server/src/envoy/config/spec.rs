//! The fields of a configuration file.

use std::fmt;

use plimsoll_control::document::{At, Mistake};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// The fields of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSpec {
    pub(super) domain: Option<At<Scalar>>,
    pub(super) descriptors: Option<Vec<At<DescriptorSpec>>>,
}

/// The fields of a descriptor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorSpec {
    pub(super) key: Option<At<Scalar>>,
    pub(super) value: Option<At<Scalar>>,
    pub(super) rate_limit: Option<At<LimitSpec>>,
    pub(super) descriptors: Option<Vec<At<DescriptorSpec>>>,
    pub(super) shadow_mode: Option<bool>,
    pub(super) quota_mode: Option<bool>,
    pub(super) detailed_metric: Option<bool>,
    pub(super) value_to_metric: Option<bool>,
    pub(super) share_threshold: Option<At<bool>>,
    pub(super) count_denied: Option<bool>,
    pub(super) metadata: Option<serde_json::Map<String, serde_json::Value>>,
}

/// The way to a second limit of one descriptor.
pub(super) const ONE_LIMIT: &str = "one limit for a descriptor. For a second limit, let Envoy send a second \
    descriptor with another `descriptor_key`, and give that key its limit";

/// The fields of a limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub(super) struct LimitSpec {
    pub(super) unit: Option<At<Scalar>>,
    pub(super) requests_per_unit: Option<At<u32>>,
    pub(super) unlimited: Option<bool>,
    pub(super) name: Option<At<Scalar>>,
    pub(super) replaces: Option<Vec<ReplacesSpec>>,
    pub(super) quota: Option<At<String>>,
}

/// Reads a table. Of a list of limits, the error says how a descriptor gets a second one.
impl<'de> Deserialize<'de> for LimitSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct LimitVisitor;

        impl<'de> Visitor<'de> for LimitVisitor {
            type Value = LimitSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with `unit` and `requests_per_unit`, or `quota`")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<LimitSpec, A::Error> {
                LimitSpec::deserialize(MapAccessDeserializer::new(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<LimitSpec, A::Error> {
                Err(A::Error::custom(format_args!(
                    "found a list of limits, allowed is {ONE_LIMIT}"
                )))
            }
        }

        from.deserialize_any(LimitVisitor)
    }
}

/// A limit that another one replaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacesSpec {
    pub(super) name: At<Option<Scalar>>,
}

/// A text, or a number or truth value whose text is that of the file: `value: 007` is the text `007`.
#[derive(Debug)]
pub(super) enum Scalar {
    Text(String),
    Other,
}

impl Scalar {
    /// Returns the text of a scalar at a place of a file.
    pub(super) fn text<'t>(at: &'t At<Self>, file: &'t str) -> &'t str {
        match &at.value {
            Self::Text(text) => text,
            Self::Other => file.get(at.span.clone()).unwrap_or_default().trim(),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_i128<E: Error>(self, _: i128) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }
        }

        from.deserialize_any(ScalarVisitor)
    }
}

/// Returns the mistake of an unknown field, with the place where the field belongs if there is one, or of a second
/// limit, with the way to it.
pub(super) fn misplaced(mistake: Mistake, text: &str) -> Mistake {
    const OF_DESCRIPTORS: [&str; 6] = [
        "shadow_mode",
        "quota_mode",
        "detailed_metric",
        "value_to_metric",
        "share_threshold",
        "metadata",
    ];
    const OF_LIMITS: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "replaces", "name"];
    let message = mistake.to_string();
    let found = mistake.span().and_then(|span| text.get(span)).unwrap_or_default();
    if message.ends_with("is there twice") && found.trim_matches('"') == "rate_limit" {
        return mistake.allowed(ONE_LIMIT);
    }
    let Some(field) = message.strip_prefix("unknown field `").and_then(|it| it.strip_suffix('`'))
    else {
        return mistake;
    };
    if OF_DESCRIPTORS.contains(&field) {
        mistake.allowed(format_args!("`{field}` in a descriptor, beside its `key`"))
    } else if OF_LIMITS.contains(&field) {
        mistake.allowed(format_args!("`{field}` in a `rate_limit`"))
    } else {
        mistake
    }
}
