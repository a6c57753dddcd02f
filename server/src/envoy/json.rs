//! Requests and responses in the JSON of protobuf.

use envoy_types::pb::{
    envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse, rate_limit_response::DescriptorStatus,
        },
        r#type::v3::RateLimitUnit,
    },
    google::protobuf::{Struct, UInt64Value, Value as ProtoValue, value::Kind},
};
use serde_json::{Map, Number, Value, json};

/// The most characters of a value that an error shows.
const MAX_SHOWN_CHARS: usize = 40;

/// Reads a request.
///
/// Names are in lowerCamelCase or as in the `.proto` file, `null` is the default of a field, and numbers may be texts or
/// have an exponent. A field that the message does not have is an error.
///
/// # Errors
///
/// Returns an error that names the field, what it is, and what is allowed.
pub(super) fn request(body: &[u8]) -> Result<RateLimitRequest, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let body = Field { value: &value, at: String::new() };
    let message = body.message(&["domain", "descriptors", "hitsAddend"])?;
    Ok(RateLimitRequest {
        domain: message.read("domain", Field::text)?,
        descriptors: message.read("descriptors", |field| field.list(descriptor))?,
        hits_addend: message.read("hitsAddend", Field::number_32)?,
    })
}

fn descriptor(field: &Field<'_>) -> Result<RateLimitDescriptor, String> {
    let message = field.message(&["entries", "limit", "hitsAddend", "isNegativeHits"])?;
    let hits = |field: &Field<'_>| Ok(Some(UInt64Value { value: field.number(u64::MAX)? }));
    Ok(RateLimitDescriptor {
        entries: message.read("entries", |field| field.list(entry))?,
        limit: message.read("limit", |field| limit(field).map(Some))?,
        hits_addend: message.read("hitsAddend", hits)?,
        is_negative_hits: message.read("isNegativeHits", Field::flag)?,
    })
}

fn entry(field: &Field<'_>) -> Result<Entry, String> {
    let message = field.message(&["key", "value"])?;
    Ok(Entry { key: message.read("key", Field::text)?, value: message.read("value", Field::text)? })
}

fn limit(field: &Field<'_>) -> Result<RateLimitOverride, String> {
    let message = field.message(&["requestsPerUnit", "unit"])?;
    Ok(RateLimitOverride {
        requests_per_unit: message.read("requestsPerUnit", Field::number_32)?,
        unit: message.read("unit", Field::unit)?,
    })
}

/// A value of a body.
struct Field<'v> {
    value: &'v Value,
    /// Its path from the top, such as `descriptors[0].hitsAddend`.
    at: String,
}

/// An object of a body whose fields are all known.
struct Message<'v> {
    fields: &'v Map<String, Value>,
    at: &'v str,
}

impl<'v> Message<'v> {
    /// Returns the field of this name, read by `read`, or its default if there is none or it is `null`.
    fn read<T: Default>(
        &self,
        name: &str,
        read: impl FnOnce(&Field<'v>) -> Result<T, String>,
    ) -> Result<T, String> {
        let at = match self.at {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        };
        let snake = snake_case(name);
        let other = self.fields.get(&snake).filter(|_| snake != name);
        match (self.fields.get(name), other) {
            (Some(_), Some(_)) => Err(format!("`{at}` is there in both spellings")),
            (Some(value), None) | (None, Some(value)) if !value.is_null() => {
                read(&Field { value, at })
            }
            _ => Ok(T::default()),
        }
    }
}

impl<'v> Field<'v> {
    /// Returns the object with these fields, which are in lowerCamelCase.
    fn message(&self, names: &[&str]) -> Result<Message<'_>, String> {
        let Value::Object(fields) = self.value else { return Err(self.mistake("an object")) };
        let is_known = |field: &str| names.iter().any(|it| *it == field || snake_case(it) == field);
        match fields.keys().find(|field| !is_known(field)) {
            None => Ok(Message { fields, at: &self.at }),
            Some(field) => {
                let (at, field, names) = (self.place(), shown(field), names.join(", "));
                Err(format!("{at} has the unknown field `{field}`, allowed are {names}"))
            }
        }
    }

    fn list<T>(&self, read: impl Fn(&Field<'v>) -> Result<T, String>) -> Result<Vec<T>, String> {
        let Value::Array(values) = self.value else { return Err(self.mistake("a list")) };
        let fields = values.iter().enumerate();
        fields.map(|(at, value)| read(&Field { value, at: format!("{}[{at}]", self.at) })).collect()
    }

    fn text(&self) -> Result<String, String> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.mistake("a text"))
    }

    fn flag(&self) -> Result<bool, String> {
        self.value.as_bool().ok_or_else(|| self.mistake("true or false"))
    }

    /// Returns a whole number, which may be a text, and may have an exponent or a fraction of zeros.
    fn number(&self, max: u64) -> Result<u64, String> {
        let number = match self.value {
            Value::Number(number) => whole(number),
            Value::String(text) => serde_json::from_str(text).ok().and_then(|it| whole(&it)),
            _ => None,
        };
        let number = number.filter(|number| *number <= max);
        number.ok_or_else(|| self.mistake(&format!("a whole number from 0 to {max}")))
    }

    fn number_32(&self) -> Result<u32, String> {
        let number = self.number(u32::MAX.into())?;
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    }

    fn unit(&self) -> Result<i32, String> {
        let unit = match self.value.as_str() {
            Some(name) => RateLimitUnit::from_str_name(name).map(|unit| unit as i32),
            None => self.number(u32::MAX.into()).ok().and_then(|number| i32::try_from(number).ok()),
        };
        unit.ok_or_else(|| {
            self.mistake("SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, or the number of one")
        })
    }

    fn place(&self) -> String {
        if self.at.is_empty() { "the body".to_owned() } else { format!("`{}`", self.at) }
    }

    fn mistake(&self, allowed: &str) -> String {
        let found = match self.value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            other => shown(&other.to_string()),
        };
        format!("{} is {found}, allowed is {allowed}", self.place())
    }
}

/// Returns the number if it is whole and not negative.
fn whole(number: &Number) -> Option<u64> {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let of_float =
        |float: f64| (float.fract() == 0.0 && (0.0..END).contains(&float)).then_some(float as u64);
    number.as_u64().or_else(|| number.as_f64().and_then(of_float))
}

/// Returns the name in the `.proto` file of a name in lowerCamelCase.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

fn shown(text: &str) -> String {
    let cut = text.char_indices().nth(MAX_SHOWN_CHARS);
    cut.map_or_else(|| text.to_owned(), |(at, _)| format!("{}..", &text[..at]))
}

/// Returns a response as JSON. Fields with the default value are left out.
pub(super) fn response(response: &RateLimitResponse) -> Value {
    let mut fields = Map::new();
    fields.insert("overallCode".into(), response.overall_code().as_str_name().into());
    fields.insert("statuses".into(), response.statuses.iter().map(status).collect());
    let headers = &response.response_headers_to_add;
    if !headers.is_empty() {
        let headers =
            headers.iter().map(|it| json!({ "key": it.key, "value": it.value })).collect();
        fields.insert("responseHeadersToAdd".into(), headers);
    }
    if let Some(metadata) = &response.dynamic_metadata {
        fields.insert("dynamicMetadata".into(), structure(metadata));
    }
    Value::Object(fields)
}

fn status(status: &DescriptorStatus) -> Value {
    let mut fields = Map::new();
    fields.insert("code".into(), status.code().as_str_name().into());
    if let Some(limit) = &status.current_limit {
        let mut shown = Map::new();
        if !limit.name.is_empty() {
            shown.insert("name".into(), limit.name.as_str().into());
        }
        if limit.requests_per_unit != 0 {
            shown.insert("requestsPerUnit".into(), limit.requests_per_unit.into());
        }
        shown.insert("unit".into(), limit.unit().as_str_name().into());
        fields.insert("currentLimit".into(), Value::Object(shown));
    }
    if status.limit_remaining != 0 {
        fields.insert("limitRemaining".into(), status.limit_remaining.into());
    }
    if let Some(reset) = &status.duration_until_reset {
        fields.insert("durationUntilReset".into(), format!("{}s", reset.seconds).into());
    }
    Value::Object(fields)
}

fn structure(from: &Struct) -> Value {
    Value::Object(from.fields.iter().map(|(name, it)| (name.clone(), value(it))).collect())
}

fn value(from: &ProtoValue) -> Value {
    match &from.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => (*value).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(value).collect(),
        Some(Kind::StructValue(fields)) => structure(fields),
    }
}
