//! Keys of integers.

use super::key::{Key, Kind};

/// The prefix of the key of a number. The bytes of the number follow, in big-endian order.
pub(super) const NUMBER: [u8; 2] = *b"\0n";
/// The prefix of the key of a negative number. The bytes of its magnitude follow.
pub(super) const NEGATIVE: [u8; 2] = *b"\0m";

impl From<u64> for Key {
    /// Creates a key that differs from the key of any text, and is the same for an equal number of
    /// another integer type.
    #[inline]
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
            #[inline]
            fn from(number: $integer) -> Self {
                Self::from(number as $wide)
            }
        })+
    };
}

// Each of these conversions widens, or keeps the width, and so keeps the number.
from_integer!(u8 as u64, u16 as u64, u32 as u64, usize as u64);
from_integer!(i8 as i128, i16 as i128, i32 as i128, i64 as i128, isize as i128);
