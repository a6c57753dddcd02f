//! The written form of the keys of a policy, by which the text of an operator finds the key of a rule.

use std::{fmt, net::IpAddr};

use plimsoll::{Key, by::ClientIp};

use crate::written::{self, Written};

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
    /// An integer of at most 128 bits.
    Integer,
    /// The address of a client. The key of an IPv6 address is the key of its network.
    Address(ClientIp),
    /// One key that all requests share. It is written as an empty text. Under every type, `anonymous` is this
    /// key, which unidentified clients share.
    Anonymous,
    /// A key of several parts, which are separated by commas: `acme, 42` or `(acme, 42)`.
    Tuple(Vec<KeyType>),
    /// The first of several types that the text has, such as an API key, or else an address.
    FirstOf(Vec<KeyType>),
}

/// The error of a text that is not a key of a policy: see [`KeyType`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTypeError {
    text: String,
    /// The allowed form, or `None` for a digest.
    allowed: Option<String>,
}

/// The reason why a text stands for no key.
enum Refused {
    /// It has another form.
    Form,
    /// It is the digest of a key.
    Digest,
}

impl KeyType {
    /// Returns the key that this text stands for: as a client sends it, or as
    /// [`Key::display_revealed`] shows it. A text in quotes is the text between them, so `"42"` is a text
    /// also where numbers are allowed.
    ///
    /// # Errors
    ///
    /// Returns an error that names the allowed form if the text does not have it, or if the text is the digest
    /// of a key.
    pub fn parse(&self, text: &str) -> Result<Key, KeyTypeError> {
        self.find(text).map_err(|refused| KeyTypeError {
            text: text.into(),
            allowed: match refused {
                Refused::Form => Some(self.to_string()),
                Refused::Digest => None,
            },
        })
    }

    fn find(&self, text: &str) -> Result<Key, Refused> {
        let written = Written::of(text);
        let found = match (self, &written) {
            (_, Written::Anonymous) => Some(Key::ANONYMOUS),
            (_, Written::Digest) => return Err(Refused::Digest),
            (Self::Text, Written::Bytes(key)) => Some(*key),
            (Self::Text, Written::Quoted(text)) => Some(Key::from(text)),
            (Self::Text, Written::Plain) => Some(Key::from(text)),
            (Self::Name, Written::Quoted(text)) => Some(Key::from_name(text)),
            (Self::Name, _) => Some(Key::from_name(text)),
            (Self::Integer, _) => {
                let number = text.parse::<u128>().map(Key::from);
                number.or_else(|_| text.parse::<i128>().map(Key::from)).ok()
            }
            (Self::Address(source), _) => text.parse::<IpAddr>().ok().map(|it| source.key(it)),
            (Self::Anonymous, _) => text.is_empty().then_some(Key::ANONYMOUS),
            (Self::Tuple(types), _) => return tuple(types, text),
            (Self::FirstOf(types), _) => return first(types.iter().map(|it| it.find(text))),
        };
        found.ok_or(Refused::Form)
    }
}

/// The most parts of a tuple.
pub(crate) const MAX_PARTS: usize = 4;

fn tuple(types: &[KeyType], text: &str) -> Result<Key, Refused> {
    let parts = written::parts(text, types.len()).ok_or(Refused::Form)?;
    let keys: Result<Vec<_>, _> =
        types.iter().zip(parts).map(|(kind, text)| kind.find(text)).collect();
    key_of_parts(&keys?).ok_or(Refused::Form)
}

/// Returns the first key. A text with a digest is none of another type.
fn first(mut found: impl Iterator<Item = Result<Key, Refused>>) -> Result<Key, Refused> {
    found.find(|it| !matches!(it, Err(Refused::Form))).unwrap_or(Err(Refused::Form))
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

fn listed(types: &[KeyType], separator: &str) -> String {
    types.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

impl fmt::Display for KeyType {
    /// Writes what is allowed, such as `an integer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text"),
            Self::Name => f.write_str("a name"),
            Self::Integer => f.write_str("an integer"),
            Self::Address(_) => f.write_str("an IP address"),
            Self::Anonymous => f.write_str("\"anonymous\", the key that all requests share"),
            Self::Tuple(types) => f.write_str(&listed(types, ", and behind a comma ")),
            Self::FirstOf(types) => f.write_str(&listed(types, ", or ")),
        }
    }
}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyType({self})")
    }
}

impl KeyTypeError {
    /// Returns the allowed form, or `None` for a digest.
    #[cfg(feature = "admin")]
    pub(crate) fn allowed(&self) -> Option<&str> {
        self.allowed.as_deref()
    }

    /// Returns whether the text is the digest of a key, such as `#1f2e3d4c`, or has one as a part.
    #[must_use]
    pub fn is_digest(&self) -> bool {
        self.allowed.is_none()
    }
}

impl fmt::Display for KeyTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.allowed {
            Some(allowed) => write!(f, "the key is {:?}, allowed is {allowed}", self.text),
            None => write!(
                f,
                "{:?} is or has the digest of a key, from which the key cannot be computed: write the key as \
                 clients send it. Lists show keys instead of digests if the service calls `show_keys`",
                self.text
            ),
        }
    }
}

impl std::error::Error for KeyTypeError {}

#[cfg(test)]
mod tests {
    use plimsoll_testing::seed::property;
    use proptest::{collection::vec, prelude::*, sample::select, strategy::Union};

    use super::*;
    use crate::overrides::digest;

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

    /// Any key of a type, and whether its text was too long to be kept.
    fn keys(kind: &KeyType) -> BoxedStrategy<Key> {
        let texts = prop_oneof![
            ".{0,12}",
            "[a-z \"'\\\\(),#:0-9\n]{0,8}",
            select(vec![
                "anonymous",
                "#1f2e3d4c",
                "42",
                "192.0.2.1",
                "",
                "bytes:ff",
                "(a, b)",
                "::1"
            ])
            .prop_map(str::to_owned),
            "digest:[0-9a-f]{32}",
        ];
        let known = match kind {
            KeyType::Text => {
                prop_oneof![texts.prop_map(Key::from), vec(any::<u8>(), 0..9).prop_map(Key::from)]
                    .boxed()
            }
            KeyType::Name => texts.prop_map(|text| Key::from_name(&text)).boxed(),
            KeyType::Integer => {
                prop_oneof![any::<u64>().prop_map(Key::from), any::<i128>().prop_map(Key::from)]
                    .boxed()
            }
            KeyType::Address(source) => {
                let source = source.clone();
                any::<IpAddr>().prop_map(move |it| source.key(it)).boxed()
            }
            KeyType::Tuple(types) => types
                .iter()
                .map(keys)
                .collect::<Vec<_>>()
                .prop_map(|it| key_of_parts(&it).unwrap())
                .boxed(),
            KeyType::FirstOf(types) => Union::new(types.iter().map(keys)).boxed(),
            KeyType::Anonymous => Just(Key::ANONYMOUS).boxed(),
        };
        prop_oneof![9 => known, 1 => Just(Key::ANONYMOUS)].boxed()
    }

    #[test]
    fn a_key_that_is_shown_is_found_again_or_is_a_digest() {
        let address = || KeyType::Address(ClientIp::peer());
        for kind in [
            KeyType::Text,
            KeyType::Name,
            KeyType::Integer,
            address(),
            KeyType::Anonymous,
            KeyType::Tuple(vec![KeyType::Text, KeyType::Text]),
            KeyType::Tuple(vec![KeyType::Text, address(), KeyType::Integer]),
            KeyType::Tuple(vec![
                KeyType::Tuple(vec![KeyType::Text, KeyType::Integer]),
                KeyType::Name,
            ]),
            KeyType::FirstOf(vec![address(), KeyType::Text]),
            KeyType::FirstOf(vec![
                KeyType::Integer,
                KeyType::Tuple(vec![KeyType::Text, KeyType::Text]),
                KeyType::Text,
            ]),
        ] {
            let name = format!("keys that are shown, {kind}");
            property(&name, ProptestConfig::with_cases(500), keys(&kind), |key| {
                let shown = key.display_revealed().to_string();
                match kind.parse(&shown) {
                    Ok(found) => prop_assert_eq!(found, key, "{}", shown),
                    Err(error) => {
                        prop_assert!(
                            error.is_digest() && shown.contains("digest:"),
                            "{}: {}",
                            shown,
                            error
                        );
                    }
                }
                Ok(())
            });
        }
    }

    #[test]
    fn a_digest_is_no_key() {
        for kind in
            [KeyType::Text, KeyType::Name, KeyType::FirstOf(vec![KeyType::Integer, KeyType::Text])]
        {
            for key in ["alice".to_owned(), "x".repeat(47)] {
                let digest = digest(&Key::from(&key));
                let error = kind.parse(&digest).unwrap_err();
                assert!(error.is_digest() && error.to_string().contains("show_keys"), "{error}");
            }
            let long = Key::from("x".repeat(47)).display_revealed().to_string();
            assert!(kind.parse(&long).unwrap_err().is_digest());
            assert!(kind.parse("\"#1f2e3d4c\"").is_ok() && kind.parse("#1").is_ok());
        }
    }
}
