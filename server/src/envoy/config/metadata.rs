//! The metadata of a descriptor as a protobuf struct.

use envoy_types::pb::google::protobuf::{ListValue, NullValue, Struct, Value, value::Kind};
use serde_json::{Map, Value as Json};

/// Returns the struct of the fields, or `None` if there are none.
///
/// # Errors
///
/// Returns an error if a number does not fit the type.
pub(super) fn of(fields: &Map<String, Json>) -> Result<Option<Struct>, String> {
    if fields.is_empty() { Ok(None) } else { fields_of(fields).map(Some) }
}

fn fields_of(fields: &Map<String, Json>) -> Result<Struct, String> {
    let fields: Result<_, _> =
        fields.iter().map(|(name, field)| Ok::<_, String>((name.clone(), value(field)?))).collect();
    Ok(Struct { fields: fields? })
}

fn value(json: &Json) -> Result<Value, String> {
    let kind = match json {
        Json::Null => Kind::NullValue(NullValue::NullValue as i32),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(number) => {
            let float = number.as_f64().filter(|it| it.is_finite());
            Kind::NumberValue(float.ok_or_else(|| format!("found the number {number}"))?)
        }
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => {
            let values: Result<_, _> = items.iter().map(value).collect();
            Kind::ListValue(ListValue { values: values? })
        }
        Json::Object(fields) => Kind::StructValue(fields_of(fields)?),
    };
    Ok(Value { kind: Some(kind) })
}
