//! The fields of a body. Errors name the field, what was found, and what is allowed.

use std::fmt;

use http::StatusCode;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, error::Category};

use crate::admin::problem::Problem;

/// The fields of a JSON object.
pub(in crate::admin) struct Fields {
    fields: Vec<(String, Value)>,
    /// A name that is there twice.
    twice: Option<String>,
}

/// A change that is read from the fields of a body.
pub(in crate::admin) trait FromFields: Sized {
    /// The names of all fields.
    const NAMES: &'static [&'static str];

    /// Reads the fields.
    ///
    /// # Errors
    ///
    /// Returns a problem if a field is missing or is of another type.
    fn from_fields(fields: &mut Fields) -> Result<Self, Problem>;
}

impl Fields {
    /// Reads a body into a change.
    pub(super) fn read<T: FromFields>(body: &[u8]) -> Result<T, Problem> {
        let allowed = || format!("a JSON object with the fields {}", listed(T::NAMES));
        if body.trim_ascii().is_empty() {
            let problem = Problem::new(StatusCode::BAD_REQUEST, "Malformed", "The body is empty");
            return Err(problem.allowed(allowed()));
        }
        let mut fields: Self = serde_json::from_slice(body).map_err(|error| {
            if error.classify() == Category::Data {
                return Problem::invalid("The body is JSON, and no object", allowed());
            }
            let detail = format!("The body is no JSON: {error}");
            Problem::new(StatusCode::BAD_REQUEST, "Malformed", detail).allowed(allowed())
        })?;
        if let Some(name) = &fields.twice {
            return Err(Problem::invalid(format!("The field {name:?} is there twice"), "once"));
        }
        let unknown = fields.fields.iter().find(|(name, _)| !T::NAMES.contains(&name.as_str()));
        if let Some((name, _)) = unknown {
            return Err(Problem::invalid(format!("There is no field {name:?}"), listed(T::NAMES)));
        }
        T::from_fields(&mut fields)
    }

    /// Returns a text that the change needs.
    pub(super) fn text(&mut self, name: &str) -> Result<String, Problem> {
        self.optional_text(name)?.ok_or_else(|| {
            let detail = format!("The field {name:?} is missing");
            Problem::invalid(detail, format!("{name:?} with a text"))
        })
    }

    /// Returns a text, or `None` if it is missing or null.
    pub(super) fn optional_text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(name, &other, "a text")),
        }
    }

    /// Returns the text of a key. A key that is a number may be written as one.
    pub(super) fn optional_key(&mut self) -> Result<Option<String>, Problem> {
        match self.take("key") {
            Some(Value::Number(number)) if !number.is_f64() => Ok(Some(number.to_string())),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type("key", &other, "a text or a whole number")),
            None => Ok(None),
        }
    }

    /// Returns the text of a key that the change needs.
    pub(super) fn key(&mut self) -> Result<String, Problem> {
        self.optional_key()?
            .ok_or_else(|| Problem::invalid("The field \"key\" is missing", "\"key\" with a text"))
    }

    /// Returns the version of an override, or `None` if it is missing or null.
    pub(super) fn version(&mut self) -> Result<Option<u64>, Problem> {
        let Some(value) = self.take("version") else { return Ok(None) };
        let allowed = "the version of the override, or 0 if there is none";
        value.as_u64().map(Some).ok_or_else(|| wrong_type("version", &value, allowed))
    }

    /// Returns a value, or `None` if it is missing or null.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        let (_, value) = self.fields.iter_mut().find(|(it, _)| it == name)?;
        Some(value.take()).filter(|value| !value.is_null())
    }
}

fn wrong_type(name: &str, found: &Value, allowed: &str) -> Problem {
    Problem::invalid(format!("The field {name:?} is {found:.80}"), allowed)
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields { fields: Vec::new(), twice: None };
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.fields.iter().any(|(other, _)| *other == name) {
                        fields.twice.get_or_insert(name);
                    } else {
                        fields.fields.push((name, value));
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_any(Object)
    }
}
