//! The layer around a client.

use std::{sync::Arc, time::Duration};

use plimsoll::{Limiter, Rule, rule::Rules};

use crate::pauses::Pauses;

/// A tower [`Layer`](tower_layer::Layer) that paces the calls of an HTTP or gRPC client.
///
/// It charges each call under one or several [`Rule`]s before the call is made. A call that the
/// quota does not allow fails at once with [`PaceError::Denied`](crate::PaceError::Denied), or
/// waits for its turn if a [`wait`](Self::wait) is set. Rules that charge by outcome work as in a
/// [`RateLimitLayer`](plimsoll::RateLimitLayer). For example, [`Rule::refund_if`] can refund a call
/// that the server did not count.
///
/// # Responses of the upstream service
///
/// The upstream service decides how many calls it accepts. So this layer reads its responses, and
/// pauses:
///
/// - for the longest of `Retry-After` ([RFC 9110, section 10.2.3]) in a response with a status of 4xx or 5xx, and
///   of the `t` in `RateLimit: "name";r=0;t=9` in any response ([draft 11]);
/// - without these, for the time of an older header whose number of remaining units is 0, such as
///   `X-RateLimit-Reset` after `X-RateLimit-Remaining: 0`. [The page of the package](crate#pauses)
///   lists the headers, and the forms of a time;
/// - after a status of 429, or of 503 with `Retry-After`, that states no time: for 1 s, and twice as long after
///   each further one, up to 64 s. Any other response ends the series.
///
/// A pause is cut to [`max_pause`](Self::max_pause). A header that cannot be parsed is ignored.
///
/// - A pause applies to the calls with the same keys under the same policies as the call that was
///   answered. In the example below, a response of one host does not stop the calls to another. A
///   call that no rule charges is never paused, and a shadow rule pauses nothing.
/// - During a pause a call [waits](Self::wait) for its turn, or fails with
///   [`PaceError::Denied`](crate::PaceError::Denied), which has the wait. A call that fails is not charged.
/// - All clones of the layer and of its services share the pauses. Other processes do not. At most 1024 pauses
///   are kept. When there are more, the first to end is forgotten.
/// - The layer does not repeat a call that the server has denied, because it does not keep the body of the
///   request. To repeat calls, put tower's [`Retry`] around this layer: each attempt is charged, and waits for
///   the end of the pause.
///
/// [RFC 9110, section 10.2.3]: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3
/// [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
/// [`Retry`]: https://docs.rs/tower/latest/tower/retry/index.html
///
/// # Examples
///
/// Calls beyond the quota fail at once:
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, Rule, by};
/// use plimsoll_pace::PaceLayer;
///
/// let upstream = Policy::new("upstream", Quota::per_second(5))?;
/// let layer = PaceLayer::new(Limiter::in_memory(), Rule::new(upstream, by::constant("upstream")));
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// Calls wait for up to 10 s, and a second rule limits each host:
///
/// ```
/// use std::time::Duration;
///
/// use plimsoll::{Key, Limiter, Policy, Quota, Rule, by};
/// use plimsoll_pace::PaceLayer;
///
/// let upstream = Policy::new("upstream", Quota::per_second(5))?;
/// let per_host = Policy::new("per-host", Quota::per_minute(60))?;
/// let layer = PaceLayer::new(Limiter::in_memory(), Rule::new(upstream, by::constant("upstream")))
///     .and(Rule::new(per_host, |parts| parts.uri.host().map(Key::from)))
///     .wait(Duration::from_secs(10));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PaceLayer {
    pub(crate) limiter: Limiter,
    pub(crate) rules: Rules,
    pub(crate) max_wait: Duration,
    pub(crate) max_pause: Duration,
    pub(crate) pauses: Arc<Pauses>,
}

/// The default of [`PaceLayer::max_pause`].
const DEFAULT_MAX_PAUSE: Duration = Duration::from_secs(300);

impl PaceLayer {
    /// Creates a layer with one rule.
    #[must_use]
    pub fn new(limiter: Limiter, rule: Rule) -> Self {
        Self {
            limiter,
            rules: Rules::new(rule),
            max_wait: Duration::ZERO,
            max_pause: DEFAULT_MAX_PAUSE,
            pauses: Arc::default(),
        }
    }

    /// Adds a rule, which is decided in the same atomic step as the others.
    ///
    /// # Panics
    ///
    /// Panics if there are already [`Charges::MAX`](plimsoll::policy::Charges::MAX) rules, or if another rule has another
    /// policy of the same name: one name is one quota.
    #[must_use]
    #[track_caller]
    pub fn and(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Lets each call wait for the quota, for at most `max_wait`.
    ///
    /// Calls of one key are made in the order of their arrival, as with [`Limiter::until_ready`]. A
    /// call whose wait would be longer fails at once with
    /// [`PaceError::Denied`](crate::PaceError::Denied). The default is not to wait.
    ///
    /// While the store cannot answer, a call that may wait does so, and fails with
    /// [`PaceError::Limiter`](crate::PaceError::Limiter) if the store does not answer in time. So an outage
    /// never spends more than the quota. [`Rule::on_failure`] changes this: under
    /// [`OnFailure::Local`](plimsoll::OnFailure::Local), each process decides by itself.
    #[must_use]
    pub fn wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    /// Sets the longest pause that a [response](Self#responses-of-the-upstream-service) of the
    /// upstream service can cause. The default is 5 minutes.
    ///
    /// A longer time is cut to `max_pause`. After that, one call is made, and its response may begin the
    /// next pause. So a faulty or hostile server cannot stop the calls for longer. With
    /// [`Duration::ZERO`], the layer never pauses.
    #[must_use]
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = max_pause;
        self
    }
}
