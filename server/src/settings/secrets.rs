//! Secrets: tokens, and the secret of receipts. They come from the environment or the settings file, and never
//! from a flag.

use std::env;

use super::SettingsError;

/// The environment variables of three secrets: the token of clients, the token of operators, and the secret of
/// receipts.
pub(super) const SECRETS: [&str; 3] =
    ["PLIMSOLL_TOKEN", "PLIMSOLL_ADMIN_TOKEN", "PLIMSOLL_RECEIPT_SECRET"];

/// The fewest bytes of a secret.
const MIN_BYTES: usize = 16;

/// The most bytes of a secret.
const MAX_BYTES: usize = 1_024;

/// Returns the value of an environment variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a secret as it is written, or the environment variable that `${NAME}` names.
///
/// # Errors
///
/// Returns an error if the variable is not set, or if the secret is too short or too long. The error does not
/// contain the secret.
pub(super) fn resolve(field: &str, text: &str) -> Result<String, SettingsError> {
    let variable = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let secret = match variable {
        None => text.to_owned(),
        Some(name) => env::var(name).map_err(|_| {
            SettingsError::new(
                field,
                format!("${{{name}}}, which is not set"),
                "a variable that is set",
            )
        })?,
    };
    let is_allowed = secret.bytes().all(|byte| byte.is_ascii_graphic());
    if (MIN_BYTES..=MAX_BYTES).contains(&secret.len()) && is_allowed {
        return Ok(secret);
    }
    let found = format!("a text of {} bytes", secret.len());
    let allowed = format!("{MIN_BYTES} to {MAX_BYTES} printable ASCII characters without spaces");
    Err(SettingsError::new(field, found, allowed))
}
