//! The differences between this service and envoyproxy/ratelimit under a configuration.

use std::{collections::HashSet, fmt};

use plimsoll::{Algorithm, Quota};

use super::{
    config::{EnvoyConfig, Limit, Rule},
    options::{Decide, EnvoyOptions},
    unit::{Unit, quota_of},
};

/// A difference between this service and envoyproxy/ratelimit under a configuration, or a limit that does
/// probably not do what it is meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The behavior.
    pub change: String,
    /// The reason for it.
    pub reason: String,
    /// The file, the line and the path of the descriptors of each limit with this finding, in the order of the files.
    pub limits: Vec<String>,
}

/// The most limits that a finding names.
const MAX_NAMED: usize = 6;

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.change)?;
        for limit in self.limits.iter().take(MAX_NAMED) {
            writeln!(f, "  --> {limit}")?;
        }
        if let more @ 1.. = self.limits.len().saturating_sub(MAX_NAMED) {
            writeln!(f, "  --> and {more} more")?;
        }
        write!(f, "   = reason: {}", self.reason)
    }
}

/// Returns the findings about the limits of a configuration, in the order of the files. Equal findings are
/// one.
#[must_use]
pub fn lint(config: &EnvoyConfig) -> Vec<Finding> {
    let rules = config.tree.rules();
    let names: HashSet<_> = rules.iter().map(|rule| rule.name()).collect();
    let mut lint = Lint { options: &config.options, names, findings: Vec::new() };
    rules.into_iter().for_each(|rule| lint.rule(rule));
    lint.findings
}

struct Lint<'c> {
    options: &'c EnvoyOptions,
    names: HashSet<&'c str>,
    findings: Vec<Finding>,
}

impl Lint<'_> {
    fn rule(&mut self, rule: &Rule) {
        match &rule.limit {
            Limit::Unlimited => {}
            Limit::Never => self.add(
                rule,
                "each request is denied, because `requests_per_unit` is 0 or missing",
                "a limit of 0 is a ban",
            ),
            Limit::Counted(counted) => {
                self.algorithm(rule, &counted.policy().quota());
                self.modes(rule);
            }
        }
        for name in &rule.replaces {
            if self.names.contains(&**name) {
                continue;
            }
            self.add(
                rule,
                format!("it replaces `{name}`, and no limit has this name"),
                "names are those of `rate_limit.name` in any domain",
            );
        }
        if !rule.metadata.is_empty() && !self.options.dynamic_metadata {
            self.add(
                rule,
                "responses have dynamic metadata when it passes",
                "`metadata` acts without a switch; there it needs RESPONSE_DYNAMIC_METADATA",
            );
        }
    }

    fn algorithm(&mut self, rule: &Rule, quota: &Quota) {
        let Some(window) = Unit::of_window(quota.window()) else { return };
        let (unit, limit, algorithm) = (window.name(), quota.limit(), quota.algorithm());
        let by_switch = quota_of(rule.shown.requests_per_unit, window, self.options.algorithm);
        let switch = if by_switch.is_ok_and(|it| it == *quota) {
            "the switch is `algorithm`"
        } else {
            "its `quota` has the algorithm"
        };
        let change = match algorithm {
            Algorithm::FixedWindow => return,
            Algorithm::SlidingBuckets(buckets) => format!(
                "at most {limit} in any {unit}; each comes back up to a {buckets}th of the {unit} late"
            ),
            Algorithm::SlidingLog => format!("at most {limit} in any {unit}"),
            Algorithm::SlidingCounter => format!("near {limit} in any {unit}"),
            other => format!("counted by {other}"),
        };
        self.add(
            rule,
            change,
            format!(
                "a fixed window admits up to {} around its edge; {switch}",
                limit.saturating_mul(2)
            ),
        );
    }

    fn modes(&mut self, rule: &Rule) {
        if self.options.decide == Decide::Together && !rule.is_shadow {
            self.add(
                rule,
                "a request that another limit denies is not counted",
                "all limits of a request are charged, or none; the switch is `decide`",
            );
        }
        self.add(
            rule,
            "a request that it denies is not counted, unless requests look at it (`hits_addend: 0`)",
            "a client that keeps trying gets its budget back; the field is `count_denied`",
        );
        if rule.is_shadow && rule.is_quota {
            self.add(
                rule,
                "`quota_mode` has no effect beside `shadow_mode`",
                "a shadow always passes, and so passes for all limits in quota mode",
            );
        }
    }

    fn add(&mut self, rule: &Rule, change: impl Into<String>, reason: impl Into<String>) {
        let (change, reason) = (change.into(), reason.into());
        let limit = format!("{}:{}: {}", rule.place.file, rule.place.line, rule.metric_key);
        let is_equal = |it: &&mut Finding| (&it.change, &it.reason) == (&change, &reason);
        match self.findings.iter_mut().find(is_equal) {
            Some(equal) => equal.limits.push(limit),
            None => self.findings.push(Finding { change, reason, limits: vec![limit] }),
        }
    }
}
