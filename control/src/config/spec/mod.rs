//! The fields of a configuration. The comments of the fields are the descriptions in the JSON Schema.

mod file;
mod headers;
mod key;
mod or_off;
mod resilience;
#[cfg(test)]
mod schema;
mod secret;
mod store;
mod texts;
mod within;

pub(super) use self::{
    file::{ClientIpSpec, FileSpec, PolicySpec, RuleSpec, TierSpec},
    headers::HeadersSpec,
    key::KeySpec,
    or_off::{OrOff, set},
    resilience::{MemorySpec, ResilienceSpec},
    secret::{HexSecret, Secret},
    store::{RedisSpec, RegionsSpec, StoreSpec},
    texts::{HeaderText, Route, Text, Time, Timeout, is_method},
    within::Within,
};
