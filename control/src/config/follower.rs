//! The rules in force over one limiter.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use plimsoll::{Limiter, RateLimitLayer};

use super::rules::Rules;

/// A change of the layer by the program.
pub(super) type Change = dyn Fn(RateLimitLayer) -> RateLimitLayer + Send + Sync;

/// The rules in force over one limiter, which follow the configuration.
pub(super) struct Follower {
    limiter: Limiter,
    change: Option<Box<Change>>,
    layer: ArcSwap<RateLimitLayer>,
}

impl Follower {
    /// Creates a follower, or returns `None` without rules.
    pub(super) fn new(
        limiter: Limiter,
        change: Option<Box<Change>>,
        rules: &Rules,
    ) -> Option<Self> {
        let layer = ArcSwap::from_pointee(make(&limiter, change.as_deref(), rules)?);
        Some(Self { limiter, change, layer })
    }

    /// Returns the layer with the rules in force.
    pub(super) fn layer(&self) -> Guard<Arc<RateLimitLayer>> {
        self.layer.load()
    }

    /// Puts other rules in force. Without rules, it does nothing.
    pub(super) fn follow(&self, rules: &Rules) {
        if let Some(layer) = make(&self.limiter, self.change.as_deref(), rules) {
            self.layer.store(Arc::new(layer));
        }
    }
}

fn make(limiter: &Limiter, change: Option<&Change>, rules: &Rules) -> Option<RateLimitLayer> {
    let layer = rules.layer(limiter)?;
    Some(match change {
        Some(change) => change(layer),
        None => layer,
    })
}
