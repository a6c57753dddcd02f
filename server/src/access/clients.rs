//! The clients by their [tokens](Tokens).

use std::fmt;

use http::HeaderMap;
use plimsoll_control::web::{TokenError, Tokens};

use super::Client;

/// The clients of the service. Without any, no token is needed.
#[derive(Clone, Default)]
pub struct Clients(Tokens<Client>);

impl Clients {
    /// Adds a client with its token. Returns false if another client has the name or the token.
    #[must_use]
    pub fn add(&mut self, client: Client, token: &str) -> bool {
        self.0.senders().all(|other| other.name() != client.name()) && self.0.add(token, client)
    }

    /// Returns whether there are no clients, so that no token is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.senders().next().is_none()
    }

    /// Returns the client that has sent a request with these headers.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Result<Client, TokenError> {
        if self.is_empty() {
            return Ok(Client::anyone());
        }
        self.0.find(headers).cloned()
    }
}

/// Prints no token.
impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
            assert_eq!(name(wrong), Err(TokenError::Unknown), "{wrong}");
        }
        assert_eq!(clients.find(&HeaderMap::new()), Err(TokenError::Missing));
        assert!(!format!("{clients:?}").contains("token of"));
    }
}
