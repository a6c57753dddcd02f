//! The fields of a configuration. The comments of the fields are the descriptions in the JSON Schema.

mod file;
mod headers;
mod key;
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
    resilience::{MemorySpec, ResilienceSpec, set},
    secret::{HexSecret, Secret},
    store::{RedisSpec, StoreSpec},
    texts::{HeaderText, Route, Text, Time, is_method},
    within::Within,
};
