//! The file, its policies and its rules.

use std::fmt;

use plimsoll::{OnFailure, Quota};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{HeaderText, HeadersSpec, KeySpec, ResilienceSpec, Route, StoreSpec, Time, Within};
use crate::config::document::{At, Entries};

/// The limits of a service.
#[derive(Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `policies`, `rules` and other fields")]
pub(in crate::config) struct FileSpec {
    /// The address of the JSON Schema, for editors.
    #[serde(rename = "$schema")]
    pub(in crate::config) schema: Option<String>,
    /// Requests are limited, unless this is false. The default is true.
    pub(in crate::config) enabled: Option<bool>,
    /// The policies by name.
    #[serde(default)]
    pub(in crate::config) policies: Entries<PolicySpec>,
    /// The rules, which are decided together for each request.
    pub(in crate::config) rules: Option<Vec<At<RuleSpec>>>,
    /// Routes whose requests pass without a charge.
    #[serde(default)]
    pub(in crate::config) exempt: Vec<Route>,
    /// If true, CORS preflights pass without a charge. The default is false.
    #[serde(default)]
    pub(in crate::config) exempt_preflights: bool,
    /// The source of the address of the client, for the key `client_ip`. The default is the other end of the
    /// connection.
    pub(in crate::config) client_ip: Option<At<ClientIpSpec>>,
    /// The headers of responses.
    pub(in crate::config) headers: Option<HeadersSpec>,
    /// The longest time for which a request over its limit waits for its turn. Without it, the request is denied at
    /// once.
    pub(in crate::config) delay: Option<Time>,
    /// The longest time that is added at random to the wait in a denial. The default is none.
    pub(in crate::config) jitter: Option<Time>,
    /// If true, denials are plain text instead of problem documents. The default is false.
    #[serde(default)]
    pub(in crate::config) plain_text: bool,
    /// The store that counts units. The default is the memory of the process. A change needs a restart.
    #[serde(default)]
    pub(in crate::config) store: StoreSpec,
    /// The treatment of a store that is slow or cannot answer. A change needs a restart.
    #[serde(default)]
    pub(in crate::config) resilience: ResilienceSpec,
}

/// The source of the address of the client.
#[derive(Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `header` and `trusted_proxies`")]
pub(in crate::config) struct ClientIpSpec {
    /// The header in which the trusted proxies write the address: `x-forwarded-for`, `forwarded`, or one
    /// with a single address, such as `cf-connecting-ip`.
    pub(in crate::config) header: Option<HeaderText>,
    /// The addresses of the proxies, or ranges such as `10.0.0.0/8`. The headers of others are ignored.
    #[serde(default)]
    pub(in crate::config) trusted_proxies: Vec<At<String>>,
    /// The number of leading bits of an IPv6 address that are charged, 1 to 128. The default is 64.
    pub(in crate::config) ipv6_prefix: Option<Within<1, 128>>,
}

/// A policy: its quota as a text, or a table with the quota and other fields.
#[derive(Debug, PartialEq)]
pub(in crate::config) struct PolicySpec {
    pub(in crate::config) quota: Quota,
    pub(in crate::config) unit: Option<At<String>>,
}

/// A policy.
#[derive(Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFields {
    /// The quota, such as `100/min`, `50/s token-bucket(20)`, `60000/min leased(500ms)` or `20 concurrent`.
    #[cfg_attr(test, schemars(with = "String"))]
    quota: Quota,
    /// The name of what is counted, for the headers. The default is requests.
    unit: Option<At<String>>,
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct PolicyVisitor;

        impl<'de> Visitor<'de> for PolicyVisitor {
            type Value = PolicySpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quota such as \"100/min\", or a table with the field `quota`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PolicySpec, E> {
                Ok(PolicySpec { quota: text.parse().map_err(E::custom)?, unit: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicySpec, A::Error> {
                let fields = PolicyFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PolicySpec { quota: fields.quota, unit: fields.unit })
            }
        }

        from.deserialize_any(PolicyVisitor)
    }
}

/// A rule: which requests are charged, under which policy, and who is charged.
#[derive(Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a rule: a table with the fields `policy` and `key`")]
pub(in crate::config) struct RuleSpec {
    /// The name of the policy. With tiers, it is the policy of requests with none of them.
    pub(in crate::config) policy: At<String>,
    /// The client that is charged.
    pub(in crate::config) key: At<KeySpec>,
    /// The routes to which the rule applies. The default is all requests.
    pub(in crate::config) only: Option<At<Vec<Route>>>,
    /// The units that a request costs. The default is 1.
    pub(in crate::config) cost: Option<At<u64>>,
    /// The units that requests to certain routes or with certain methods cost instead, such as
    /// `"POST /reports" = 10` or `POST = 5`. A route takes precedence over a method.
    #[serde(default)]
    pub(in crate::config) costs: Entries<u64>,
    /// The place of the tier in a request.
    pub(in crate::config) tier: Option<At<TierSpec>>,
    /// The names of the policies by tier.
    #[serde(default)]
    pub(in crate::config) tiers: Entries<At<String>>,
    /// If true, the rule is decided and reported, but denies no request. The default is false.
    #[serde(default)]
    pub(in crate::config) shadow: bool,
    /// The names of policies that are tried out on the requests of the rule.
    #[serde(default)]
    pub(in crate::config) trials: Vec<At<String>>,
    /// The treatment of a request while the store cannot answer: `local` (the default), `allow` or `deny`.
    #[cfg_attr(test, schemars(with = "Option<super::schema::OnFailureSchema>"))]
    pub(in crate::config) on_failure: Option<OnFailure>,
}

impl RuleSpec {
    /// Returns the names of the policies of the rule.
    pub(in crate::config) fn policies(&self) -> impl Iterator<Item = &At<String>> {
        let tiers = self.tiers.0.iter().map(|(_, policy)| policy);
        [&self.policy].into_iter().chain(tiers).chain(&self.trials)
    }
}

/// Writes the rule as a line, as `plimsoll check-config` shows it.
impl fmt::Display for RuleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.policy.value, self.key.value)?;
        let costs = self.costs.0.iter().map(|(route, cost)| format!("{}: {cost}", route.value));
        let tiers = self.tiers.0.iter().map(|(tier, it)| format!("{}: {}", tier.value, it.value));
        let on_failure = self.on_failure.iter().map(|it| format!("{it:?}").to_lowercase());
        let only = self.only.iter().flat_map(|only| &only.value).map(|route| route.0.clone());
        let parts: [(_, Vec<_>); 7] = [
            ("only", only.collect()),
            ("cost", self.cost.iter().map(|cost| cost.value.to_string()).collect()),
            ("costs", costs.collect()),
            ("tier", self.tier.iter().map(|tier| tier.value.to_string()).collect()),
            ("tiers", tiers.collect()),
            ("trials", self.trials.iter().map(|policy| policy.value.clone()).collect()),
            ("on failure", on_failure.collect()),
        ];
        for (label, values) in parts.iter().filter(|(_, values)| !values.is_empty()) {
            write!(f, ", {label} {}", values.join(", "))?;
        }
        f.write_str(if self.shadow { ", shadow" } else { "" })
    }
}

/// The place of the tier in a request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", expecting = "a table of `header` or `claim`")]
pub(in crate::config) enum TierSpec {
    /// The value of a header, which a gateway sets. It removes what clients send.
    Header(HeaderText),
    /// A claim that an earlier layer has left.
    Claim(String),
}

impl fmt::Display for TierSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header({})", name.0),
            Self::Claim(name) => write!(f, "claim({name})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{document::read, format::Format};

    #[test]
    fn the_examples_say_the_same_in_each_format() {
        let read_example = |text: &str, format| {
            // The test sets no environment variable. Each process has this one.
            let text = text.replace("${REDIS_URL}", "redis://${PATH}/");
            read::<FileSpec>(&text, format).unwrap()
        };
        let toml = read_example(include_str!("../../../docs/config/limits.toml"), Format::Toml);
        assert_eq!(toml.policies.0.len(), 8);
        assert_eq!(
            read_example(include_str!("../../../docs/config/limits.yaml"), Format::Yaml),
            toml
        );
        assert_eq!(
            read_example(include_str!("../../../docs/config/limits.json"), Format::Json),
            toml
        );
    }

    #[test]
    fn a_mistake_has_the_same_place_in_each_format() {
        for (format, text) in [
            (Format::Toml, "policies.a = '1/s'\n[[rules]]\nkey = 'peer_ip'\npolciy = 'a'\n"),
            (Format::Yaml, "policies: {a: 1/s}\nrules:\n- key: peer_ip\n  polciy: a\n"),
            (
                Format::Json,
                "{\"policies\": {\"a\": \"1/s\"}, \"rules\": [\n{ \"polciy\": \"a\" }]}",
            ),
        ] {
            let mistakes = read::<FileSpec>(text, format).unwrap_err();
            let found = text[mistakes[0].span.clone().unwrap()].trim_matches('"');
            let nearest = mistakes[0].nearest.as_deref();
            assert_eq!((found, nearest), ("polciy", Some("policy")), "{format}");
        }
    }
}
