//! The functions of `misuse`, for builds without the feature `tracing`.

use std::panic::Location;

#[derive(Debug, Default)]
pub(crate) struct FirstRequests {}

impl FirstRequests {
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        false
    }

    pub(crate) fn count(&self) -> u32 {
        0
    }

    pub(crate) fn end(&self) {}
}

#[derive(Debug)]
pub(crate) struct RouteWatch;

impl RouteWatch {
    pub(crate) fn new<'t>(
        _: &'static str,
        _: &'static Location<'static>,
        _: impl IntoIterator<Item = &'t str>,
    ) -> Self {
        Self
    }

    #[inline]
    pub(crate) fn observe<'p>(&self, _: Option<usize>, _: impl FnOnce() -> Option<&'p str>) {}
}

#[inline]
pub(crate) fn peer_missing() {}
#[inline]
pub(crate) fn forwarded_ignored(_: &str) {}
#[inline]
pub(crate) fn charged_twice(_: &str) {}
#[inline]
pub(crate) fn every_key_is_new(_: &str, _: u32) {}
#[cfg(feature = "lookup")]
#[inline]
pub(crate) fn lookup_missing() {}
