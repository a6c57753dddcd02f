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
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[derive(Default)]
struct RequestJson {
    domain: String,
    descriptors: Vec<DescriptorJson>,
    #[serde(alias = "hits_addend", deserialize_with = "number")]
    hits_addend: u64,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct DescriptorJson {
    entries: Vec<EntryJson>,
    limit: Option<LimitJson>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<NumberJson>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EntryJson {
    key: String,
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct LimitJson {
    #[serde(alias = "requests_per_unit", deserialize_with = "number")]
    requests_per_unit: u64,
    unit: UnitJson,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UnitJson {
    Name(String),
    Number(i32),
}

/// A number, which may be written as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberJson {
    Number(u64),
    Text(String),
}

impl Default for UnitJson {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl NumberJson {
    fn value(&self) -> Result<u64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text
                .parse()
                .map_err(|_| format!("found the text {text:?}, allowed is a whole number")),
        }
    }
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    NumberJson::deserialize(from)?.value().map_err(D::Error::custom)
}

/// Reads a request.
///
/// # Errors
///
/// Returns an error that says what is wrong.
pub(super) fn request(body: &[u8]) -> Result<RateLimitRequest, String> {
    let read: RequestJson = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let hits_addend = u32::try_from(read.hits_addend);
    let descriptors: Result<_, String> = read.descriptors.into_iter().map(descriptor).collect();
    Ok(RateLimitRequest {
        domain: read.domain,
        descriptors: descriptors?,
        hits_addend: hits_addend.map_err(|_| "`hitsAddend` is above 4294967295".to_owned())?,
    })
}

fn descriptor(read: DescriptorJson) -> Result<RateLimitDescriptor, String> {
    let entries = read.entries.into_iter().map(|it| Entry { key: it.key, value: it.value });
    let limit = read.limit.map(|limit| {
        let unit = match limit.unit {
            UnitJson::Number(number) => number,
            UnitJson::Name(name) => match RateLimitUnit::from_str_name(&name) {
                Some(unit) => unit as i32,
                None => return Err(format!("`unit` is {name:?}, allowed are SECOND to YEAR")),
            },
        };
        let requests = u32::try_from(limit.requests_per_unit);
        let requests_per_unit =
            requests.map_err(|_| "`requestsPerUnit` is above 4294967295".to_owned())?;
        Ok(RateLimitOverride { requests_per_unit, unit })
    });
    let hits = read.hits_addend.map(|hits| hits.value().map(|value| UInt64Value { value }));
    Ok(RateLimitDescriptor {
        entries: entries.collect(),
        limit: limit.transpose()?,
        hits_addend: hits.transpose()?,
        is_negative_hits: read.is_negative_hits,
    })
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
