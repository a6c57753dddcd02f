//! The layer around a client: what calls are charged, and how long they wait.

use std::time::Duration;

use tower_layer::Layer;

use super::Pace;
use crate::{limiter::Limiter, policy::Charges, rule::Rule};

/// Paces the calls of an HTTP or gRPC client: each is charged under one or several [`Rule`]s before
/// it is made.
///
/// A call that the quota does not allow fails at once with [`PaceError`](super::PaceError), or
/// waits its turn with [`wait`](Self::wait). What a rule says of outcomes holds here too: a charge
/// can be refunded for a response that the other side did not count.
#[derive(Debug, Clone)]
pub struct PaceLayer {
    pub(super) limiter: Limiter,
    pub(super) rules: Vec<Rule>,
    pub(super) within: Duration,
}

impl PaceLayer {
    /// A layer with one rule.
    #[must_use]
    pub fn new(limiter: Limiter, rule: Rule) -> Self {
        Self { limiter, rules: vec![rule], within: Duration::ZERO }
    }

    /// Adds a rule, decided in the same atomic step.
    ///
    /// # Panics
    ///
    /// If there are already [`Charges::MAX`] rules.
    #[must_use]
    pub fn and(mut self, rule: Rule) -> Self {
        assert!(self.rules.len() < Charges::MAX, "a layer has at most 32 rules");
        self.rules.push(rule);
        self
    }

    /// Waits for the quota, for at most `within`. Calls of one key go in the order in which they
    /// came, as [`Limiter::until_ready`] has it; a wait that cannot end in time is not begun.
    #[must_use]
    pub fn wait(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }
}

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace::new(inner, self.clone())
    }
}
