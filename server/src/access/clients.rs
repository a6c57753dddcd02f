//! The clients by their tokens.

use std::fmt;

use http::HeaderMap;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::{Client, bearer};

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
    use http::header::AUTHORIZATION;

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
}
