//! Conversions into keys.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderValue;

use super::{
    encoding::{Kind, NEGATIVE, NUMBER},
    key::Key,
};

macro_rules! from_bytes {
    ($([$($generic:tt)*] $bytes:ty),+ $(,)?) => {
        $(impl<$($generic)*> From<$bytes> for Key {
            #[inline]
            fn from(bytes: $bytes) -> Self {
                Self::new(bytes.as_ref())
            }
        })+
    };
}

from_bytes!([] &[u8], [] Vec<u8>, [] &Vec<u8>, [] Bytes, [] &Bytes, [] &str, [] String, [] &String, [] &HeaderValue);
from_bytes!([const N: usize] [u8; N], [const N: usize] &[u8; N]);

impl From<Cow<'_, str>> for Key {
    fn from(text: Cow<'_, str>) -> Self {
        Self::new(text.as_bytes())
    }
}

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    /// Creates a key that differs from the key of any text, such as the written form of the UUID.
    fn from(id: uuid::Uuid) -> Self {
        let mut text = *b"\0u________________";
        text[2..].copy_from_slice(id.as_bytes());
        Self::of(Kind::Plain, &text)
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        *key
    }
}

macro_rules! from_tuple {
    ($($part:ident)+) => {
        impl<$($part: Into<Key>),+> From<($($part,)+)> for Key {
            /// Creates the key of these keys in this order, which differs from every key of other
            /// parts. It has the tag of the first part that has one.
            fn from(parts: ($($part,)+)) -> Self {
                #[allow(non_snake_case, reason = "each variable is named after its type")]
                let ($($part,)+) = parts;
                Self::of_parts(&[$($part.into()),+])
            }
        }
    };
}

from_tuple!(A B);
from_tuple!(A B C);
from_tuple!(A B C D);

impl From<u64> for Key {
    /// Creates a key that differs from the key of any text, and is the same for an equal number of
    /// another integer type.
    fn from(number: u64) -> Self {
        let mut text = *b"\0n________";
        text[2..].copy_from_slice(&number.to_be_bytes());
        Self::of(Kind::Plain, &text)
    }
}

impl From<u128> for Key {
    /// Creates a key that differs from the key of any text, and is the same for an equal number of
    /// another integer type.
    fn from(number: u128) -> Self {
        u64::try_from(number).map_or_else(|_| wide(NUMBER, number), Self::from)
    }
}

impl From<i128> for Key {
    /// Creates a key that differs from the key of any text, and is the same for an equal number of
    /// another integer type.
    fn from(number: i128) -> Self {
        u128::try_from(number).map_or_else(|_| wide(NEGATIVE, number.unsigned_abs()), Self::from)
    }
}

fn wide(prefix: [u8; 2], magnitude: u128) -> Key {
    let mut text = [0; 18];
    text[..2].copy_from_slice(&prefix);
    text[2..].copy_from_slice(&magnitude.to_be_bytes());
    Key::of(Kind::Plain, &text)
}

macro_rules! from_integer {
    ($($integer:ty as $wide:ty),+) => {
        $(impl From<$integer> for Key {
            /// Creates a key that differs from the key of any text, and is the same for an equal
            /// number of another integer type.
                    fn from(number: $integer) -> Self {
                Self::from(number as $wide)
            }
        })+
    };
}

// Each of these conversions widens, or keeps the width, and so keeps the number.
from_integer!(u8 as u64, u16 as u64, u32 as u64, usize as u64);
from_integer!(i8 as i128, i16 as i128, i32 as i128, i64 as i128, isize as i128);
