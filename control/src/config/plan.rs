//! A configuration without mistakes, from which rules are made.

use std::{collections::BTreeMap, ops::Range};

use plimsoll::{Policy, by::ClientIp, policy::Charges};

use super::{
    document::{At, Mistake},
    keys,
    rules::Rules,
    spec::{ClientIpSpec, FileSpec, KeySpec, PolicySpec, Route, RuleSpec, Text, is_method},
    store::StoreConfig,
};
use crate::{
    key_type::{KeyType, MAX_PARTS},
    registry::{Origin, Registered, Registry},
};

/// A configuration whose values and references are all valid.
pub(super) struct Plan {
    spec: FileSpec,
    client_ip: ClientIp,
    policies: Vec<(Policy, KeyType)>,
    /// The policies of the program that the rules name.
    of_program: BTreeMap<String, Registered>,
    store: StoreConfig,
}

impl Plan {
    /// Validates a configuration.
    ///
    /// # Errors
    ///
    /// Returns the first mistake.
    pub(super) fn new(spec: FileSpec, registry: &Registry) -> Result<Self, Mistake> {
        let policies = spec.policies.0.iter().map(|(name, spec)| policy(name, spec));
        let policies = policies.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<_> = spec.policies.0.iter().map(|(name, _)| &*name.value).collect();
        let mut of_program = BTreeMap::new();
        let mut lines = 0;
        let mut before: Vec<&RuleSpec> = Vec::new();
        for rule in spec.rules.iter().flatten() {
            for name in rule.value.policies().filter(|it| !names.contains(&&*it.value)) {
                let found = registry.get(&name.value);
                let found = found.filter(|policy| policy.configured().1 == Origin::Code);
                let policy = found.ok_or_else(|| {
                    let unknown = Mistake::unknown("policy", &name.value, names.iter().copied());
                    unknown.at(name.span.clone())
                })?;
                of_program.insert(name.value.clone(), policy);
            }
            validate(&rule.value)?;
            let known = policies.iter().chain(of_program.values().map(Registered::policy));
            known.into_iter().try_for_each(|policy| validate_costs(&rule.value, policy))?;
            before.iter().try_for_each(|other| validate_beside(&rule.value, other))?;
            before.push(&rule.value);
            lines += 1 + rule.value.trials.len();
            if lines > Charges::MAX {
                let mistake = rule.mistake("too many rules and trials");
                return Err(mistake.allowed(format_args!("{} together", Charges::MAX)));
            }
        }
        let client_ip = client_ip(spec.client_ip.as_ref())?;
        let store = StoreConfig::new(&spec)?;
        let typed = policies.into_iter().map(|policy| {
            let keys = key_type(&spec, policy.name(), &client_ip);
            (policy, keys)
        });
        let policies = typed.collect();
        Ok(Self { spec, client_ip, policies, of_program, store })
    }

    /// Returns whether the configuration has rules.
    pub(super) fn has_rules(&self) -> bool {
        self.spec.rules.as_ref().is_some_and(|rules| !rules.is_empty())
    }

    /// Registers the policies, in place of those that the file had before, and makes the rules.
    ///
    /// # Errors
    ///
    /// Returns an error, and changes nothing, if the program has registered a policy otherwise.
    pub(super) fn apply(
        self,
        registry: &Registry,
        source: &Origin,
    ) -> Result<(Rules, StoreConfig), Mistake> {
        let mut policies = registry.replace(source, self.policies).map_err(|error| {
            let mut named = self.spec.policies.0.iter().map(|(name, _)| name);
            let found = named.find(|name| name.value == error.policy());
            found.map_or_else(|| Mistake::new(&error), |name| name.mistake(&error))
        })?;
        policies.extend(self.of_program);
        let rules = Rules::new(self.spec, &policies, &self.client_ip);
        // A rule is never left out silently. `new` has found all policies.
        let rules = rules.ok_or_else(|| Mistake::new("a rule has no policy"))?;
        Ok((rules, self.store))
    }
}

fn client_ip(spec: Option<&At<ClientIpSpec>>) -> Result<ClientIp, Mistake> {
    let Some(At { value: spec, span }) = spec else { return Ok(ClientIp::peer()) };
    for proxy in &spec.trusted_proxies {
        ClientIp::x_forwarded_for([&proxy.value]).map_err(|error| proxy.mistake(error))?;
    }
    let proxies = || spec.trusted_proxies.iter().map(|proxy| &*proxy.value);
    let source = match &spec.header {
        None if spec.trusted_proxies.is_empty() => Ok(ClientIp::peer()),
        None => {
            let mistake = Mistake::new("trusted proxies without the `header` that they write");
            return Err(mistake
                .allowed("`x-forwarded-for`, `forwarded`, or another")
                .at(span.clone()));
        }
        Some(_) if spec.trusted_proxies.is_empty() => {
            let mistake = Mistake::new("a `header` without `trusted_proxies`, which write it");
            return Err(mistake.at(span.clone()));
        }
        Some(name) if name.0 == "x-forwarded-for" => ClientIp::x_forwarded_for(proxies()),
        Some(name) if name.0 == "forwarded" => ClientIp::forwarded(proxies()),
        Some(name) => ClientIp::header(name.0.as_str(), proxies()),
    };
    let source = source.map_err(|error| Mistake::new(error).at(span.clone()))?;
    match &spec.ipv6_prefix {
        None => Ok(source),
        Some(bits) => {
            source.ipv6_prefix(bits.get()).map_err(|error| Mistake::new(error).at(span.clone()))
        }
    }
}

fn policy(name: &At<String>, PolicySpec { quota, unit }: &PolicySpec) -> Result<Policy, Mistake> {
    let created = Policy::new(&name.value, *quota).map_err(|error| name.mistake(error))?;
    match unit {
        None => Ok(created),
        Some(unit) => created.with_unit(&unit.value).map_err(|error| unit.mistake(error)),
    }
}

fn validate(rule: &RuleSpec) -> Result<(), Mistake> {
    validate_key(&rule.key.value, &rule.key.span)?;
    match (&rule.tier, rule.tiers.0.first()) {
        (Some(tier), None) => {
            return Err(tier.mistake("`tier` without `tiers`, the policies by tier"));
        }
        (None, Some((first, _))) => {
            return Err(first.mistake("`tiers` without `tier`, which says where the tier is found"));
        }
        _ => {}
    }
    if let Some(only) = rule.only.as_ref().filter(|only| only.value.is_empty()) {
        let mistake = "`only` without a route: the rule would apply to no request";
        return Err(only.mistake(mistake));
    }
    for (index, trial) in rule.trials.iter().enumerate() {
        let mut tiers = rule.tiers.0.iter().map(|(_, policy)| policy);
        if trial.value == rule.policy.value || tiers.any(|policy| policy.value == trial.value) {
            return Err(trial.mistake("a policy of a rule cannot be its trial"));
        }
        if rule.trials[..index].iter().any(|other| other.value == trial.value) {
            return Err(trial.mistake("the trial is there twice"));
        }
    }
    for (route, _) in &rule.costs.0 {
        if route.value.contains('/') {
            let mistake = Route::mistake(&route.value).map(|mistake| route.mistake(mistake));
            mistake.map_or(Ok(()), Err)?;
        } else if !is_method(&route.value) {
            let mistake = route.mistake(format_args!("found the text {:?}", route.value));
            return Err(mistake.allowed("\"/path\", \"METHOD /path\" or \"METHOD\""));
        }
    }
    Ok(())
}

/// Checks that this policy of a rule can admit each cost of the rule.
fn validate_costs(rule: &RuleSpec, policy: &Policy) -> Result<(), Mistake> {
    let mut names = rule.tiers.0.iter().map(|(_, policy)| policy).chain([&rule.policy]);
    let (name, capacity) = (policy.name(), policy.quota().capacity());
    // A shadow denies nothing.
    if rule.shadow || !names.any(|it| it.value == name) {
        return Ok(());
    }
    let by_route = rule.costs.0.iter().map(|(route, cost)| (&route.span, *cost));
    let mut costs = rule.cost.iter().map(|cost| (&cost.span, cost.value)).chain(by_route);
    match costs.find(|(_, cost)| *cost > capacity) {
        None => Ok(()),
        Some((span, cost)) => {
            let message = format!(
                "the cost is {cost}, and the policy `{name}` admits at most {capacity} at once, so each \
                 request would be denied"
            );
            let mistake = Mistake::new(message).allowed(format_args!("up to {capacity}"));
            Err(mistake.at(span.clone()))
        }
    }
}

/// Checks that no request is charged to one key under one policy by two rules.
fn validate_beside(rule: &RuleSpec, other: &RuleSpec) -> Result<(), Mistake> {
    let meet = |route: &Route, other: &Route| {
        let ((method, path), (other, at)) = (route.parts(), other.parts());
        let do_methods_meet = match (method, other) {
            // A route with GET is one with HEAD, too.
            (Some("GET"), Some("HEAD")) | (Some("HEAD"), Some("GET")) => true,
            (Some(method), Some(other)) => method == other,
            _ => true,
        };
        path == at && do_methods_meet
    };
    let both_apply = match (&rule.only, &other.only) {
        (Some(some), Some(others)) => {
            some.value.iter().any(|route| others.value.iter().any(|other| meet(route, other)))
        }
        _ => true,
    };
    let is_charged = |name: &&At<String>| other.policies().any(|it| it.value == name.value);
    match rule.policies().find(is_charged).filter(|_| both_apply && rule.key == other.key) {
        None => Ok(()),
        Some(name) => {
            let policy = &name.value;
            let message =
                format!("an earlier rule charges this key under the policy {policy:?} too");
            let allowed = "one rule with `costs` by route, or a policy for each limit";
            Err(name.mistake(message).allowed(allowed))
        }
    }
}

fn validate_key(key: &KeySpec, span: &Range<usize>) -> Result<(), Mistake> {
    match key {
        KeySpec::FirstOf(keys) | KeySpec::AllOf(keys) if keys.is_empty() => {
            Err(Mistake::new("a list without a key").at(span.clone()))
        }
        KeySpec::AllOf(keys) if keys.len() > MAX_PARTS => {
            let mistake = Mistake::new(format_args!("`all_of` has {} keys", keys.len()));
            Err(mistake.allowed(format_args!("at most {MAX_PARTS}")).at(span.clone()))
        }
        KeySpec::FirstOf(keys) | KeySpec::AllOf(keys) => {
            keys.iter().try_for_each(|key| validate_key(key, span))
        }
        _ => Ok(()),
    }
}

/// Returns how the keys of a policy are written: as those of its rules.
fn key_type(spec: &FileSpec, policy: &str, client_ip: &ClientIp) -> KeyType {
    let mut keys: Vec<&KeySpec> = Vec::new();
    for rule in spec.rules.iter().flatten() {
        let is_used = rule.value.policies().any(|name| name.value == policy);
        if is_used && !keys.contains(&&rule.value.key.value) {
            keys.push(&rule.value.key.value);
        }
    }
    match keys.is_empty() {
        true => KeyType::Text,
        false => keys::either(keys.iter().map(|key| keys::key_type(key, client_ip)).collect()),
    }
}
