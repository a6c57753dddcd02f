//! The rules in force over one limiter.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arc_swap::{ArcSwap, Guard};
use plimsoll::{Limiter, RateLimitLayer};

use super::{document::Mistake, rules::Rules};

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
    ///
    /// # Errors
    ///
    /// Returns an error if the closure of the program panics.
    pub(super) fn new(
        limiter: Limiter,
        change: Option<Box<Change>>,
        rules: &Rules,
    ) -> Result<Option<Self>, Mistake> {
        let made = make(&limiter, change.as_deref(), rules)?;
        let layer = made.map(ArcSwap::from_pointee);
        Ok(layer.map(|layer| Self { limiter, change, layer }))
    }

    /// Returns the layer with the rules in force.
    pub(super) fn layer(&self) -> Guard<Arc<RateLimitLayer>> {
        self.layer.load()
    }

    /// Puts other rules in force. Without rules, it does nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the closure of the program panics. The rules stay as they are.
    pub(super) fn follow(&self, rules: &Rules) -> Result<(), Mistake> {
        if let Some(layer) = make(&self.limiter, self.change.as_deref(), rules)? {
            self.layer.store(Arc::new(layer));
        }
        Ok(())
    }
}

fn make(
    limiter: &Limiter,
    change: Option<&Change>,
    rules: &Rules,
) -> Result<Option<RateLimitLayer>, Mistake> {
    let (Some(layer), Some(change)) = (rules.layer(limiter), change) else {
        return Ok(rules.layer(limiter));
    };
    // The task that reads the file again may be that of a request. The closure has no state of its own.
    let changed = catch_unwind(AssertUnwindSafe(|| change(layer)));
    changed.map(Some).map_err(|_| {
        Mistake::new("the closure of `layer_with` has panicked: the rules stay as they are")
    })
}
