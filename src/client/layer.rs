//! The layer around a client.

use std::time::Duration;

use tower_layer::Layer;

use super::Pace;
use crate::{limiter::Limiter, policy::Charges, rule::Rule};

/// A tower [`Layer`] that paces the calls of an HTTP or gRPC client.
///
/// It charges each call under one or several [`Rule`]s before the call is made. A call that the
/// quota does not allow fails at once with [`PaceError::Denied`](super::PaceError::Denied), or
/// waits for its turn if a [`wait`](Self::wait) is set. Rules that charge by outcome work as in a
/// [`RateLimitLayer`](crate::RateLimitLayer). For example, [`Rule::refund_if`] can refund a call
/// that the server did not count.
///
/// # Examples
///
/// Calls beyond the quota fail at once:
///
/// ```
/// use tollgate::{Limiter, Policy, Quota, Rule, by, client::PaceLayer};
///
/// let upstream = Policy::new("upstream", Quota::per_second(5))?;
/// let layer = PaceLayer::new(Limiter::in_memory(), Rule::new(upstream, by::constant("upstream")));
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// Calls wait for up to 10 s, and a second rule limits each host:
///
/// ```
/// use std::time::Duration;
///
/// use tollgate::{Key, Limiter, Policy, Quota, Rule, by, client::PaceLayer};
///
/// let upstream = Policy::new("upstream", Quota::per_second(5))?;
/// let per_host = Policy::new("per-host", Quota::per_minute(60))?;
/// let layer = PaceLayer::new(Limiter::in_memory(), Rule::new(upstream, by::constant("upstream")))
///     .and(Rule::new(per_host, |parts| parts.uri.host().map(Key::from)))
///     .wait(Duration::from_secs(10));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PaceLayer {
    pub(super) limiter: Limiter,
    pub(super) rules: Vec<Rule>,
    pub(super) max_wait: Duration,
}

impl PaceLayer {
    /// Creates a layer with one rule.
    #[must_use]
    pub fn new(limiter: Limiter, rule: Rule) -> Self {
        Self { limiter, rules: vec![rule], max_wait: Duration::ZERO }
    }

    /// Adds a rule, which is decided in the same atomic step as the others.
    ///
    /// # Panics
    ///
    /// Panics if there are already [`Charges::MAX`] rules.
    #[must_use]
    pub fn and(mut self, rule: Rule) -> Self {
        assert!(self.rules.len() < Charges::MAX, "a layer has at most 32 rules");
        self.rules.push(rule);
        self
    }

    /// Lets each call wait for the quota, for at most `max_wait`.
    ///
    /// Calls of one key are made in the order of their arrival, as with [`Limiter::until_ready`]. A
    /// call whose wait would be longer fails at once with
    /// [`PaceError::Denied`](super::PaceError::Denied). The default is not to wait.
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }
}

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace::new(inner, self.clone())
    }
}
