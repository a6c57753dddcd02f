//! How the keys of a policy are written, so that the text of an operator finds the key of a rule.

use std::{fmt, net::IpAddr, sync::Arc};

use plimsoll::{Key, by::ClientIp};

/// The type of the keys of a policy: how the text that an operator writes becomes the [`Key`] that a rule
/// charges.
///
/// ```
/// use plimsoll::Key;
/// use plimsoll_control::KeyType;
///
/// assert_eq!(KeyType::Integer.parse("42").unwrap(), Key::from(42));
/// assert_ne!(KeyType::Text.parse("42").unwrap(), Key::from(42));
///
/// let error = KeyType::Integer.parse("alice").unwrap_err();
/// assert_eq!(error.to_string(), "the key is \"alice\", allowed is an integer");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum KeyType {
    /// A text, byte for byte, such as the value of a header.
    Text,
    /// The name of an account: see [`Key::from_name`].
    Name,
    /// An integer from `i64::MIN` to `u64::MAX`.
    Integer,
    /// The address of a client. The key of an IPv6 address is that of its network.
    Address(ClientIp),
    /// One key that all requests share. It is written `anonymous`, or as an empty text.
    Anonymous,
    /// A key of several parts, which are separated by commas.
    Tuple(Vec<KeyType>),
    /// The first of several types that the text has, such as an API key, or else an address.
    FirstOf(Vec<KeyType>),
    /// A type of the application.
    Custom {
        /// What is allowed, for the error, such as `"a customer number"`.
        allowed: &'static str,
        /// Returns the key of a text, or `None` if the text is not allowed.
        parse: Arc<ParseKey>,
    },
}

/// Returns the key of a text, or `None` if the text is not allowed.
pub type ParseKey = dyn Fn(&str) -> Option<Key> + Send + Sync;

/// The error of a text that is not a key of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTypeError {
    text: String,
    allowed: String,
}

impl KeyType {
    /// Returns the key that this text stands for.
    ///
    /// # Errors
    ///
    /// Returns an error that names the allowed form if the text does not have it.
    pub fn parse(&self, text: &str) -> Result<Key, KeyTypeError> {
        self.find(text).ok_or_else(|| KeyTypeError { text: text.into(), allowed: self.to_string() })
    }

    fn find(&self, text: &str) -> Option<Key> {
        match self {
            Self::Text => Some(Key::from(text)),
            Self::Name => Some(Key::from_name(text)),
            Self::Integer => {
                let number = text.parse::<u64>().map(Key::from);
                number.or_else(|_| text.parse::<i64>().map(Key::from)).ok()
            }
            Self::Address(source) => text.parse::<IpAddr>().ok().map(|address| source.key(address)),
            Self::Anonymous => matches!(text, "" | "anonymous").then_some(Key::ANONYMOUS),
            Self::Tuple(types) => tuple(types, text),
            Self::FirstOf(types) => types.iter().find_map(|it| it.find(text)),
            Self::Custom { parse, .. } => parse(text),
        }
    }
}

/// The most parts of a tuple.
pub(crate) const MAX_PARTS: usize = 4;

fn tuple(types: &[KeyType], text: &str) -> Option<Key> {
    // The last part may contain commas.
    let texts: Vec<_> = text.splitn(types.len(), ',').collect();
    if texts.len() != types.len() || types.len() > MAX_PARTS {
        return None;
    }
    let parts: Option<Vec<_>> =
        types.iter().zip(texts).map(|(kind, text)| kind.find(text.trim())).collect();
    key_of_parts(&parts?)
}

/// Returns the key of these parts, or `None` for none or too many.
pub(crate) fn key_of_parts(parts: &[Key]) -> Option<Key> {
    Some(match *parts {
        [one] => one,
        [a, b] => Key::from((a, b)),
        [a, b, c] => Key::from((a, b, c)),
        [a, b, c, d] => Key::from((a, b, c, d)),
        _ => return None,
    })
}

impl fmt::Display for KeyType {
    /// Writes what is allowed, such as `an integer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, types: &[Self], separator: &str| {
            types.iter().enumerate().try_for_each(|(place, kind)| {
                write!(f, "{}{kind}", if place == 0 { "" } else { separator })
            })
        };
        match self {
            Self::Text => f.write_str("a text"),
            Self::Name => f.write_str("a name"),
            Self::Integer => f.write_str("an integer"),
            Self::Address(_) => f.write_str("an IP address"),
            Self::Anonymous => f.write_str("\"anonymous\", the key that all requests share"),
            Self::Tuple(types) => list(f, types, ", and behind a comma "),
            Self::FirstOf(types) => list(f, types, ", or "),
            Self::Custom { allowed, .. } => f.write_str(allowed),
        }
    }
}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyType({self})")
    }
}

impl fmt::Display for KeyTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key is {:?}, allowed is {}", self.text, self.allowed)
    }
}

impl std::error::Error for KeyTypeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_writes_the_key_that_a_rule_charges() {
        let address = KeyType::Address(ClientIp::peer());
        let network = "2001:db8::/64".split('/').next().unwrap().parse::<IpAddr>().unwrap();
        assert_eq!(address.parse("2001:db8::7").unwrap(), ClientIp::peer().key(network));
        assert_eq!(KeyType::Name.parse(" Dave ").unwrap(), Key::from_name("dave"));
        assert_eq!(KeyType::Integer.parse("-42").unwrap(), Key::from(-42_i64));
        assert_eq!(KeyType::Integer.parse(&u64::MAX.to_string()).unwrap(), Key::from(u64::MAX));
        assert_eq!(KeyType::Anonymous.parse("").unwrap(), Key::ANONYMOUS);
        assert!(KeyType::Anonymous.parse("alice").is_err());
        let pair = KeyType::Tuple(vec![KeyType::Text, address.clone()]);
        let key =
            Key::from(("alice", ClientIp::peer().key("192.0.2.1".parse::<IpAddr>().unwrap())));
        assert_eq!(pair.parse("alice, 192.0.2.1").unwrap(), key);
        assert_eq!(
            pair.parse("alice").unwrap_err().to_string(),
            "the key is \"alice\", allowed is a text, and behind a comma an IP address"
        );
        let either = KeyType::FirstOf(vec![KeyType::Integer, KeyType::Text]);
        assert_eq!(either.parse("7").unwrap(), Key::from(7));
        assert_eq!(either.parse("x").unwrap(), Key::from("x"));
    }
}
