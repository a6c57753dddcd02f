//! Requests and responses in the JSON of protobuf.
//!
//! Names of a request are in lowerCamelCase or as in the `.proto` file, `null` is the default of a field, and numbers may
//! be texts or have an exponent. A field that the message does not have is an error.

use std::fmt;

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::DescriptorStatus,
    },
    r#type::v3::RateLimitUnit,
};
use envoy_types::pb::google::protobuf::UInt64Value;
use plimsoll_control::{
    Format,
    document::{self, Mistake},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};
use serde_json::{Value, json};

use super::dynamic_metadata;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RequestBody {
    domain: Option<String>,
    descriptors: Option<Vec<DescriptorBody>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DescriptorBody {
    entries: Option<Vec<EntryBody>>,
    limit: Option<LimitBody>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryBody {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LimitBody {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Number>,
    unit: Option<UnitBody>,
}

/// A whole number, also as a text. It may have an exponent, or a fraction of zeros.
struct Number(u64);

/// The name or the number of a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "SECOND, MINUTE, HOUR, DAY, MONTH or YEAR, or the number of one")]
enum UnitBody {
    Name(String),
    Number(Number),
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct NumberVisitor;

        impl Visitor<'_> for NumberVisitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of 0 or more, also as a text")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Number, E> {
                Ok(Number(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
                const END: f64 = 18_446_744_073_709_551_616.0; // 2^64
                if number.fract() == 0.0 && (0.0..END).contains(&number) {
                    return Ok(Number(number as u64));
                }
                Err(E::invalid_value(Unexpected::Float(number), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                let number: Result<serde_json::Number, _> = serde_json::from_str(text);
                match number.map(|it| (it.as_u64(), it.as_f64())) {
                    Ok((Some(number), _)) => self.visit_u64(number),
                    Ok((None, Some(number))) => self.visit_f64(number),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }

        from.deserialize_any(NumberVisitor)
    }
}

impl Number {
    fn of_32_bits(number: Option<Self>, name: &str) -> Result<u32, String> {
        let number = number.map_or(0, |number| number.0);
        u32::try_from(number)
            .map_err(|_| format!("`{name}` is {number}, allowed is at most {}", u32::MAX))
    }
}

/// The names of units.
const UNITS: &str = "SECOND, MINUTE, HOUR, DAY, MONTH and YEAR";

/// Reads a request.
///
/// # Errors
///
/// Returns an error that names the fields, their values, and the allowed values.
pub(super) fn request(body: &[u8]) -> Result<RateLimitRequest, String> {
    let text = str::from_utf8(body).map_err(|error| error.to_string())?;
    let body: RequestBody = document::read(text, Format::Json).map_err(|mistakes| {
        mistakes.iter().map(Mistake::in_a_line).collect::<Vec<_>>().join("; ")
    })?;
    let descriptors = body.descriptors.unwrap_or_default().into_iter().map(descriptor);
    Ok(RateLimitRequest {
        domain: body.domain.unwrap_or_default(),
        descriptors: descriptors.collect::<Result<_, _>>()?,
        hits_addend: Number::of_32_bits(body.hits_addend, "hitsAddend")?,
    })
}

fn descriptor(body: DescriptorBody) -> Result<RateLimitDescriptor, String> {
    let entries = body.entries.unwrap_or_default().into_iter().map(|entry| Entry {
        key: entry.key.unwrap_or_default(),
        value: entry.value.unwrap_or_default(),
    });
    Ok(RateLimitDescriptor {
        entries: entries.collect(),
        limit: body.limit.map(limit).transpose()?,
        hits_addend: body.hits_addend.map(|number| UInt64Value { value: number.0 }),
        is_negative_hits: body.is_negative_hits.unwrap_or_default(),
    })
}

fn limit(body: LimitBody) -> Result<RateLimitOverride, String> {
    let unit = match body.unit {
        None => Some(0),
        Some(UnitBody::Number(Number(number))) => i32::try_from(number).ok(),
        Some(UnitBody::Name(name)) => RateLimitUnit::from_str_name(&name).map(|unit| unit as i32),
    };
    let unit = unit.ok_or_else(|| format!("there is no such unit, allowed are {UNITS}"))?;
    let requests_per_unit = Number::of_32_bits(body.requests_per_unit, "requestsPerUnit")?;
    Ok(RateLimitOverride { requests_per_unit, unit })
}

/// Returns a response as JSON. Fields with the default value are left out.
pub(super) fn response(response: &RateLimitResponse) -> Value {
    let headers = response.response_headers_to_add.iter();
    let headers = headers.map(|it| json!({ "key": it.key, "value": it.value }));
    without_defaults(json!({
        "overallCode": response.overall_code().as_str_name(),
        "statuses": response.statuses.iter().map(status).collect::<Vec<_>>(),
        "responseHeadersToAdd": headers.collect::<Vec<_>>(),
        "dynamicMetadata": response.dynamic_metadata.as_ref().map(dynamic_metadata::to_json),
    }))
}

fn status(status: &DescriptorStatus) -> Value {
    let limit = status.current_limit.as_ref().map(|limit| {
        without_defaults(json!({
            "name": limit.name,
            "requestsPerUnit": limit.requests_per_unit,
            "unit": limit.unit().as_str_name(),
        }))
    });
    let reset = status.duration_until_reset.as_ref();
    without_defaults(json!({
        "code": status.code().as_str_name(),
        "currentLimit": limit,
        "limitRemaining": status.limit_remaining,
        "durationUntilReset": reset.map(|reset| format!("{}s", reset.seconds)),
    }))
}

fn without_defaults(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, field| {
            *field != Value::Null
                && *field != json!(0)
                && *field != json!("")
                && *field != json!([])
        });
    }
    object
}
