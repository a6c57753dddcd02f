//! The rules in force over one [limiter](Limiter).

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use plimsoll::{Limiter, RateLimitLayer};

use super::rules::{Change, Rules};

/// The [rules](Rules) in force over one limiter, which follow the configuration.
pub(super) struct Follower {
    limiter: Limiter,
    change: Option<Box<Change>>,
    layer: ArcSwap<RateLimitLayer>,
}

impl Follower {
    /// Creates a follower, or returns `None` without [rules](Rules).
    pub(super) fn new(
        limiter: Limiter,
        change: Option<Box<Change>>,
        rules: &Rules,
    ) -> Option<Self> {
        let layer = ArcSwap::from_pointee(rules.layer(&limiter, change.as_deref())?);
        Some(Self { limiter, change, layer })
    }

    /// Returns the layer with the rules in force.
    pub(super) fn layer(&self) -> Guard<Arc<RateLimitLayer>> {
        self.layer.load()
    }

    /// Puts other rules in force. Without rules, it does nothing.
    pub(super) fn follow(&self, rules: &Rules) {
        if let Some(layer) = rules.layer(&self.limiter, self.change.as_deref()) {
            self.layer.store(Arc::new(layer));
        }
    }
}
