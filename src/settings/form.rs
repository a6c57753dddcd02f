//! The serialized form of a value.

use serde_core::{Serialize, de::DeserializeOwned};

/// The serialized form of a value.
pub(crate) trait Form: Serialize + DeserializeOwned {
    /// The type of the value.
    type Value;

    /// Returns the form of a value.
    fn of(value: &Self::Value) -> Self;

    /// Returns the value.
    fn into_value(self) -> Self::Value;
}

/// Implements [`Form`] for types that are their own form.
macro_rules! own_form {
    ($($type:ty),+ $(,)?) => {
        $(impl $crate::settings::Form for $type {
            type Value = Self;

            fn of(value: &Self) -> Self {
                Self::clone(value)
            }

            fn into_value(self) -> Self {
                self
            }
        })+
    };
}
pub(crate) use own_form;

own_form!(bool, u32, u64, usize, String);
