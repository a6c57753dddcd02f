//! The fields of a configuration. The comments of the fields are the descriptions in the JSON Schema.

mod file;
mod key;
mod texts;

pub(super) use self::{
    file::{ClientIpSpec, FileSpec, PolicySpec, RuleSpec, TierSpec},
    key::KeySpec,
    texts::{HeaderText, Route, Time},
};
