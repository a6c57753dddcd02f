//! The switches of the service.

use plimsoll::{Algorithm, OnFailure};
use serde::Deserialize;

/// The switches of the rate limit service for Envoy.
///
/// ```
/// use plimsoll::Algorithm;
/// use plimsoll_server::envoy::{Decide, EnvoyOptions};
///
/// // As envoyproxy/ratelimit decides.
/// let options = EnvoyOptions::default()
///     .decide(Decide::Each)
///     .algorithm(Algorithm::FixedWindow);
/// assert_ne!(options, EnvoyOptions::default());
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EnvoyOptions {
    pub(super) decide: Decide,
    pub(super) algorithm: Algorithm,
    pub(super) merge_domains: bool,
    pub(super) remove_domains: bool,
    pub(super) shadow_mode: bool,
    pub(super) quota_mode: bool,
    pub(super) strict_looks: bool,
    pub(super) on_failure: OnFailure,
    pub(super) headers: ResponseHeaders,
    pub(super) dynamic_metadata: bool,
    pub(super) near_limit_percent: u8,
}

/// The way in which the limits of one request are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Decide {
    /// All limits are charged, or none is: a request that one limit denies does not spend the others.
    #[default]
    Together,
    /// Each limit is charged by itself, as envoyproxy/ratelimit does.
    Each,
}

/// The headers that the service adds to responses. By default it adds none, as envoyproxy/ratelimit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseHeaders {
    pub(super) ratelimit: bool,
    pub(super) limit: Option<LimitHeaders>,
}

/// The names of three headers about the limit that has the fewest units left.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitHeaders {
    pub(super) limit: String,
    pub(super) remaining: String,
    pub(super) reset: String,
}

impl Default for EnvoyOptions {
    fn default() -> Self {
        Self {
            decide: Decide::default(),
            algorithm: Self::DEFAULT_ALGORITHM,
            merge_domains: false,
            remove_domains: false,
            shadow_mode: false,
            quota_mode: false,
            strict_looks: false,
            on_failure: OnFailure::default(),
            headers: ResponseHeaders::default(),
            dynamic_metadata: false,
            near_limit_percent: 80,
        }
    }
}

impl EnvoyOptions {
    /// The algorithm that counts limits of `unit` and `requests_per_unit` by default: at most
    /// `requests_per_unit` in any trailing unit. A request comes back up to a 30th of the unit late.
    pub const DEFAULT_ALGORITHM: Algorithm = Algorithm::SlidingBuckets(30);

    /// Sets how the limits of one request are decided. The default is [`Decide::Together`].
    #[must_use]
    pub fn decide(mut self, decide: Decide) -> Self {
        self.decide = decide;
        self
    }

    /// Sets the algorithm that counts limits of `unit` and `requests_per_unit`. The default is
    /// [`DEFAULT_ALGORITHM`](Self::DEFAULT_ALGORITHM), and envoyproxy/ratelimit has
    /// [`Algorithm::FixedWindow`].
    ///
    /// A limit above 2^31, which no log can count, is counted by [`Algorithm::SlidingCounter`].
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Sets whether several files may have limits of one domain. By default that is a mistake.
    #[must_use]
    pub fn merge_domains(mut self, merge: bool) -> Self {
        self.merge_domains = merge;
        self
    }

    /// Sets whether the limits of a domain end when no file has the domain any more. By default they stay in force
    /// until a restart, because a file can be lost by accident. A file with a `domain` and no `descriptors` ends
    /// the limits of its domain in any case.
    #[must_use]
    pub fn remove_domains(mut self, remove: bool) -> Self {
        self.remove_domains = remove;
        self
    }

    /// Sets whether all requests are admitted, whatever the limits say. The statuses still say it.
    #[must_use]
    pub fn shadow_mode(mut self, shadow: bool) -> Self {
        self.shadow_mode = shadow;
        self
    }

    /// Sets whether all limits are in quota mode: a request is denied if all of its limits deny it.
    #[must_use]
    pub fn quota_mode(mut self, quota: bool) -> Self {
        self.quota_mode = quota;
        self
    }

    /// Sets whether a look (`hits_addend: 0`) passes only while a request is left. By default it passes while no
    /// more requests than the limit were counted, as in envoyproxy/ratelimit: work that looks first and reports
    /// afterwards is admitted once more.
    #[must_use]
    pub fn strict_looks(mut self, strict: bool) -> Self {
        self.strict_looks = strict;
        self
    }

    /// Sets what happens while the store cannot answer. The default is [`OnFailure::Local`]. With
    /// [`OnFailure::Deny`] the service answers `UNAVAILABLE`, and Envoy's `failure_mode_deny` decides.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the headers that the service adds to responses.
    #[must_use]
    pub fn headers(mut self, headers: ResponseHeaders) -> Self {
        self.headers = headers;
        self
    }

    /// Sets whether all responses have dynamic metadata: the domain, the descriptors, and the `metadata`
    /// of the limits that passed. By default, those responses have it for which a limit with `metadata`
    /// has passed.
    #[must_use]
    pub fn dynamic_metadata(mut self, dynamic_metadata: bool) -> Self {
        self.dynamic_metadata = dynamic_metadata;
        self
    }

    /// Sets from which percentage of a limit on requests count as near the limit. The default is 80.
    #[must_use]
    pub fn near_limit_percent(mut self, percent: u8) -> Self {
        self.near_limit_percent = percent.min(100);
        self
    }
}

impl ResponseHeaders {
    /// Returns the headers of no kind, which are the default.
    #[must_use]
    pub const fn none() -> Self {
        Self { ratelimit: false, limit: None }
    }

    /// Sets whether responses have `ratelimit` and `ratelimit-policy` of
    /// draft-ietf-httpapi-ratelimit-headers-11, and denials `retry-after`. The default is false.
    ///
    /// The names in the first two are those of the limits: the `name` in the configuration, or else the keys and
    /// configured values of the descriptors, such as `source_cluster_proxy.destination_cluster_mock`. The clients
    /// of Envoy see them.
    #[must_use]
    pub fn ratelimit(mut self, ratelimit: bool) -> Self {
        self.ratelimit = ratelimit;
        self
    }

    /// Adds `x-ratelimit-limit`, `x-ratelimit-remaining` and `x-ratelimit-reset`. Envoy writes headers
    /// of these names by itself if its filter has `enable_x_ratelimit_headers`.
    #[must_use]
    pub fn x_ratelimit(self) -> Self {
        self.limit_headers("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
    }

    /// Adds three headers of these names about the limit that has the fewest units left: its requests
    /// per unit, the requests that are left, and the seconds until the reset. They have no name of a limit.
    #[must_use]
    pub fn limit_headers(
        mut self,
        limit: impl Into<String>,
        remaining: impl Into<String>,
        reset: impl Into<String>,
    ) -> Self {
        let (limit, remaining, reset) = (limit.into(), remaining.into(), reset.into());
        self.limit = Some(LimitHeaders { limit, remaining, reset });
        self
    }
}
