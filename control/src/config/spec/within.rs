//! Numbers of a certain range.

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected},
};

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Within<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Within<MIN, MAX> {
    pub(in crate::config) const fn get(self) -> u32 {
        self.0
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(from)?;
        let found = u32::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number));
        found.map(Self).ok_or_else(|| {
            let allowed = format!("a whole number from {MIN} to {MAX}");
            D::Error::invalid_value(Unexpected::Unsigned(number), &&*allowed)
        })
    }
}
