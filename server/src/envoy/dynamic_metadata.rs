//! The dynamic metadata of a response: what Envoy's other filters learn of the decision.

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::RateLimitDescriptor,
        service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit,
    },
    google::protobuf::{ListValue, Struct, Value, value::Kind},
};

use super::{outcome::LineOutcome, request::Line};

/// Returns the domain and the descriptors of a request, and the metadata of the limits that have passed. If
/// two limits have a field of one name, the first one's is taken; tables are merged.
pub(super) fn of(
    request: &RateLimitRequest,
    lines: &[Line<'_>],
    outcomes: &[LineOutcome],
    is_always: bool,
) -> Option<Struct> {
    let mut metadata = Struct::default();
    for (line, outcome) in lines.iter().zip(outcomes) {
        if let Line::Limited(limited) = line
            && (outcome.has_passed || limited.is_shadow)
            && let Some(passed) = limited.rule.and_then(|rule| rule.metadata.as_ref())
        {
            merge(&mut metadata, passed);
        }
    }
    if metadata.fields.is_empty() && !is_always {
        return None;
    }
    let descriptors = request.descriptors.iter().map(|it| structure(descriptor(it))).collect();
    let mut of_request = Struct::default();
    let fields = &mut of_request.fields;
    fields.insert("domain".into(), text(&request.domain));
    fields.insert("descriptors".into(), list(descriptors));
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".into(), number(request.hits_addend.into()));
    }
    if !metadata.fields.is_empty() {
        fields.insert("metadata".into(), structure(metadata));
    }
    Some(of_request)
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Struct {
    let mut of_descriptor = Struct::default();
    let fields = &mut of_descriptor.fields;
    let entries = descriptor.entries.iter().map(|it| text(&format!("{}={}", it.key, it.value)));
    fields.insert("entries".into(), list(entries.collect()));
    if let Some(limit) = &descriptor.limit {
        let unit = RateLimitUnit::try_from(limit.unit).map_or("UNKNOWN", |unit| unit.as_str_name());
        let shown = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields.insert("limit".into(), text(&shown));
    }
    if let Some(hits) = &descriptor.hits_addend {
        fields.insert("hitsAddend".into(), number(hits.value as f64));
    }
    of_descriptor
}

fn merge(into: &mut Struct, from: &Struct) {
    for (name, value) in &from.fields {
        let Some(known) = into.fields.get_mut(name) else {
            into.fields.insert(name.clone(), value.clone());
            continue;
        };
        if let (Some(Kind::StructValue(known)), Some(Kind::StructValue(new))) =
            (&mut known.kind, &value.kind)
        {
            merge(known, new);
        }
    }
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

fn structure(fields: Struct) -> Value {
    Value { kind: Some(Kind::StructValue(fields)) }
}
