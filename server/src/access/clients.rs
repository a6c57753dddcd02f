//! The clients by their tokens.

use std::fmt;

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::Client;

/// The clients of the service. Without any, no token is needed.
///
/// Tokens are kept and compared as digests, so that neither their texts nor their lengths show in the time of a
/// comparison.
#[derive(Clone, Default)]
pub struct Clients(Vec<([u8; 32], Client)>);

/// The reason why a request is from no client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It has no token, or several.
    NoToken,
    /// It has a token that no client has.
    UnknownToken,
}

impl Clients {
    /// Adds a client with its token. Returns false if another client has the name or the token.
    #[must_use]
    pub fn add(&mut self, client: Client, token: &str) -> bool {
        let digest = digest(token.as_bytes());
        let is_taken =
            self.0.iter().any(|(other, it)| *other == digest || it.name() == client.name());
        if !is_taken {
            self.0.push((digest, client));
        }
        !is_taken
    }

    /// Returns whether there are no clients, so that no token is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the client that has sent a request with these headers.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Result<Client, Denied> {
        if self.is_empty() {
            return Ok(Client::anyone());
        }
        let sent = digest(bearer(headers).ok_or(Denied::NoToken)?);
        let mut found = None;
        // All are compared, so that the time does not depend on the one that is equal.
        for (token, client) in &self.0 {
            let is_equal: Choice = token.ct_eq(&sent);
            if bool::from(is_equal) {
                found = Some(client);
            }
        }
        found.cloned().ok_or(Denied::UnknownToken)
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
impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(_, client)| client)).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn sent(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().expect("a header");
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    #[test]
    fn a_token_is_its_client_and_nothing_else_is() {
        let mut clients = Clients::default();
        assert_eq!(clients.find(&HeaderMap::new()), Ok(Client::anyone()));
        assert!(clients.add(Client::new("shop", ["search"]), "token of the shop"));
        assert!(clients.add(Client::new("blog", ["*"]), "token of the blog"));
        assert!(!clients.add(Client::new("other", ["*"]), "token of the blog"));
        assert!(!clients.add(Client::new("shop", ["*"]), "another token"));
        let name = |token| clients.find(&sent(token)).map(|client| client.name().to_owned());
        assert_eq!(name("token of the shop").as_deref(), Ok("shop"));
        assert_eq!(name("token of the blog").as_deref(), Ok("blog"));
        for wrong in
            ["token of the sho", "token of the shop2", "token of the Shop", "another token"]
        {
            assert_eq!(name(wrong), Err(Denied::UnknownToken), "{wrong}");
        }
        assert_eq!(clients.find(&HeaderMap::new()), Err(Denied::NoToken));
        assert!(!format!("{clients:?}").contains("token of"));
    }

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
}
