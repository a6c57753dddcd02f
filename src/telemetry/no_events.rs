//! The functions of `events.rs`, for builds without the feature `tracing`.

use super::DenialLog;
use crate::{decision::Decision, error::Error};

#[inline]
pub(super) fn enabled() -> bool {
    false
}

pub(super) fn records_announcements() -> bool {
    false
}

pub(super) fn announced(_: &str) {}
#[inline]
pub(super) fn decided<'r>(_: &Decision<'_>, _: &DenialLog, _: impl FnOnce() -> Option<&'r str>) {}
#[inline]
pub(crate) fn breaker_changed(_: &str, _: &str, _: Option<u32>) {}
#[inline]
pub(super) fn store_failed(_: &Error) {}
#[inline]
pub(crate) fn check_failed(_: &Error, _: bool) {}
#[cfg(feature = "lookup")]
#[inline]
pub(super) fn lookup_failed(_: &'static str, _: Option<&dyn std::fmt::Display>) {}
