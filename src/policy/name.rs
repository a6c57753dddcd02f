//! The names of policies and of units.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
};

use siphasher::sip::SipHasher13;

use crate::error::Error;

/// A valid name. Names are written into quoted header strings and store keys without escaping, and no two
/// differ only by case.
#[derive(Clone)]
pub(super) struct Name {
    text: Box<str>,
    id: u64,
}

impl Name {
    pub(super) const MAX_CHARS: usize = 64;

    /// Checks a name. `field` is what an error calls it.
    pub(super) fn parse(field: &str, name: &str) -> Result<Self, Error> {
        let has_only_allowed =
            name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'));
        let valid_start = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if valid_start && name.len() <= Self::MAX_CHARS && has_only_allowed {
            let mut hasher = SipHasher13::new();
            name.hash(&mut hasher);
            return Ok(Self { text: name.into(), id: hasher.finish() });
        }
        let shown: String = name.chars().take(2 * Self::MAX_CHARS).collect();
        let allowed =
            "1 to 64 characters of a-z, 0-9, '-', '_', '.', the first a letter or a digit";
        Err(Error::invalid(field, shown, allowed))
    }

    /// Returns a hash of the name, which is the same in every process.
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.text == other.text
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
