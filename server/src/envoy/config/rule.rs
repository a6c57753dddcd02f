//! A limit of a configuration.

use std::{
    collections::BTreeMap,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use plimsoll::Policy;
use plimsoll_control::Registered;
use serde_json::{Map, Value};

use crate::envoy::stats::RuleStats;

/// A limit of a configuration, and the switches of its descriptor.
#[derive(Debug)]
pub(in crate::envoy) struct Rule {
    pub(in crate::envoy) limit: Limit,
    /// The limit as a response shows it. Its name is that by which others replace it.
    pub(in crate::envoy) shown: RateLimit,
    pub(in crate::envoy) replaces: Box<[Box<str>]>,
    pub(in crate::envoy) is_shadow: bool,
    pub(in crate::envoy) is_quota: bool,
    /// The fields that the dynamic metadata of a response has if the limit passes.
    pub(in crate::envoy) metadata: Map<String, Value>,
    pub(super) domain: Box<str>,
    /// The names of the descriptors on the way to the limit: a key, or a key and a value.
    pub(super) names: Vec<String>,
    /// The name in the headers of responses.
    pub(in crate::envoy) header_name: Box<str>,
    pub(super) stats: OnceLock<RuleStats>,
    pub(in crate::envoy) denied_hits: DeniedHits,
}

/// The kind of a limit.
#[derive(Debug)]
pub(in crate::envoy) enum Limit {
    Unlimited,
    /// A limit of 0 requests, which denies each of them.
    Never,
    Counted(Counted),
}

/// A limit that a store counts.
#[derive(Debug)]
pub(in crate::envoy) struct Counted {
    policy: Policy,
    registered: OnceLock<Registered>,
}

impl Counted {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, registered: OnceLock::new() }
    }

    /// Counts under the [policy](Policy) of this name in a registry from now on, if it is registered.
    pub(super) fn register(&self, registered: &BTreeMap<String, Registered>) {
        if let Some(registered) = registered.get(self.policy.name()) {
            // A configuration is installed once.
            let _ = self.registered.set(registered.clone());
        }
    }

    /// Returns the [policy](Policy).
    pub(in crate::envoy) fn policy(&self) -> &Policy {
        self.registered.get().map_or(&self.policy, Registered::policy)
    }

    /// Returns a policy with the quota of the file, which an override may have replaced since.
    pub(super) fn configured(&self) -> Policy {
        let quota = self.registered.get().map(|registered| registered.configured().0);
        let policy = quota.and_then(|quota| Policy::new(self.policy.name(), quota).ok());
        policy.unwrap_or_else(|| self.policy.clone())
    }

    /// Returns whether no operator has switched the limit off.
    pub(in crate::envoy) fn is_enabled(&self) -> bool {
        self.registered.get().is_none_or(Registered::is_enabled)
    }
}

/// The treatment of hits that a limit denies.
///
/// A caller may look at a budget before some work (`hits_addend: 0`), and report afterwards how much the
/// work has used, as Envoy does with `apply_on_stream_done`. A report has to count even if it exceeds the rest of the
/// limit. So by default hits that are denied count under limits at which some caller has looked.
#[derive(Debug)]
pub(in crate::envoy) struct DeniedHits {
    configured: Option<bool>,
    was_looked_at: AtomicBool,
}

impl DeniedHits {
    pub(super) fn new(configured: Option<bool>) -> Self {
        Self { configured, was_looked_at: AtomicBool::new(false) }
    }

    /// Records that a caller has looked at a budget of this limit.
    pub(in crate::envoy) fn looked_at(&self) {
        // Each processor keeps its copy of the line, unless one of them writes it.
        if !self.was_looked_at.load(Relaxed) {
            self.was_looked_at.store(true, Relaxed);
        }
    }

    /// Returns whether hits that are denied count. `after_looks` is true if they count once a caller has looked.
    pub(in crate::envoy) fn count(&self, after_looks: bool) -> bool {
        self.configured.unwrap_or_else(|| after_looks && self.was_looked_at.load(Relaxed))
    }

    /// Returns whether the configuration says that hits that are denied do not count.
    pub(in crate::envoy) fn never_count(&self) -> bool {
        self.configured == Some(false)
    }
}

impl Rule {
    /// Returns the name by which other limits can replace this one.
    pub(in crate::envoy) fn name(&self) -> &str {
        &self.shown.name
    }

    /// Returns the counters.
    pub(in crate::envoy) fn stats(&self) -> &RuleStats {
        self.stats.get_or_init(|| RuleStats::new(&self.domain, &self.names))
    }
}
