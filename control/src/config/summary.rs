//! The rules of a configuration in words, and hints on it.

use std::fmt::Write;

use super::{
    document::At,
    plan::policies_of,
    spec::{FileSpec, KeySpec, RuleSpec, TierSpec},
};

/// Returns the rules of a configuration, one in each text.
pub(super) fn rules(spec: &FileSpec) -> Vec<String> {
    spec.rules.iter().flatten().map(|at| rule(&at.value)).collect()
}

/// Returns a hint on each rule and policy that is allowed, and probably not meant.
pub(super) fn hints(spec: &FileSpec) -> Vec<String> {
    let rules = || spec.rules.iter().flatten();
    if rules().next().is_none() {
        let hint = "there are no rules: a layer refuses the file, and plimsoll-server needs none";
        return vec![hint.to_owned()];
    }
    let is_used =
        |name: &str| rules().any(|rule| policies_of(&rule.value).any(|it| it.value == name));
    let unused = spec.policies.0.iter().filter(|(name, _)| !is_used(&name.value));
    unused.map(|(name, _)| format!("no rule uses the policy `{}`", name.value)).collect()
}

fn rule(rule: &RuleSpec) -> String {
    let mut text = format!("{} by {}", rule.policy.value, key(&rule.key.value));
    let mut add = |label: &str, values: Vec<String>| {
        if !values.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {label} {}", values.join(", "));
        }
    };
    let names = |names: &[At<String>]| names.iter().map(|name| name.value.clone()).collect();
    let only = rule.only.iter().flat_map(|only| &only.value);
    add("only", only.map(|route| route.0.clone()).collect());
    add("cost", rule.cost.iter().map(|cost| cost.value.to_string()).collect());
    let costs = rule.costs.0.iter();
    add("costs", costs.map(|(route, cost)| format!("{}: {cost}", route.value)).collect());
    let tier = rule.tier.iter().map(|tier| match &tier.value {
        TierSpec::Header(name) => format!("header({})", name.0),
        TierSpec::Claim(name) => format!("claim({name})"),
    });
    add("tier", tier.collect());
    let tiers = rule.tiers.0.iter();
    add("tiers", tiers.map(|(tier, it)| format!("{}: {}", tier.value, it.value)).collect());
    add("trials", names(&rule.trials));
    let on_failure = rule.on_failure.iter();
    add("on failure", on_failure.map(|it| format!("{it:?}").to_lowercase()).collect());
    text + if rule.shadow { ", shadow" } else { "" }
}

fn key(spec: &KeySpec) -> String {
    let of = |name: &str, value: &str| format!("{name}({value})");
    let listed = |keys: &[KeySpec]| keys.iter().map(key).collect::<Vec<_>>().join(", ");
    match spec {
        KeySpec::ClientIp => "client_ip".to_owned(),
        KeySpec::PeerIp => "peer_ip".to_owned(),
        KeySpec::BearerToken => "bearer_token".to_owned(),
        KeySpec::MatchedRoute => "matched_route".to_owned(),
        KeySpec::Anonymous => "anonymous".to_owned(),
        KeySpec::Header(name) => of("header", name.0.as_str()),
        KeySpec::NameInHeader(name) => of("name_in_header", name.0.as_str()),
        KeySpec::Cookie(name) => of("cookie", name),
        KeySpec::PathParam(name) => of("path_param", name),
        KeySpec::Claim(name) => of("claim", name),
        KeySpec::Constant(text) => of("constant", text),
        KeySpec::FirstOf(keys) => of("first_of", &listed(keys)),
        KeySpec::AllOf(keys) => of("all_of", &listed(keys)),
    }
}
