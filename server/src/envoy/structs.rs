//! The structs of protobuf, from JSON and to JSON.

use envoy_types::pb::google::protobuf::{ListValue, NullValue, Struct, Value, value::Kind};
use serde_json::{Map, Value as Json};

/// Returns the struct of some fields.
pub(super) fn of_json(fields: &Map<String, Json>) -> Struct {
    Struct { fields: fields.iter().map(|(name, field)| (name.clone(), value(field))).collect() }
}

fn value(json: &Json) -> Value {
    let kind = match json {
        Json::Null => Kind::NullValue(NullValue::NullValue as i32),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::MAX)),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(value).collect() })
        }
        Json::Object(fields) => Kind::StructValue(of_json(fields)),
    };
    Value { kind: Some(kind) }
}

/// Returns a struct as JSON.
pub(super) fn to_json(from: &Struct) -> Json {
    Json::Object(from.fields.iter().map(|(name, it)| (name.clone(), json(it))).collect())
}

fn json(from: &Value) -> Json {
    match &from.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(value)) => (*value).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(json).collect(),
        Some(Kind::StructValue(fields)) => to_json(fields),
    }
}
