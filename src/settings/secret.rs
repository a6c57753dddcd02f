//! Secrets, which are read and never written.

use std::fmt;

use serde_core::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// A secret of 128 bits. It is read from 32 hexadecimal digits, and serialized as `redacted`. Reading
/// `redacted` back is an error. No error contains the text that was read.
pub(crate) struct SecretText(pub(crate) u128);

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("redacted")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Digits)
    }
}

impl SecretText {
    pub(crate) const FORM: &str = "32 hexadecimal digits, as a text";

    /// Reads 32 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_secret = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_secret { u128::from_str_radix(text, 16).ok().map(Self) } else { None }
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = SecretText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SecretText::FORM)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SecretText, E> {
        SecretText::parse(text).ok_or_else(invalid)
    }

    // The default of these methods names the value.
    fn visit_u64<E: Error>(self, _: u64) -> Result<SecretText, E> {
        Err(invalid())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<SecretText, E> {
        Err(invalid())
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<SecretText, E> {
        Err(invalid())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<SecretText, E> {
        Err(invalid())
    }
}

fn invalid<E: Error>() -> E {
    E::custom("the value is not a secret")
}
