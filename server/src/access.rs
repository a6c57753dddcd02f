//! The [clients](Clients) of the service: their tokens, and the policies that each may use.

use std::sync::Arc;

use http::HeaderMap;
use plimsoll_control::web::{TokenError, Tokens};

/// A program that uses the service, and the policies that it may use.
///
/// ```
/// use plimsoll_server::access::Client;
///
/// let client = Client::new("shop", ["search", "orders-*"]);
/// assert!(client.may_use("search"));
/// assert!(client.may_use("orders-per-day"));
/// assert!(!client.may_use("search-per-day"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    name: Arc<str>,
    policies: Arc<[String]>,
}

impl Client {
    /// Creates a client. A [policy](plimsoll::Policy) is a name, or the beginning of names followed by `*`.
    #[must_use]
    pub fn new(name: &str, policies: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let policies = policies.into_iter().map(|policy| policy.as_ref().to_owned()).collect();
        Self { name: name.into(), policies }
    }

    /// Returns the client of all requests, if [the service has no tokens](Clients::is_empty).
    #[must_use]
    pub fn anyone() -> Self {
        Self::new("", ["*"])
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the client may use the policy of this name.
    #[must_use]
    pub fn may_use(&self, policy: &str) -> bool {
        self.policies.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(start) => policy.starts_with(start),
            None => policy == allowed,
        })
    }

    /// Returns whether the client may use all policies, as [`anyone`](Self::anyone) may.
    #[must_use]
    pub fn may_use_all(&self) -> bool {
        self.policies.iter().any(|allowed| allowed == "*")
    }
}

/// The [clients](Client) of the service. Without any, no token is needed.
#[derive(Debug, Clone, Default)]
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
