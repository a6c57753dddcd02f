//! [`RedisConfig`] as serialized data.

use serde_core::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::RedisConfig;
use crate::settings::{DurationText, Form, SecretText, fields};

fields! {
    RedisConfig, RedisConfig::validate;
    prefix: String, "1 to 64 printable ASCII characters without braces or spaces";
    secret: KeySecret, "32 hexadecimal digits as a text, or default";
    plain_keys: bool, "true or false";
    connections: usize, "1 to 64";
    batching: bool, "true or false";
    connect_timeout: DurationText, "1 ms to 1 hour";
    response_timeout: DurationText, "1 ms to 1 hour";
    lazy: bool, "true or false";
}

const DEFAULT: &str = "default";

/// The secret of the hash that names keys: `default`, 32 hexadecimal digits, or, when it is serialized,
/// `redacted`.
struct KeySecret((u64, u64));

impl Form for KeySecret {
    type Value = (u64, u64);

    fn of(value: &Self::Value) -> Self {
        Self(*value)
    }

    fn into_value(self) -> Self::Value {
        self.0
    }
}

impl Serialize for KeySecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == RedisConfig::default().secret {
            return serializer.serialize_str(DEFAULT);
        }
        SecretText(0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeySecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)
            // The error of another type would name its value.
            .map_err(|_| D::Error::custom("the value is not a secret"))?;
        if text == DEFAULT {
            return Ok(Self(RedisConfig::default().secret));
        }
        let secret = SecretText::parse(&text);
        let SecretText(secret) =
            secret.ok_or_else(|| D::Error::custom("the value is not a secret"))?;
        Ok(Self(((secret >> 64) as u64, secret as u64)))
    }
}
