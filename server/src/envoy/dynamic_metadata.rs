//! The dynamic metadata of a response, which other filters of Envoy read.

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit,
    },
    google::protobuf::{ListValue, NullValue, Struct, Value, value::Kind},
};
use serde_json::{Map, Value as Json, json};

use super::{outcome::LineOutcome, request::Line};

/// Returns the domain and the descriptors of a request, and the `metadata` of the limits that pass. If two limits have
/// a field of one name, the field of the first limit is taken, and tables are merged.
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
    Some(of_json(fields))
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Json {
    let entries = descriptor.entries.iter().map(|it| format!("{}={}", it.key, it.value));
    let mut fields = json!({ "entries": entries.collect::<Vec<_>>() });
    if let Some(limit) = &descriptor.limit {
        let unit = RateLimitUnit::try_from(limit.unit).unwrap_or_default().as_str_name();
        let shown = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields["limit"] = shown.into();
    }
    if let Some(hits) = &descriptor.hits_addend {
        fields["hitsAddend"] = hits.value.into();
    }
    fields
}

fn merge(into: &mut Map<String, Json>, from: &Map<String, Json>) {
    for (name, new) in from {
        match (into.get_mut(name), new) {
            (None, _) => drop(into.insert(name.clone(), new.clone())),
            (Some(Json::Object(known)), Json::Object(new)) => merge(known, new),
            (Some(_), _) => {}
        }
    }
}

fn of_json(fields: Map<String, Json>) -> Struct {
    Struct { fields: fields.into_iter().map(|(name, field)| (name, value(field))).collect() }
}

fn value(json: Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(NullValue::NullValue.into()),
        Json::Bool(is_true) => Kind::BoolValue(is_true),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::MAX)),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(value).collect() })
        }
        Json::Object(fields) => Kind::StructValue(of_json(fields)),
    };
    Value { kind: Some(kind) }
}

/// Returns a struct of protobuf as JSON.
pub(super) fn to_json(from: &Struct) -> Json {
    from.fields.iter().map(|(name, field)| (name.clone(), json_of(field))).collect()
}

fn json_of(from: &Value) -> Json {
    match &from.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(is_true)) => (*is_true).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_of).collect(),
        Some(Kind::StructValue(fields)) => to_json(fields),
    }
}
