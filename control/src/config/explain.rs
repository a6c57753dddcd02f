//! The explanation of what the rules do with a request.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use http::{Request, Response, request::Parts};
use plimsoll::{
    Charge, Limiter, Policy, Quota, RateLimitLayer, Rule, by, key::Identity, route, rule,
};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    keys,
    rules::{FileRule, Rules},
    spec::{KeySpec, RuleSpec},
};

/// The rules of a configuration, each with its result for one request. [`Config::explain`](super::Config::explain)
/// returns it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Explanation {
    /// Why the layer lets the request pass without a charge, whatever the rules are. `None` if the rules are asked.
    pub exempt: Option<String>,
    /// The rules in the order of the file.
    pub rules: Vec<ExplainedRule>,
}

/// A rule, with its result for one request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExplainedRule {
    /// The rule as a line of text, as in [`Config::rules`](super::Config::rules).
    pub rule: String,
    /// The charges of the rule and of its trials. They are empty if the rule does not apply.
    pub charges: Vec<Charge<'static>>,
    /// Why the rule does not apply; or which of its tiers and keys the request has.
    pub notes: Vec<String>,
}

impl Rules {
    /// Returns the result of each rule for a request.
    pub(super) fn explain(&self, request: &Parts) -> Explanation {
        let specs = self.spec.rules.iter().flatten();
        let rules = specs.zip(&self.rules).map(|(spec, rule)| {
            let (charges, notes) = self.result(&spec.value, rule, request);
            ExplainedRule { rule: spec.value.to_string(), charges, notes }
        });
        Explanation { exempt: self.exemption(request), rules: rules.collect() }
    }

    /// Returns the routes of the rules, of their costs and of the exemptions.
    pub(super) fn routes(&self) -> Vec<String> {
        let rules = || self.spec.rules.iter().flatten();
        let only = rules().flat_map(|rule| &rule.value.only).flat_map(|only| &only.value);
        let routes = only.chain(&self.spec.exempt).map(|route| route.0.clone());
        let costs = rules().flat_map(|rule| &rule.value.costs.0);
        let costs = costs.map(|(route, _)| route.value.clone()).filter(|it| it.contains('/'));
        let mut routes: Vec<_> = routes.chain(costs).collect();
        routes.sort();
        routes.dedup();
        routes
    }

    fn result(
        &self,
        spec: &RuleSpec,
        FileRule { rule, condition }: &FileRule,
        request: &Parts,
    ) -> (Vec<Charge<'static>>, Vec<String>) {
        if !condition.has_route(request) {
            let only = spec.only.iter().flat_map(|only| &only.value).map(|it| &*it.0);
            let note = format!("it applies only to {}", only.collect::<Vec<_>>().join(", "));
            return (Vec::new(), vec![note]);
        }
        if !condition.is_enabled(request) {
            let policy = condition.choice.of(request).policy();
            return (Vec::new(), vec![format!("the policy {} is switched off", policy.name())]);
        }
        let rules = rule::Rules::new(rule.clone());
        let charges: Vec<_> = match rules.charges(request) {
            Ok(charged) => charged.charges.into_iter().map(Charge::into_owned).collect(),
            Err(_) => {
                let note = "the key is the address of the peer, and the request has none: a service \
                            rejects it with status 500";
                return (Vec::new(), vec![note.to_owned()]);
            }
        };
        let mut notes = Vec::new();
        if let Some(tier) = &spec.tier {
            notes.push(match condition.choice.tier(request) {
                Some(found) if !spec.tiers.0.iter().any(|(it, _)| it.value == found) => {
                    format!("{} is {found:?}, which is no tier of the rule", tier.value)
                }
                Some(found) => format!("{} is {found:?}", tier.value),
                None => format!("the request has no {}", tier.value),
            });
        }
        notes.extend(self.note_on_key(&spec.key.value, request));
        (charges, notes)
    }

    /// Returns which of several keys the request has, or that it has none.
    fn note_on_key(&self, key: &KeySpec, request: &Parts) -> Option<String> {
        if !self.has_key(key, request) {
            return Some(format!(
                "the request has no {key}: it is charged to the key that all such requests share"
            ));
        }
        let KeySpec::FirstOf(keys) = key else { return None };
        let found = keys.iter().find(|key| self.has_key(key, request))?;
        Some(format!("the key is {found}"))
    }

    fn has_key(&self, key: &KeySpec, request: &Parts) -> bool {
        !matches!(keys::extract(key, &self.client_ip)(request), Identity::Unknown)
    }

    /// Returns why the layer lets a request pass without a charge, if it does.
    fn exemption(&self, request: &Parts) -> Option<String> {
        if !self.exempts(request) {
            return None;
        }
        if self.spec.enabled == Some(false) {
            return Some("the file has `enabled = false`".to_owned());
        }
        let route = self.spec.exempt.iter().find(|it| route::is(&it.0)(request));
        Some(route.map_or_else(
            || "CORS preflights are exempt".to_owned(),
            |route| format!("the route {} is exempt", route.0),
        ))
    }

    /// Returns whether the layer lets a request pass without a charge. A layer with the settings of the file, and a rule
    /// that charges each request, decides it.
    fn exempts(&self, request: &Parts) -> bool {
        let Ok(policy) = Policy::new("explained", Quota::per_second(1)) else { return false };
        let is_charged = Arc::new(AtomicBool::new(false));
        let charged = Arc::clone(&is_charged);
        let rule = Rule::new(policy, by::constant("all"));
        let layer = RateLimitLayer::new(Limiter::in_memory(), rule)
            .on_decision(move |_, _| charged.store(true, Ordering::Relaxed));
        let mut service = self.with_settings(layer).layer(Passed);
        let answer = pin!(service.call(Request::from_parts(request.clone(), String::new())));
        // A limiter in memory decides at once.
        let _ = answer.poll(&mut Context::from_waker(Waker::noop()));
        !is_charged.load(Ordering::Relaxed)
    }
}

/// The service of a request that the layer lets pass.
#[derive(Clone)]
struct Passed;

impl Service<Request<String>> for Passed {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        ready(Ok(Response::new(String::new())))
    }
}
