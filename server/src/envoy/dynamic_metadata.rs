//! The dynamic metadata of a response: what Envoy's other filters learn of the decision.

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit,
    },
    google::protobuf::Struct,
};
use serde_json::{Map, Value, json};

use super::{outcome::LineOutcome, request::Line, structs};

/// Returns the domain and the descriptors of a request, and the metadata of the limits that have passed. If
/// two limits have a field of one name, the first one's is taken; tables are merged.
pub(super) fn of(
    request: &RateLimitRequest,
    lines: &[Line<'_>],
    outcomes: &[LineOutcome],
    is_always: bool,
) -> Option<Struct> {
    let mut metadata = Map::new();
    for (line, outcome) in lines.iter().zip(outcomes) {
        if let Line::Limited(limited) = line
            && (outcome.has_passed || limited.is_shadow)
            && let Some(rule) = limited.rule
        {
            merge(&mut metadata, &rule.metadata);
        }
    }
    if metadata.is_empty() && !is_always {
        return None;
    }
    let mut fields = Map::new();
    fields.insert("domain".into(), request.domain.as_str().into());
    fields.insert("descriptors".into(), request.descriptors.iter().map(descriptor).collect());
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".into(), request.hits_addend.into());
    }
    if !metadata.is_empty() {
        fields.insert("metadata".into(), metadata.into());
    }
    Some(structs::of_json(&fields))
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter().map(|it| format!("{}={}", it.key, it.value));
    let mut fields = json!({ "entries": entries.collect::<Vec<_>>() });
    if let Some(limit) = &descriptor.limit {
        let unit = RateLimitUnit::try_from(limit.unit).map_or("UNKNOWN", |unit| unit.as_str_name());
        let shown = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields["limit"] = shown.into();
    }
    if let Some(hits) = &descriptor.hits_addend {
        fields["hitsAddend"] = hits.value.into();
    }
    fields
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(name), value) {
            (None, value) => drop(into.insert(name.clone(), value.clone())),
            (Some(Value::Object(known)), Value::Object(new)) => merge(known, new),
            (Some(_), _) => {}
        }
    }
}
