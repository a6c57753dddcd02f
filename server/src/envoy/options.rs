//! The switches of the service.

use plimsoll::{Algorithm, OnFailure};
use serde::Deserialize;

/// The switches of the rate limit service for [Envoy](super::Envoy).
///
/// ```
/// use plimsoll::Algorithm;
/// use plimsoll_server::envoy::{Decide, EnvoyOptions};
///
/// // As envoyproxy/ratelimit decides.
/// let options = EnvoyOptions {
///     decide: Decide::Each,
///     algorithm: Algorithm::FixedWindow,
///     ..EnvoyOptions::default()
/// };
/// assert_ne!(options, EnvoyOptions::default());
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EnvoyOptions {
    /// The way in which the limits of one request are decided. The default is [`Decide::Together`].
    pub decide: Decide,
    /// The algorithm that counts limits of `unit` and `requests_per_unit`. The default is
    /// [`DEFAULT_ALGORITHM`](Self::DEFAULT_ALGORITHM), and envoyproxy/ratelimit has [`Algorithm::FixedWindow`].
    ///
    /// A limit above 2^31, which no log can count, is counted by [`Algorithm::SlidingCounter`].
    pub algorithm: Algorithm,
    /// True if the limits of a domain end when no file has the domain any more. By default they stay in force
    /// until a restart, because a file can be lost by accident ([`kept_domains`](super::EnvoyConfig::kept_domains)). A file with a `domain` and no `descriptors` ends
    /// the limits of its domain in any case.
    pub remove_domains: bool,
    /// True if all requests are admitted, whatever the limits say. The statuses still say it.
    pub shadow_mode: bool,
    /// True if all limits are in quota mode: a request is denied if all of its limits deny it.
    pub quota_mode: bool,
    /// True if a look (`hits_addend: 0`) passes only while a request is left. By default it passes while no more
    /// requests than the limit were counted, as in envoyproxy/ratelimit: work that looks first and reports afterwards
    /// is admitted once more.
    pub strict_looks: bool,
    /// The decision while the store cannot answer. The default is [`OnFailure::Local`]. With
    /// [`OnFailure::Deny`] the service answers `UNAVAILABLE`, and Envoy's `failure_mode_deny` decides.
    pub on_failure: OnFailure,
    /// True if responses have `ratelimit` and `ratelimit-policy` of draft-ietf-httpapi-ratelimit-headers-11, and
    /// denials `retry-after`. By default the service adds no header, as envoyproxy/ratelimit.
    /// The first two name the limits: by the `name` in the configuration, or else the keys and configured
    /// values of the descriptors, such as `source_cluster_proxy.destination_cluster_mock`. The clients of Envoy
    /// see them.
    pub ratelimit_headers: bool,
    /// True if all responses have dynamic metadata: the domain, the descriptors, and the `metadata` of the limits
    /// that pass. By default, a response has it if a limit that passes has `metadata`.
    pub dynamic_metadata: bool,
}

/// The way in which the limits of one request are [decided](EnvoyOptions::decide).
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

impl Default for EnvoyOptions {
    fn default() -> Self {
        Self {
            decide: Decide::default(),
            algorithm: Self::DEFAULT_ALGORITHM,
            remove_domains: false,
            shadow_mode: false,
            quota_mode: false,
            strict_looks: false,
            on_failure: OnFailure::default(),
            ratelimit_headers: false,
            dynamic_metadata: false,
        }
    }
}

impl EnvoyOptions {
    /// The [algorithm](Algorithm) that counts limits of `unit` and `requests_per_unit` by default: at most
    /// `requests_per_unit` in any trailing unit. A request comes back up to a 30th of the unit late.
    pub const DEFAULT_ALGORITHM: Algorithm = Algorithm::SlidingBuckets(30);
}
