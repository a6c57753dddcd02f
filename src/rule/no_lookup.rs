//! The types of `lookup/`, for builds without the feature `lookup`: no rule needs a lookup.

use std::task::{Context, Poll};

use http::request::Parts;

#[derive(Debug, Clone, Default)]
pub(crate) struct Lookups {}

impl Lookups {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn start(&self, _: &mut Parts, _: &mut PendingLookups) {}

    pub(crate) fn have_failed(&self, _: &Parts) -> bool {
        false
    }
}

#[derive(Default)]
pub(crate) struct PendingLookups {}

impl PendingLookups {
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn poll(&mut self, _: &mut Parts, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}
