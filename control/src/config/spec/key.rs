//! The keys of rules.

use std::fmt;

use serde::Deserialize;

use super::HeaderText;

/// The key of a rule: the client that is charged. The names are the same as of the functions in `plimsoll::by`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", expecting = "a key")]
pub(in crate::config) enum KeySpec {
    /// The address of the client, which is found as `client_ip` of the file says.
    ClientIp,
    /// The address at the other end of the connection.
    PeerIp,
    /// The token of `Authorization: Bearer`.
    BearerToken,
    /// The pattern of the route that axum has matched: all clients share one budget for each route.
    MatchedRoute,
    /// One key that all requests share.
    Anonymous,
    /// The value of a header, byte for byte.
    Header(HeaderText),
    /// The name of an account in a header: upper and lower case, and spaces around it, are ignored.
    NameInHeader(HeaderText),
    /// The value of a cookie.
    Cookie(String),
    /// A parameter of the path, such as the `id` of `/users/{id}`.
    PathParam(String),
    /// A claim that an earlier layer has left.
    Claim(String),
    /// This text, for all requests.
    Constant(String),
    /// The first of these keys that the request has.
    FirstOf(Vec<KeySpec>),
    /// All of these keys together, such as an account at an address.
    AllOf(Vec<KeySpec>),
}

fn listed(keys: &[KeySpec]) -> String {
    let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
    keys.join(", ")
}

/// Writes the key as `plimsoll check-config` shows it, such as `first_of(bearer_token, peer_ip)`.
impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIp => f.write_str("client_ip"),
            Self::PeerIp => f.write_str("peer_ip"),
            Self::BearerToken => f.write_str("bearer_token"),
            Self::MatchedRoute => f.write_str("matched_route"),
            Self::Anonymous => f.write_str("anonymous"),
            Self::Header(name) => write!(f, "header({})", name.0),
            Self::NameInHeader(name) => write!(f, "name_in_header({})", name.0),
            Self::Cookie(name) => write!(f, "cookie({name})"),
            Self::PathParam(name) => write!(f, "path_param({name})"),
            Self::Claim(name) => write!(f, "claim({name})"),
            Self::Constant(text) => write!(f, "constant({text})"),
            Self::FirstOf(keys) => write!(f, "first_of({})", listed(keys)),
            Self::AllOf(keys) => write!(f, "all_of({})", listed(keys)),
        }
    }
}
