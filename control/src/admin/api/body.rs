//! The bodies of changes, and the forms of their values.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use axum::extract::{FromRequest, Request};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, Visitor},
};

use crate::{
    admin::time,
    time::wall_time,
    web::{self, Problem},
};

/// The longest body, in bytes.
const MAX_BYTES: usize = 16 * 1_024;

/// The time for reading a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// A change that an operator asks for.
pub(in crate::admin) struct Change<T>(pub(in crate::admin) T);

/// The text of a key. A key that is a number may be written as one.
pub(in crate::admin) struct KeyText(pub(super) String);

/// The end of an override: a text as operators write it, or milliseconds since the Unix epoch.
pub(in crate::admin) struct End(pub(super) SystemTime);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Change<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        web::json(request, MAX_BYTES, PATIENCE).await.map(Self)
    }
}

/// Reads a text or a whole number as a text.
struct TextOrNumber(&'static str);

impl Visitor<'_> for TextOrNumber {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextOrNumber("a text or a whole number")).map(Self)
    }
}

impl<'de> Deserialize<'de> for End {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = from.deserialize_any(TextOrNumber(time::ALLOWED))?;
        time::until(&text, wall_time()).map(Self).map_err(|cause| {
            let allowed = time::ALLOWED;
            D::Error::custom(format!("found {text:.80?}{cause}, allowed is {allowed}"))
        })
    }
}
