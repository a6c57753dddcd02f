//! The forms of serialized data: the feature `serde`.
//!
//! A quota, and each enum of a setting, is a text. A configuration is a map of its fields, each of which
//! may be missing. Its module `mirror` lists the fields with their forms. An error names the field, the
//! value and what is allowed.

mod fields;
pub(crate) mod or_off;
mod values;

#[cfg(feature = "redis")]
pub(crate) use self::values::{invalid, read, secret};
pub(crate) use self::{
    fields::{Fields, by_mirror},
    values::{Secret, Timeout, duration, number, timeout},
};
