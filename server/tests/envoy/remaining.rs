//! The units that are left, in each place of an answer, against a model that adds and compares.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitResponse, rate_limit_response::Code,
};
use plimsoll::Quota;
use plimsoll_control::{Offenders, Registry};
use plimsoll_server::envoy::{Decide, Envoy, EnvoyConfig, EnvoyOptions};
use plimsoll_testing::seed;
use proptest::{prelude::*, test_runner::Config};

use crate::support::{Service, descriptor, hits, memory, request};

/// Each limit has another name, and all have 50 a day, so that no unit comes back.
const LIMITS: &str = "
domain: shop
descriptors:
  - key: plain
    rate_limit: { unit: day, requests_per_unit: 50 }
  - key: other
    rate_limit: { quota: 50/day sliding-log }
  - key: fixed
    rate_limit: { quota: 50/day fixed-window }
  - key: shadow
    rate_limit: { unit: day, requests_per_unit: 50 }
    shadow_mode: true
  - key: one
    rate_limit: { unit: day, requests_per_unit: 50 }
    quota_mode: true
  - key: two
    rate_limit: { unit: day, requests_per_unit: 50 }
    quota_mode: true
  - key: forgets
    rate_limit: { unit: day, requests_per_unit: 50 }
    count_denied: false
  - key: counts
    rate_limit: { unit: day, requests_per_unit: 50 }
    count_denied: true
";

const NAMES: [&str; 8] = ["plain", "other", "fixed", "shadow", "one", "two", "forgets", "counts"];

/// The limit of the key `vip`, which an operator has raised.
const RAISED: u64 = 80;

/// A descriptor of a random request. Without hits of its own it has one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Asked {
    name: &'static str,
    is_vip: bool,
    hits: Option<u64>,
}

/// The answer on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Answer {
    passes: bool,
    remaining: u64,
}

#[derive(Debug, Clone, Copy)]
struct Switches {
    how: Decide,
    quota_mode: bool,
    strict_looks: bool,
}

/// The units that each budget has spent.
struct Model {
    switches: Switches,
    spent: HashMap<(&'static str, bool), u64>,
    looked_at: Vec<&'static str>,
}

impl Asked {
    fn budget(self) -> (&'static str, bool) {
        (self.name, self.is_vip)
    }

    fn limit(self) -> u64 {
        if self.is_vip { RAISED } else { 50 }
    }

    fn units(self) -> u64 {
        self.hits.unwrap_or(1)
    }

    fn looks(self) -> bool {
        self.hits == Some(0)
    }

    fn is_shadow(self) -> bool {
        self.name == "shadow"
    }
}

impl Model {
    fn spent(&self, asked: Asked) -> u64 {
        self.spent.get(&asked.budget()).copied().unwrap_or(0)
    }

    fn left(&self, asked: Asked) -> u64 {
        asked.limit().saturating_sub(self.spent(asked))
    }

    fn is_quota(&self, asked: Asked) -> bool {
        self.switches.quota_mode || ["one", "two"].contains(&asked.name)
    }

    fn look(&self, asked: Asked) -> Answer {
        // A quota of an operator has no look beyond it, and neither has a limit that forgets denied hits.
        let is_strict = self.switches.strict_looks || asked.is_vip || asked.name == "forgets";
        let spent = self.spent(asked) + u64::from(is_strict);
        Answer { passes: spent <= asked.limit(), remaining: self.left(asked) }
    }

    fn denies(&self, all: &[Asked], answers: &[Answer]) -> bool {
        let lines = || all.iter().zip(answers);
        let fails = |asked: &Asked, answer: &Answer| !answer.passes && !asked.is_shadow();
        let must =
            |(asked, answer): (&Asked, &Answer)| fails(asked, answer) && !self.is_quota(*asked);
        let mut quotas = lines().filter(|(asked, _)| self.is_quota(**asked)).peekable();
        lines().any(must)
            || (quotas.peek().is_some() && quotas.all(|(asked, answer)| fails(asked, answer)))
    }

    fn ask(&mut self, all: &[Asked]) -> (bool, Vec<Answer>) {
        self.looked_at.extend(all.iter().filter(|it| it.looks()).map(|it| it.name));
        let before = self.spent.clone();
        let mut answers = vec![Answer { passes: true, remaining: 0 }; all.len()];
        let mut is_charged = vec![false; all.len()];
        let is_each = self.switches.how == Decide::Each;
        for (index, asked) in all.iter().enumerate() {
            if asked.looks() {
                answers[index] = self.look(*asked);
            } else if is_each {
                answers[index].passes = asked.units() <= self.left(*asked);
                is_charged[index] = answers[index].passes;
                if is_charged[index] {
                    *self.spent.entry(asked.budget()).or_default() += asked.units();
                }
                answers[index].remaining = self.left(*asked);
            }
        }
        if !is_each {
            // Descriptors of one budget are one charge.
            let sum = |asked: Asked| {
                let same = all.iter().filter(|it| it.budget() == asked.budget());
                same.map(|it| it.units()).sum::<u64>()
            };
            let is_denied_by_looks = self.denies(all, &answers);
            for (index, asked) in all.iter().enumerate().filter(|(_, it)| !it.looks()) {
                answers[index].passes = sum(*asked) <= self.left(*asked);
            }
            let must_pass = |(asked, answer): (&Asked, &Answer)| {
                answer.passes || asked.looks() || asked.is_shadow() || self.is_quota(*asked)
            };
            let is_admitted = !is_denied_by_looks && all.iter().zip(&answers).all(must_pass);
            for (index, asked) in all.iter().enumerate().filter(|(_, it)| !it.looks()) {
                let is_trial = asked.is_shadow() && !is_denied_by_looks;
                if answers[index].passes && (is_admitted || is_trial) {
                    is_charged[index] = true;
                    let spent = before.get(&asked.budget()).copied().unwrap_or(0);
                    self.spent.insert(asked.budget(), spent + sum(*asked));
                }
            }
            for (index, asked) in all.iter().enumerate().filter(|(_, it)| !it.looks()) {
                answers[index].remaining = self.left(*asked);
            }
        }
        let counts = |index: usize, asked: Asked| {
            let reports =
                asked.hits.is_some() || (!self.switches.strict_looks && !answers[index].passes);
            match asked.name {
                _ if asked.looks() || is_charged[index] => false,
                "forgets" => false,
                "counts" => true,
                name => reports && self.looked_at.contains(&name),
            }
        };
        let counted: Vec<usize> =
            (0..all.len()).filter(|index| counts(*index, all[*index])).collect();
        for index in &counted {
            *self.spent.entry(all[*index].budget()).or_default() += all[*index].units();
        }
        for index in counted {
            answers[index].remaining = self.left(all[index]);
        }
        (self.denies(all, &answers), answers)
    }
}

/// Returns the numbers of a parameter in a header, in order.
fn parameters(response: &RateLimitResponse, header: &str, parameter: &str) -> Vec<u64> {
    let value = response.response_headers_to_add.iter().find(|it| it.key == header);
    let members = value.map_or("", |it| &*it.value).split(", ").filter(|it| !it.is_empty());
    let number = |member: &str| {
        let text = member.split(';').find_map(|it| it.strip_prefix(parameter)).unwrap().to_owned();
        text.parse().unwrap()
    };
    members.map(number).collect()
}

fn check(response: &RateLimitResponse, all: &[Asked], is_denied: bool, answers: &[Answer]) {
    assert_eq!(response.overall_code() == Code::OverLimit, is_denied);
    for ((status, asked), answer) in response.statuses.iter().zip(all).zip(answers) {
        let limit = status.current_limit.as_ref().unwrap();
        let found = (status.limit_remaining.into(), limit.requests_per_unit.into());
        assert_eq!(found, (answer.remaining, asked.limit()), "{asked:?}");
        let is_over = !answer.passes && !asked.is_shadow();
        assert_eq!(status.code() == Code::OverLimit, is_over, "{asked:?}");
    }
    let live = || all.iter().zip(answers).filter(|(asked, _)| !asked.is_shadow());
    let left: Vec<_> = live().map(|(_, answer)| answer.remaining).collect();
    let limits: Vec<_> = live().map(|(asked, _)| asked.limit()).collect();
    assert_eq!(parameters(response, "ratelimit", "r="), left);
    assert_eq!(parameters(response, "ratelimit-policy", "q="), limits);
}

/// Creates the service with the quota of an operator for each key `vip`.
fn service(switches: Switches) -> Service {
    let options = EnvoyOptions {
        decide: switches.how,
        quota_mode: switches.quota_mode,
        strict_looks: switches.strict_looks,
        ratelimit_headers: true,
        ..EnvoyOptions::default()
    };
    let config = EnvoyConfig::from_text("limits.yaml", LIMITS, options).unwrap();
    let (clock, limiter) = memory();
    let registry = Registry::default();
    let envoy = Envoy::new(config, limiter, registry.clone(), Offenders::new(10)).unwrap();
    for registered in registry.policies() {
        let policy = registered.policy();
        let name = NAMES.iter().find(|name| policy.name().contains(&format!("shop.{name}-")));
        let raised = Quota::new(RAISED, policy.quota().window(), policy.quota().algorithm());
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        policy.set_key_quota(format!("{}=vip", name.unwrap()), raised.unwrap(), until).unwrap();
    }
    Service { envoy, clock }
}

fn switches() -> impl Strategy<Value = Switches> {
    let how = prop::sample::select(vec![Decide::Together, Decide::Each]);
    (how, any::<bool>(), any::<bool>()).prop_map(|(how, quota_mode, strict_looks)| Switches {
        how,
        quota_mode,
        strict_looks,
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let hits = prop_oneof![
        Just(None),
        Just(Some(0)),
        (1..4_u64).prop_map(Some),
        (20..90_u64).prop_map(Some),
    ];
    (prop::sample::select(NAMES.to_vec()), prop::bool::weighted(0.2), hits)
        .prop_map(|(name, is_vip, hits)| Asked { name, is_vip, hits })
}

#[test]
fn the_remaining_units_are_those_that_are_left() {
    let requests = prop::collection::vec(prop::collection::vec(asked(), 1..5), 1..8);
    let config = Config { cases: 512, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    seed::property("remaining", config, (switches(), requests), |(switches, requests)| {
        let service = service(switches);
        let mut model = Model { switches, spent: HashMap::new(), looked_at: Vec::new() };
        for all in requests {
            let (is_denied, answers) = model.ask(&all);
            let descriptors = all.iter().map(|it| {
                let text = format!("{}={}", it.name, if it.is_vip { "vip" } else { "x" });
                it.hits.map_or_else(|| descriptor(&text), |number| hits(&text, number))
            });
            let response = runtime.block_on(service.ask(request("shop", descriptors))).unwrap();
            let judged = std::panic::catch_unwind(|| check(&response, &all, is_denied, &answers));
            prop_assert!(judged.is_ok(), "{:?} of {:?}: {:?}", all, answers, response);
        }
        Ok(())
    });
}

#[tokio::test]
async fn a_denial_says_what_is_left() {
    for how in [Decide::Together, Decide::Each] {
        let service = service(Switches { how, quota_mode: false, strict_looks: false });
        service.ask(request("shop", [hits("plain=x", 3)])).await.unwrap();
        let denied = service.ask(request("shop", [hits("plain=x", 48)])).await.unwrap();
        assert_eq!(denied.overall_code(), Code::OverLimit);
        assert_eq!(denied.statuses[0].limit_remaining, 47);
        assert_eq!(parameters(&denied, "ratelimit", "r="), [47]);
        let json = crate::json::ask(
            &service.envoy,
            r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "plain", "value": "x"}], "hitsAddend": "48"}]}"#,
        );
        let (status, reply) = json.await;
        assert_eq!((status, &reply["statuses"][0]["limitRemaining"]), (429, &47.into()));
    }
}
