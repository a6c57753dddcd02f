//! Senders of requests by their tokens.

use std::fmt;

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// Senders of requests by their tokens in the header `Authorization: Bearer ..`.
///
/// Tokens are kept and compared as digests, so that neither their texts nor their lengths show in the time of a
/// comparison.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
/// use plimsoll_control::web::{TokenError, Tokens};
///
/// let mut tokens = Tokens::default();
/// assert!(tokens.add("2f0e9d5c", "alice"));
/// let mut headers = HeaderMap::new();
/// assert_eq!(tokens.find(&headers), Err(TokenError::Missing));
/// headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer 2f0e9d5c"));
/// assert_eq!(tokens.find(&headers), Ok(&"alice"));
/// ```
#[derive(Clone)]
pub struct Tokens<T>(Vec<([u8; 32], T)>);

/// The reason why a request is from no sender that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenError {
    /// It has no token, or several.
    Missing,
    /// It has a token that no sender has.
    Unknown,
}

impl<T> Tokens<T> {
    /// Adds a sender with its token. Returns false, and does nothing, if the token is empty or is the token of
    /// another sender.
    #[must_use]
    pub fn add(&mut self, token: &str, sender: T) -> bool {
        let digest = digest(token.as_bytes());
        let is_new = !token.is_empty() && self.0.iter().all(|(other, _)| *other != digest);
        if is_new {
            self.0.push((digest, sender));
        }
        is_new
    }

    /// Returns all senders.
    pub fn senders(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, sender)| sender)
    }

    /// Returns the sender of a request with these headers.
    ///
    /// # Errors
    ///
    /// Returns an error if the request does not have exactly one token, or if no sender has it.
    pub fn find(&self, headers: &HeaderMap) -> Result<&T, TokenError> {
        let sent = digest(bearer(headers).ok_or(TokenError::Missing)?);
        let mut found = None;
        // All tokens are compared, so that the time does not depend on the place of the right one.
        for (token, sender) in &self.0 {
            let is_equal: Choice = token.ct_eq(&sent);
            if bool::from(is_equal) {
                found = Some(sender);
            }
        }
        found.ok_or(TokenError::Unknown)
    }
}

impl<T> Default for Tokens<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Returns the token of the header `Authorization: Bearer ..` (RFC 6750, section 2.1), if the request has
/// exactly one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Prints no token.
impl<T: fmt::Debug> fmt::Debug for Tokens<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.senders()).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_one_bearer_token_is_a_token() {
        let token = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_static(value));
            }
            bearer(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(token(&["Bearer secret"]).as_deref(), Some(&b"secret"[..]));
        assert_eq!(token(&["bEARER  secret "]).as_deref(), Some(&b"secret"[..]));
        for none in
            [&[][..], &["Bearer "], &["Bearer"], &["Basic secret"], &["Bearer a", "Bearer b"]]
        {
            assert_eq!(token(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_token_is_its_sender_and_nothing_else_is() {
        let mut tokens = Tokens::default();
        assert!(tokens.add("secret", "alice") && tokens.add("other", "bob"));
        assert!(!tokens.add("", "x") && !tokens.add("secret", "mallory"));
        let find = |token: &str| {
            let value = format!("Bearer {token}").parse().expect("a header");
            tokens.find(&HeaderMap::from_iter([(AUTHORIZATION, value)])).copied()
        };
        assert_eq!((find("secret"), find("other")), (Ok("alice"), Ok("bob")));
        for wrong in ["secre", "secret2", "Secret", "wrong"] {
            assert_eq!(find(wrong), Err(TokenError::Unknown), "{wrong}");
        }
        assert!(!format!("{tokens:?}").contains("secret"));
    }
}
