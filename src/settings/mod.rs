//! Quotas and configurations as serialized data: the feature `serde`.
//!
//! A quota, and each enum of a setting, is a text. A configuration is a map of its fields, each of which
//! may be missing. The module of a configuration lists the names and the forms of its fields.

mod duration;
mod fields;
mod form;
mod off;
mod secret;
mod text;

pub(crate) use self::{
    duration::DurationText,
    fields::{fields, once, read, unknown_field},
    form::{Form, own_form},
    off::OrOff,
    secret::SecretText,
    text::{names, parsed_text},
};
