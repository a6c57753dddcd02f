//! Texts that no message shows, and environment variables in them.

use std::{env, fmt};

use serde::{Deserialize, Deserializer, de::Error};

/// A text that may be secret. `${NAME}` in it stands for the environment variable of this name.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::config) struct Secret(pub(in crate::config) String);

/// A secret of 32 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::config) struct HexSecret(pub(in crate::config) u128);

impl Secret {
    fn expand(mut text: &str) -> Result<Self, String> {
        let mut expanded = String::new();
        while let Some((before, rest)) = text.split_once("${") {
            let allowed = "allowed is ${NAME} with the name of an environment variable";
            let (name, after) =
                rest.split_once('}').ok_or_else(|| format!("`${{` without `}}`, {allowed}"))?;
            // A part of a secret is no name, and is not written.
            if name.is_empty() || name.contains(|it: char| !it.is_ascii_alphanumeric() && it != '_')
            {
                return Err(format!("`${{}}` without a name, {allowed}"));
            }
            let value = env::var(name).map_err(|error| match error {
                env::VarError::NotPresent => {
                    format!("the environment variable `{name}` is not set")
                }
                env::VarError::NotUnicode(_) => {
                    format!("the environment variable `{name}` is not UTF-8")
                }
            })?;
            expanded = expanded + before + &value;
            text = after;
        }
        Ok(Self(expanded + text))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The error of another type would name its value.
        let text = String::deserialize(from).map_err(|_| {
            D::Error::custom("found a value that is not a text, allowed is a text, or \"${NAME}\"")
        })?;
        Self::expand(&text).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for HexSecret {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Secret(text) = Secret::deserialize(from)?;
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = is_hex.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        digits.map(Self).ok_or_else(|| {
            D::Error::custom(
                "the value is not a secret, allowed is 32 hexadecimal digits as a text",
            )
        })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for HexSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HexSecret")
    }
}
