//! The fields of a configuration file.

use plimsoll_control::document::{At, Mistake};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

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
    pub(super) detailed_metric: Option<IgnoredAny>,
    pub(super) value_to_metric: Option<IgnoredAny>,
    pub(super) share_threshold: Option<At<bool>>,
    pub(super) count_denied: Option<bool>,
    pub(super) metadata: Option<Map<String, Value>>,
}

impl DescriptorSpec {
    /// Returns the fields of the descriptor that have no effect here.
    pub(super) fn ignored(&self) -> impl Iterator<Item = &'static str> {
        let fields = [
            ("detailed_metric", self.detailed_metric.is_some()),
            ("value_to_metric", self.value_to_metric.is_some()),
        ];
        fields.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name)
    }
}

/// The way to a second limit of one descriptor.
pub(super) const ONE_LIMIT: &str = "one limit for a descriptor. For a second limit, let Envoy send a second \
    descriptor with another `descriptor_key`, and give that key its limit";

/// The fields of a limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitSpec {
    pub(super) unit: Option<At<Scalar>>,
    pub(super) requests_per_unit: Option<At<u32>>,
    pub(super) unlimited: Option<bool>,
    pub(super) name: Option<At<Scalar>>,
    pub(super) replaces: Option<Vec<ReplacesSpec>>,
    pub(super) quota: Option<At<String>>,
}

/// A limit that another one replaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacesSpec {
    pub(super) name: Option<At<Scalar>>,
}

/// A text, or a number or truth value as the file writes it: `value: 007` is the text `007`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text")]
pub(super) enum Scalar {
    Text(String),
    Truth(#[expect(dead_code, reason = "the text of the file is taken")] bool),
    Number(#[expect(dead_code, reason = "the text of the file is taken")] f64),
}

impl Scalar {
    /// Returns the text of a scalar at a place of a file, or an empty one if the file has no scalar there.
    pub(super) fn optional_text<'t>(at: Option<&'t At<Self>>, file: &'t str) -> &'t str {
        match at.map(|at| (&at.value, at.span.clone())) {
            None => "",
            Some((Self::Text(text), _)) => text,
            Some((_, span)) => file.get(span).unwrap_or_default().trim(),
        }
    }
}

/// Completes two [mistakes](Mistake): an unknown field gets the place where it belongs, and a second limit the
/// way to write it.
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
    let is_twice = message.ends_with("is there twice") && found.trim_matches('"') == "rate_limit";
    if is_twice || mistake.in_a_line().contains("rate_limit`: found a list") {
        return mistake.allowed(ONE_LIMIT);
    }
    let field = message.strip_prefix("unknown field `").and_then(|it| it.strip_suffix('`'));
    match field {
        Some(field) if OF_DESCRIPTORS.contains(&field) => {
            mistake.allowed(format_args!("`{field}` in a descriptor, beside its `key`"))
        }
        Some(field) if OF_LIMITS.contains(&field) => {
            mistake.allowed(format_args!("`{field}` in a `rate_limit`"))
        }
        _ => mistake,
    }
}
