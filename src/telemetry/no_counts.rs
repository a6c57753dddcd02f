//! The functions of `counts.rs`, for builds without the feature `metrics`.

use std::time::Duration;

use crate::{decision::Decision, error::ErrorKind};

pub(super) const ENABLED: bool = false;

#[inline]
pub(crate) fn describe() {}
#[inline]
pub(super) fn decided(_: &Decision<'_>) {}
#[inline]
pub(crate) fn store_answered(_: Duration) {}
#[inline]
pub(crate) fn scheduling_delayed(_: Duration) {}
#[inline]
pub(crate) fn breaker_made() {}
#[inline]
pub(crate) fn breakers_counted(_: u8, _: i8) {}
#[inline]
pub(crate) fn deadline_missed() {}
#[inline]
pub(super) fn store_failed(_: ErrorKind) {}
#[inline]
pub(crate) fn fell_back() {}
#[inline]
pub(crate) fn undo_failed() {}
#[inline]
pub(crate) fn denied_from_cache() {}
#[inline]
pub(crate) fn paid_from_stock() {}
#[inline]
pub(crate) fn lease_granted(_: u64) {}
#[inline]
pub(crate) fn lease_denied() {}
#[inline]
pub(crate) fn lease_lost() {}
#[inline]
pub(crate) fn leases_refunded(_: u64) {}
#[inline]
pub(super) fn charge_without_peer() {}
#[cfg(feature = "lookup")]
#[inline]
pub(crate) fn looked_up(_: &'static str) {}
#[cfg(feature = "lookup")]
#[inline]
pub(crate) fn row_loaded(_: Duration) {}
#[cfg(feature = "lookup")]
#[inline]
pub(super) fn lookup_failed(_: &'static str) {}
