//! The lines of a request: each descriptor with its limit.

use std::collections::HashSet;

use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::RateLimitDescriptor,
    service::ratelimit::v3::{RateLimitRequest, rate_limit_response::RateLimit},
};
use plimsoll::{Key, Policy, Quota, policy::Charges};

use super::{
    config::{DeniedHits, EnvoyConfig, Limit, Rule, budget_key},
    stats::{RuleStats, Stats},
    unit::{Unit, quota_of},
};

/// The most descriptors of a request. They come from the configuration of Envoy, not from its clients.
pub(super) const MAX_DESCRIPTORS: usize = Charges::MAX;

/// The most entries of a descriptor.
pub(super) const MAX_ENTRIES: usize = 64;

/// The largest message, in bytes. Headers of a client become values, in several descriptors. A smaller limit
/// would let clients that send long headers make the call fail, and so pass without a limit. The key of a
/// long value is a digest.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// A descriptor of a request, with its limit.
#[derive(Debug)]
pub(super) enum Line<'t> {
    /// There is no limit, or another one replaces it.
    Free,
    Unlimited,
    Limited(Limited<'t>),
}

/// A descriptor under a limit.
#[derive(Debug)]
pub(super) struct Limited<'t> {
    /// The [policy](Policy) and the quota under which it is counted, or `None` if the limit is 0.
    pub(super) counted: Option<(&'t Policy, Quota)>,
    /// The limit of the configuration, or `None` if the request has brought its own.
    pub(super) rule: Option<&'t Rule>,
    pub(super) key: Key,
    pub(super) hits: Hits,
    /// True if the descriptor says itself how many hits it has.
    pub(super) has_own_hits: bool,
    pub(super) denied_hits: &'t DeniedHits,
    pub(super) is_shadow: bool,
    pub(super) is_quota: bool,
    pub(super) shown: RateLimit,
    pub(super) stats: &'t RuleStats,
}

/// The effect of a descriptor on its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hits {
    /// It looks at the budget, and spends nothing.
    Look,
    Spend(u64),
}

/// The mistake of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadRequest(pub(super) String);

/// Returns the line of each descriptor.
///
/// # Errors
///
/// Returns an error if the request has no domain or no descriptors, too many of something, or a limit of its
/// own whose unit is not known.
pub(super) fn lines<'t>(
    request: &RateLimitRequest,
    config: &'t EnvoyConfig,
    stats: &Stats,
) -> Result<Vec<Line<'t>>, BadRequest> {
    validate(request)?;
    let Some(domain) = config.tree.domain(&request.domain) else {
        stats.domain_not_found.increment(1);
        return Ok(request.descriptors.iter().map(|_| Line::Free).collect());
    };
    let mut lines = Vec::with_capacity(request.descriptors.len());
    let mut replaced = HashSet::new();
    for descriptor in &request.descriptors {
        let (hits, has_own_hits) = hits(descriptor, request.hits_addend);
        let line = if descriptor.is_negative_hits && hits != Hits::Look {
            // They give nothing back, because a request does not name the hits that it means.
            Line::Unlimited
        } else if descriptor.limit.is_some() {
            let own = own_limit(descriptor, config)?;
            if hits == Hits::Look {
                domain.denied_overrides.looked_at();
            }
            Line::Limited(Limited {
                counted: own.quota.map(|quota| (&domain.overrides, quota)),
                rule: None,
                key: own_key(descriptor, own.unit),
                hits,
                has_own_hits,
                denied_hits: &domain.denied_overrides,
                is_shadow: false,
                is_quota: config.options.quota_mode,
                shown: own.shown,
                stats: domain.override_stats.get_or_init(|| override_stats(&request.domain)),
            })
        } else if let Some((rule, key)) = domain.find(&descriptor.entries) {
            replaced.extend(rule.replaces.iter().map(|name| &**name));
            configured(rule, key, hits, has_own_hits, config)
        } else {
            Line::Free
        };
        lines.push(line);
    }
    if !replaced.is_empty() {
        lines
            .iter_mut()
            .filter(|line| line.has_name_of(&replaced))
            .for_each(|line| *line = Line::Free);
    }
    Ok(lines)
}

impl Line<'_> {
    fn has_name_of(&self, names: &HashSet<&str>) -> bool {
        let Self::Limited(Limited { rule: Some(rule), .. }) = self else { return false };
        !rule.name().is_empty() && names.contains(rule.name())
    }
}

fn validate(request: &RateLimitRequest) -> Result<(), BadRequest> {
    let count = request.descriptors.len();
    let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.len());
    let message = if request.domain.is_empty() {
        "the domain of the request is empty".to_owned()
    } else if count == 0 {
        "the request has no descriptors".to_owned()
    } else if count > MAX_DESCRIPTORS {
        format!("the request has {count} descriptors, allowed are 1 to {MAX_DESCRIPTORS}")
    } else if let Some(many) = entries.max().filter(|many| *many > MAX_ENTRIES) {
        format!("a descriptor has {many} entries, allowed are at most {MAX_ENTRIES}")
    } else {
        return Ok(());
    };
    Err(BadRequest(message))
}

/// Returns the hits of a descriptor, and whether it says them itself.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> (Hits, bool) {
    // More than any limit is never admitted, whatever the number is.
    let most = Quota::MAX_LIMIT + 1;
    let (number, is_own) = match &descriptor.hits_addend {
        Some(hits) => (hits.value.min(most), true),
        None => (u64::from(of_request.max(1)), false),
    };
    let hits = match number {
        0 => Hits::Look,
        _ => Hits::Spend(number),
    };
    (hits, is_own)
}

fn configured<'t>(
    rule: &'t Rule,
    key: Key,
    hits: Hits,
    has_own_hits: bool,
    config: &EnvoyConfig,
) -> Line<'t> {
    let counted = match &rule.limit {
        Limit::Unlimited => return Line::Unlimited,
        Limit::Never => None,
        Limit::Counted(counted) if !counted.is_enabled() => return Line::Free,
        Limit::Counted(counted) => Some((counted.policy(), counted.policy().quota())),
    };
    if hits == Hits::Look {
        rule.denied_hits.looked_at();
    }
    Line::Limited(Limited {
        counted,
        rule: Some(rule),
        key,
        hits,
        has_own_hits,
        denied_hits: &rule.denied_hits,
        is_shadow: rule.is_shadow,
        is_quota: rule.is_quota || config.options.quota_mode,
        shown: rule.shown.clone(),
        stats: rule.stats(),
    })
}

/// A limit that a descriptor brings along.
struct OwnLimit {
    unit: Unit,
    shown: RateLimit,
    /// `None` if the limit is 0.
    quota: Option<Quota>,
}

/// Returns the limit that a descriptor brings along.
fn own_limit(
    descriptor: &RateLimitDescriptor,
    config: &EnvoyConfig,
) -> Result<OwnLimit, BadRequest> {
    let limit = descriptor.limit.unwrap_or_default();
    let Some(unit) = Unit::of_override(limit.unit) else {
        let message = format!(
            "the limit of a descriptor has the unit {}, allowed are SECOND, MINUTE, HOUR, DAY, MONTH and YEAR",
            limit.unit
        );
        return Err(BadRequest(message));
    };
    let requests = limit.requests_per_unit;
    let quota = match requests {
        0 => None,
        _ => {
            let quota = quota_of(requests, unit, config.options.algorithm);
            Some(quota.map_err(|error| BadRequest(error.to_string()))?)
        }
    };
    let shown =
        RateLimit { name: String::new(), requests_per_unit: requests, unit: unit.shown() as i32 };
    Ok(OwnLimit { unit, shown, quota })
}

/// Returns the key of the budget of a limit that a descriptor brings along: the entries and the unit, as in
/// envoyproxy/ratelimit. Another number of requests in the same unit keeps the spent units. Limits of different
/// units are counted apart, because the records of one window say nothing about another.
fn own_key(descriptor: &RateLimitDescriptor, unit: Unit) -> Key {
    let entries = descriptor.entries.iter().map(|it| (&*it.key, &*it.value));
    // The unit is the last pair of each key under this policy, so an entry of this name is no other budget.
    budget_key(entries.chain([("unit", unit.name())]))
}

/// Returns the counters of the limits that requests bring along. They have no label of a descriptor, because clients
/// send its values.
fn override_stats(domain: &str) -> RuleStats {
    RuleStats::new(domain, &["override".to_owned()])
}
