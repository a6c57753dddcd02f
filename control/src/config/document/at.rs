//! Values that keep their place in the text, for [mistakes](Mistake) that are found after the value was read.

use std::{fmt, marker::PhantomData, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

use super::Mistake;

/// A value and its place in the text, in bytes.
///
/// It is deserialized by [`read`](super::read) alone: other deserializers do not know places.
#[derive(Debug, Clone, Default)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// The place in the text, in bytes.
    pub span: Range<usize>,
}

/// The name by which the deserializer knows [`At`]. It deserializes such a struct from the start and the
/// end of the place, and the value.
pub(super) const AT: &str = "plimsoll_control::At";

impl<T> At<T> {
    /// Returns the [mistake](Mistake) of this value.
    pub fn mistake(&self, message: impl fmt::Display) -> Mistake {
        Mistake::new(message).at(self.span.clone())
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    /// Compares the values.
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AtVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for AtVisitor<T> {
            type Value = At<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<At<T>, A::Error> {
                let start = seq.next_element()?;
                let end = seq.next_element()?;
                match (start, end, seq.next_element()?) {
                    (Some(start), Some(end), Some(value)) => Ok(At { value, span: start..end }),
                    _ => Err(A::Error::custom("a value without a place")),
                }
            }
        }

        from.deserialize_struct(AT, &[], AtVisitor(PhantomData))
    }
}

/// A table, in the order of the text.
#[derive(Debug, PartialEq)]
pub(in crate::config) struct Entries<T, N = At<String>>(pub(in crate::config) Vec<(N, T)>);

impl<T, N> Default for Entries<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, N: Deserialize<'de>> Deserialize<'de> for Entries<T, N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T, N>(PhantomData<(T, N)>);

        impl<'de, T, N> Visitor<'de> for EntriesVisitor<T, N>
        where
            T: Deserialize<'de>,
            N: Deserialize<'de>,
        {
            type Value = Entries<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        from.deserialize_map(EntriesVisitor(PhantomData))
    }
}
