//! A client, and the policies that it may use.

use std::sync::Arc;

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
    /// Creates a client. A policy is a name, or the beginning of names followed by `*`.
    #[must_use]
    pub fn new(name: &str, policies: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let policies = policies.into_iter().map(|policy| policy.as_ref().to_owned()).collect();
        Self { name: name.into(), policies }
    }

    /// Returns the client of all requests, if the service has no tokens.
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

    /// Returns whether the client may use all policies.
    #[must_use]
    pub fn may_use_all(&self) -> bool {
        self.policies.iter().any(|allowed| allowed == "*")
    }
}
