//! A configuration without [mistakes](Mistake), from which rules are made.

use std::{collections::BTreeMap, ops::Range};

use plimsoll::{Policy, by::ClientIp, policy::Charges};

use super::{
    document::{At, MAX_MISTAKES, Mistake},
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
    /// The [policies](Policy) of the program that the rules name.
    of_program: BTreeMap<String, Registered>,
    store: StoreConfig,
}

impl Plan {
    /// Validates a configuration.
    ///
    /// # Errors
    ///
    /// Returns all [mistakes](Mistake).
    pub(super) fn new(spec: FileSpec, registry: &Registry) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let client_ip = client_ip(spec.client_ip.as_ref());
        let policies = policies(&spec, &mut mistakes);
        let rules = spec.rules.iter().flatten();
        let names: Vec<_> = spec.policies.0.iter().map(|(name, _)| &*name.value).collect();
        let mut of_program = BTreeMap::new();
        for rule in rules.clone() {
            for name in rule.value.policies().filter(|it| !names.contains(&&*it.value)) {
                let found = registry.get(&name.value);
                match found.filter(|policy| policy.configured().1 == Origin::Code) {
                    Some(policy) => drop(of_program.insert(name.value.clone(), policy)),
                    None => {
                        let unknown =
                            Mistake::unknown("policy", &name.value, names.iter().copied());
                        mistakes.push(unknown.at(name.span.clone()));
                    }
                }
            }
            validate(&rule.value, &mut mistakes);
            let of_file = policies.iter();
            let known = of_file.chain(of_program.values().map(Registered::policy));
            known.for_each(|policy| validate_costs(&rule.value, policy, &mut mistakes));
        }
        let listed: Vec<_> = rules.clone().map(|rule| &rule.value).collect();
        for (index, rule) in listed.iter().enumerate() {
            let mut beside = listed[..index].iter().map(|other| validate_beside(rule, other));
            mistakes.extend(beside.find_map(Result::err));
        }
        let mut lines = 0;
        for rule in rules {
            lines += 1 + rule.value.trials.len();
            if lines > Charges::MAX {
                let mistake = rule.mistake("too many rules and trials");
                mistakes.push(mistake.allowed(format_args!("{} together", Charges::MAX)));
                break;
            }
        }
        let store = StoreConfig::new(&spec);
        let (client_ip, store) = match (client_ip, store) {
            (Ok(client_ip), Ok(store)) if mistakes.is_empty() => (client_ip, store),
            (client_ip, store) => {
                mistakes.extend(client_ip.err().into_iter().chain(store.err()));
                mistakes.sort_by_key(|mistake| mistake.span.as_ref().map(|span| span.start));
                mistakes.truncate(MAX_MISTAKES);
                return Err(mistakes);
            }
        };
        let types: Vec<_> =
            policies.iter().map(|it| key_type(&spec, it.name(), &client_ip)).collect();
        let policies = policies.into_iter().zip(types).collect();
        Ok(Self { spec, client_ip, policies, of_program, store })
    }

    /// Returns whether the configuration has [rules](Rules).
    pub(super) fn has_rules(&self) -> bool {
        self.spec.rules.as_ref().is_some_and(|rules| !rules.is_empty())
    }

    /// Registers the [policies](Policy), in place of those that the file had before, and makes the rules.
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
        let rules = Rules::new(self.spec, &policies, self.client_ip);
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
    let proxies = spec.trusted_proxies.iter().map(|proxy| &*proxy.value);
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
        Some(name) if name.0 == "x-forwarded-for" => ClientIp::x_forwarded_for(proxies),
        Some(name) if name.0 == "forwarded" => ClientIp::forwarded(proxies),
        Some(name) => ClientIp::header(name.0.as_str(), proxies),
    };
    let source = source.map_err(|error| Mistake::new(error).at(span.clone()))?;
    match &spec.ipv6_prefix {
        None => Ok(source),
        Some(bits) => {
            source.ipv6_prefix(bits.get()).map_err(|error| Mistake::new(error).at(span.clone()))
        }
    }
}

fn policies(spec: &FileSpec, mistakes: &mut Vec<Mistake>) -> Vec<Policy> {
    let created = spec.policies.0.iter().map(|(name, PolicySpec { quota, unit })| {
        let created = Policy::new(&name.value, *quota).map_err(|error| name.mistake(error))?;
        match unit {
            None => Ok(created),
            Some(unit) => created.with_unit(&unit.value).map_err(|error| unit.mistake(error)),
        }
    });
    created.filter_map(|policy| policy.map_err(|mistake| mistakes.push(mistake)).ok()).collect()
}

fn validate(rule: &RuleSpec, mistakes: &mut Vec<Mistake>) {
    mistakes.extend(validate_key(&rule.key.value, &rule.key.span).err());
    match (&rule.tier, rule.tiers.0.first()) {
        (Some(tier), None) => {
            mistakes.push(tier.mistake("`tier` without `tiers`, the policies by tier"));
        }
        (None, Some((first, _))) => {
            let message = "`tiers` without `tier`, which says where the tier is found";
            mistakes.push(first.mistake(message));
        }
        _ => {}
    }
    if let Some(only) = rule.only.as_ref().filter(|only| only.value.is_empty()) {
        mistakes.push(only.mistake("`only` without a route: the rule would apply to no request"));
    }
    for (index, trial) in rule.trials.iter().enumerate() {
        let mut tiers = rule.tiers.0.iter().map(|(_, policy)| policy);
        if trial.value == rule.policy.value || tiers.any(|policy| policy.value == trial.value) {
            mistakes.push(trial.mistake("a policy of a rule cannot be its trial"));
        } else if rule.trials[..index].iter().any(|other| other.value == trial.value) {
            mistakes.push(trial.mistake("the trial is there twice"));
        }
    }
    for (route, _) in &rule.costs.0 {
        if let Some(mistake) = Route::mistake(&route.value).filter(|_| route.value.contains('/')) {
            mistakes.push(route.mistake(mistake));
        } else if !route.value.contains('/') && !is_method(&route.value) {
            let mistake = route.mistake(format_args!("found the text {:?}", route.value));
            mistakes.push(mistake.allowed("\"/path\", \"METHOD /path\" or \"METHOD\""));
        }
    }
}

/// Adds a mistake for each cost of a rule that this policy of it can never admit.
fn validate_costs(rule: &RuleSpec, policy: &Policy, mistakes: &mut Vec<Mistake>) {
    let mut names = rule.tiers.0.iter().map(|(_, policy)| policy).chain([&rule.policy]);
    let name = policy.name();
    let capacity = policy.quota().capacity();
    // A shadow denies nothing.
    if rule.shadow || !names.any(|it| it.value == name) {
        return;
    }
    let by_route = rule.costs.0.iter().map(|(route, cost)| (&route.span, *cost));
    let costs = rule.cost.iter().map(|cost| (&cost.span, cost.value)).chain(by_route);
    for (span, cost) in costs.filter(|(_, cost)| *cost > capacity) {
        let message = format!(
            "the cost is {cost}, and the policy `{name}` admits at most {capacity} at once, so each \
             request would be denied"
        );
        mistakes
            .push(Mistake::new(message).allowed(format_args!("up to {capacity}")).at(span.clone()));
    }
}

/// Checks that no request is charged to one key under one policy by two [rules](Rules).
fn validate_beside(rule: &RuleSpec, other: &RuleSpec) -> Result<(), Mistake> {
    let both_apply = match (&rule.only, &other.only) {
        (Some(some), Some(others)) => {
            some.value.iter().any(|route| others.value.iter().any(|other| meet(route, other)))
        }
        _ => true,
    };
    let twice = rule.policies().find(|name| other.policies().any(|it| it.value == name.value));
    match twice.filter(|_| both_apply && rule.key == other.key) {
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

/// Returns whether a request may have both routes.
fn meet(route: &Route, other: &Route) -> bool {
    let ((method, path), (other_method, other_path)) = (route.parts(), other.parts());
    let do_methods_meet = match (method, other_method) {
        // A route with GET is one with HEAD, too.
        (Some("GET"), Some("HEAD")) | (Some("HEAD"), Some("GET")) => true,
        (Some(method), Some(other)) => method == other,
        _ => true,
    };
    path == other_path && do_methods_meet
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

/// Returns how the keys of a policy are written: as the keys of its rules.
fn key_type(spec: &FileSpec, policy: &str, client_ip: &ClientIp) -> KeyType {
    let mut keys: Vec<&KeySpec> = Vec::new();
    for rule in spec.rules.iter().flatten() {
        let is_used = rule.value.policies().any(|name| name.value == policy);
        if is_used && !keys.contains(&&rule.value.key.value) {
            keys.push(&rule.value.key.value);
        }
    }
    if keys.is_empty() {
        return KeyType::Text;
    }
    keys::either(keys.iter().map(|key| keys::key_type(key, client_ip)).collect())
}
