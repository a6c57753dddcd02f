//! The rules of a configuration, and the layer that they make.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use http::{Method, request::Parts};
use plimsoll::{Limiter, RateLimitLayer, Rule, by::ClientIp, cost, route, rule::Tiers};

use super::{
    Claims,
    keys::{self, Extract},
    spec::{FileSpec, HeadersSpec, RuleSpec, TierSpec, set},
};
use crate::registry::Registered;

/// A change of the layer by the program.
pub(super) type Change = dyn Fn(RateLimitLayer) -> RateLimitLayer + Send + Sync;

/// The rules of a configuration that is in force.
pub(super) struct Rules {
    pub(super) rules: Vec<FileRule>,
    pub(super) spec: FileSpec,
    pub(super) client_ip: ClientIp,
}

/// A rule of the file, and the condition under which it applies.
pub(super) struct FileRule {
    pub(super) rule: Rule,
    pub(super) condition: Arc<Condition>,
}

impl Rules {
    /// Makes the [rules](Rules) of a valid configuration whose policies are registered.
    /// It returns `None` if a policy is missing.
    pub(super) fn new(
        spec: FileSpec,
        policies: &BTreeMap<String, Registered>,
        client_ip: ClientIp,
    ) -> Option<Self> {
        let rules = spec.rules.iter().flatten();
        let rules =
            rules.map(|rule| make(&rule.value, policies, &client_ip)).collect::<Option<_>>();
        Some(Self { rules: rules?, spec, client_ip })
    }

    /// Returns each rule as a line of text.
    pub(super) fn lines(&self) -> Vec<String> {
        self.spec.rules.iter().flatten().map(|rule| rule.value.to_string()).collect()
    }

    /// Returns a hint on each rule and policy that is allowed, and probably not meant.
    pub(super) fn hints(&self) -> Vec<String> {
        if self.rules.is_empty() {
            let hint =
                "there are no rules: a layer refuses the file, and plimsoll-server needs none";
            return vec![hint.to_owned()];
        }
        let rules = self.spec.rules.iter().flatten();
        let used: Vec<_> = rules.flat_map(|rule| rule.value.policies()).collect();
        let policies = self.spec.policies.0.iter();
        let unused = policies.filter(|(name, _)| !used.iter().any(|it| it.value == name.value));
        unused.map(|(name, _)| format!("no rule uses the policy `{}`", name.value)).collect()
    }

    /// Returns a layer with these [rules](Rules) over a limiter, as the program has changed it, or `None`
    /// without a rule.
    pub(super) fn layer(
        &self,
        limiter: &Limiter,
        change: Option<&Change>,
    ) -> Option<RateLimitLayer> {
        let (first, rest) = self.rules.split_first()?;
        let layer = RateLimitLayer::new(limiter.clone(), first.rule.clone());
        let layer = rest.iter().fold(layer, |layer, it| layer.and(it.rule.clone()));
        let layer = self.with_settings(layer);
        Some(match change {
            Some(change) => change(layer),
            None => layer,
        })
    }

    /// Applies the settings of the file to a layer: all but the rules.
    pub(super) fn with_settings(&self, layer: RateLimitLayer) -> RateLimitLayer {
        let FileSpec { enabled, exempt, exempt_preflights, plain_text, .. } = &self.spec;
        let FileSpec { headers, delay, jitter, .. } = &self.spec;
        let layer = exempt.iter().fold(layer, |layer, it| layer.exempt(route::is(&it.0)));
        let layer = if *exempt_preflights { layer.exempt(route::is_preflight) } else { layer };
        let layer = if *plain_text { layer.plain_text() } else { layer };
        let layer = set(layer, *enabled, RateLimitLayer::enabled);
        let headers = headers.as_ref().map(HeadersSpec::headers);
        let layer = set(layer, headers, RateLimitLayer::headers);
        let layer = set(layer, delay.map(Into::into), RateLimitLayer::delay);
        set(layer, jitter.map(Into::into), RateLimitLayer::jitter)
    }
}

fn make(
    spec: &RuleSpec,
    policies: &BTreeMap<String, Registered>,
    client_ip: &ClientIp,
) -> Option<FileRule> {
    let key = keys::extract(&spec.key.value, client_ip);
    let condition = Arc::new(Condition::new(spec, policies)?);
    let rule = condition.choice.rule(key);
    let is_met = Arc::clone(&condition);
    let mut rule = rule.only(move |parts| is_met.has_route(parts) && is_met.is_enabled(parts));
    if spec.cost.is_some() || !spec.costs.0.is_empty() {
        rule = with_costs(rule, spec);
    }
    for trial in &spec.trials {
        rule = rule.trial(policies.get(&trial.value)?.policy().clone());
    }
    rule = set(rule, spec.on_failure, Rule::on_failure);
    rule = if spec.shadow { rule.shadow() } else { rule };
    Some(FileRule { rule, condition })
}

/// The condition under which a rule applies to a request.
pub(super) struct Condition {
    /// The routes of the rule, or `None` for all requests.
    routes: Option<Vec<Box<IsRoute>>>,
    pub(super) choice: Choice,
}

type IsRoute = dyn Fn(&Parts) -> bool + Send + Sync;

impl Condition {
    fn new(spec: &RuleSpec, policies: &BTreeMap<String, Registered>) -> Option<Self> {
        let routes = spec.only.as_ref().map(|only| {
            let routes = only.value.iter();
            routes.map(|it| Box::new(route::is(&it.0)) as Box<IsRoute>).collect()
        });
        Some(Self { routes, choice: Choice::new(spec, policies)? })
    }

    /// Returns whether the request has one of the routes of the rule.
    pub(super) fn has_route(&self, parts: &Parts) -> bool {
        self.routes.as_ref().is_none_or(|routes| routes.iter().any(|is| is(parts)))
    }

    /// Returns whether the policy of the request is switched on.
    pub(super) fn is_enabled(&self, parts: &Parts) -> bool {
        self.choice.of(parts).is_enabled()
    }
}

/// Sets the cost of a request: by its route, or by its method, or the cost of all others.
fn with_costs(rule: Rule, spec: &RuleSpec) -> Rule {
    let costs = spec.costs.0.iter().map(|(name, cost)| (&*name.value, *cost));
    let (routes, methods): (Vec<_>, Vec<_>) = costs.partition(|(name, _)| name.contains('/'));
    let methods = methods.into_iter();
    let methods = methods.filter_map(|(name, cost)| Some((name.parse::<Method>().ok()?, cost)));
    let by_method = by_method(methods.collect(), spec.cost.as_ref().map_or(1, |cost| cost.value));
    if routes.is_empty() {
        return rule.cost(by_method);
    }
    rule.cost(cost::by_route(routes, by_method))
}

fn by_method(
    costs: Vec<(Method, u64)>,
    others: u64,
) -> impl Fn(&Parts) -> u64 + Send + Sync + 'static {
    move |parts| {
        let found = costs.iter().find(|(method, _)| *method == parts.method);
        found.map_or(others, |(_, cost)| *cost)
    }
}

/// The policy of each request, by its tier, or the policy of the rule.
pub(super) struct Choice {
    tier: Option<TierSpec>,
    tiers: HashMap<String, Registered>,
    otherwise: Registered,
}

impl Choice {
    fn new(spec: &RuleSpec, policies: &BTreeMap<String, Registered>) -> Option<Self> {
        let tiers =
            spec.tiers.0.iter().map(|(tier, policy)| {
                Some((tier.value.clone(), policies.get(&policy.value)?.clone()))
            });
        let choice = Self {
            tier: spec.tier.as_ref().map(|tier| tier.value.clone()),
            tiers: tiers.collect::<Option<_>>()?,
            otherwise: policies.get(&spec.policy.value)?.clone(),
        };
        choice.tiers.values().chain([&choice.otherwise]).for_each(Registered::set_switch);
        Some(choice)
    }

    fn rule(&self, key: Extract) -> Rule {
        let otherwise = self.otherwise.policy().clone();
        let Some(tier) = self.tier.clone() else {
            return Rule::new(otherwise, move |parts| key(parts));
        };
        let tiers = self.tiers.iter().fold(Tiers::<String>::new(otherwise), |tiers, it| {
            tiers.tier(it.0.clone(), it.1.policy().clone())
        });
        tiers.rule(move |parts| tier_of(&tier, parts).map(str::to_owned), move |parts| key(parts))
    }

    /// Returns the policy of a request.
    pub(super) fn of(&self, parts: &Parts) -> &Registered {
        let tier = self.tier(parts);
        tier.and_then(|tier| self.tiers.get(tier)).unwrap_or(&self.otherwise)
    }

    /// Returns the tier of a request, if it has one.
    pub(super) fn tier<'p>(&self, parts: &'p Parts) -> Option<&'p str> {
        self.tier.as_ref().and_then(|tier| tier_of(tier, parts))
    }
}

fn tier_of<'p>(tier: &TierSpec, parts: &'p Parts) -> Option<&'p str> {
    match tier {
        TierSpec::Header(name) => parts.headers.get(&name.0)?.to_str().ok(),
        TierSpec::Claim(name) => parts.extensions.get::<Claims>()?.get(name),
    }
}
