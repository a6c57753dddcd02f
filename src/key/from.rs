//! Conversions into keys.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;

use super::Key;
#[cfg(feature = "uuid")]
use super::key::Kind;

impl From<&[u8]> for Key {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&String> for Key {
    #[inline]
    fn from(text: &String) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<String> for Key {
    #[inline]
    fn from(text: String) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&HeaderValue> for Key {
    #[inline]
    fn from(value: &HeaderValue) -> Self {
        Self::new(value.as_bytes())
    }
}

impl From<Cow<'_, str>> for Key {
    #[inline]
    fn from(text: Cow<'_, str>) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<Vec<u8>> for Key {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(&bytes)
    }
}

impl From<&Vec<u8>> for Key {
    #[inline]
    fn from(bytes: &Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl From<Bytes> for Key {
    #[inline]
    fn from(bytes: Bytes) -> Self {
        Self::new(&bytes)
    }
}

impl From<&Bytes> for Key {
    #[inline]
    fn from(bytes: &Bytes) -> Self {
        Self::new(bytes)
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    #[inline]
    fn from(bytes: [u8; N]) -> Self {
        Self::new(&bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    #[inline]
    fn from(bytes: &[u8; N]) -> Self {
        Self::new(bytes)
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    /// Creates a key that differs from the key of any text, such as the written form of the UUID.
    #[inline]
    fn from(id: uuid::Uuid) -> Self {
        let mut text = *b"\0u________________";
        text[2..].copy_from_slice(id.as_bytes());
        Self::of(Kind::Plain, &text)
    }
}

impl From<&Key> for Key {
    #[inline]
    fn from(key: &Key) -> Self {
        *key
    }
}

macro_rules! from_tuple {
    ($($part:ident)+) => {
        impl<$($part: Into<Key>),+> From<($($part,)+)> for Key {
            /// Creates the key of these keys in this order, which differs from every key of other
            /// parts. The key of a tuple of two is that of [`Key::paired`].
            fn from(parts: ($($part,)+)) -> Self {
                #[allow(non_snake_case, reason = "each variable is named after its type")]
                let ($($part,)+) = parts;
                Self::joined(&[$($part.into()),+])
            }
        }
    };
}

from_tuple!(A B);
from_tuple!(A B C);
from_tuple!(A B C D);
