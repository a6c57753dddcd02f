//! The store that counts units.

use plimsoll::{RedisStore, Resilience, redis::RedisConfig};
use plimsoll_regions::RegionsConfig;
use redis::IntoConnectionInfo;
use serde::Deserialize;

use super::{HexSecret, MemorySpec, Secret, Time, Within, set};
use crate::config::document::{At, Mistake};

/// The store that counts units: the memory of the process, a Redis, or the Redis of each region and a
/// home that all regions share.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `memory`, `redis` or `regions`")]
pub(in crate::config) struct StoreSpec {
    /// The size of the store in the memory of the process. It is 1,000,000 keys in 256 MiB by default.
    pub(in crate::config) memory: Option<At<MemorySpec>>,
    /// The Redis that all instances share.
    pub(in crate::config) redis: Option<At<RedisSpec>>,
    /// The other regions. `redis` is then the Redis of this region.
    pub(in crate::config) regions: Option<At<RegionsSpec>>,
}

/// A Redis: one server (`url`), a `cluster`, or what `sentinels` name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `url`, `cluster` or `sentinels`, and others")]
pub(in crate::config) struct RedisSpec {
    /// The URL of the server: `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, or
    /// `unix:///path`.
    pub(in crate::config) url: Option<At<Secret>>,
    /// The URLs of some nodes of a cluster.
    pub(in crate::config) cluster: Option<Vec<At<Secret>>>,
    /// The URLs of some sentinels.
    pub(in crate::config) sentinels: Option<Vec<At<Secret>>>,
    /// The name of the primary that the sentinels watch, or a URL with the name as its host.
    pub(in crate::config) primary: Option<At<Secret>>,
    /// The prefix of every key in the database. The default is `plim`.
    pub(in crate::config) prefix: Option<At<String>>,
    /// 32 hexadecimal digits: the secret of the hash that names keys. The default is public.
    pub(in crate::config) secret: Option<HexSecret>,
    /// If true, keys in the database contain the text of the charged key. The default is false.
    pub(in crate::config) plain_keys: Option<bool>,
    /// The number of connections to each server, 1 to 64. The default is 2.
    pub(in crate::config) connections: Option<Within<1, 64>>,
    /// Checks that arrive while a call is in flight share the next one, unless this is false. The default is
    /// true.
    pub(in crate::config) batching: Option<bool>,
    /// The time that opening a connection may take. The default is `1s`.
    pub(in crate::config) connect_timeout: Option<Time>,
    /// The time that a reply may take. The default is `500ms`.
    pub(in crate::config) response_timeout: Option<Time>,
    /// If true, the service starts without a connection, and connects in the background. The default is
    /// false.
    pub(in crate::config) lazy: Option<bool>,
}

/// The regions that share the limits.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "a table of `count`, `home` and others")]
pub(in crate::config) struct RegionsSpec {
    /// The number of regions.
    pub(in crate::config) count: Within<1, { u32::MAX }>,
    /// The Redis that all regions share.
    pub(in crate::config) home: At<RedisSpec>,
    /// The part of each limit that is guaranteed to all regions together, in percent. The default is 70.
    pub(in crate::config) share_percent: Option<Within<0, 100>>,
    /// The time after which a request to the home has failed. The default is `1s`.
    pub(in crate::config) home_deadline: Option<Time>,
}

impl At<RedisSpec> {
    /// Returns an error if not exactly one kind of servers is named, or a value is not allowed.
    pub(in crate::config) fn check(&self) -> Result<(), Mistake> {
        let spec = &self.value;
        let lists = [&spec.cluster, &spec.sentinels];
        for url in lists.iter().copied().flatten().flatten().chain(&spec.url) {
            let checked = RedisStore::check(&RedisConfig::url(&url.value.0));
            checked.map_err(|error| url.mistake(error).secret())?;
        }
        let is_one_kind = match (&spec.url, &spec.cluster, &spec.sentinels, &spec.primary) {
            (Some(_), None, None, None) => true,
            (None, Some(nodes), None, None) => !nodes.is_empty(),
            (None, None, Some(sentinels), Some(_)) => !sentinels.is_empty(),
            _ => false,
        };
        if !is_one_kind {
            let mistake = self.mistake("not exactly one kind of servers is named").secret();
            return Err(mistake.allowed("`url`, `cluster`, or `sentinels` with `primary`"));
        }
        if let Some(prefix) = &spec.prefix {
            let is_printable = prefix.value.bytes().all(|byte| byte.is_ascii_graphic());
            let is_short = (1..=64).contains(&prefix.value.len());
            if !is_short || !is_printable || prefix.value.contains(['{', '}']) {
                let mistake = prefix.mistake("the prefix has another form").secret();
                let allowed = "1 to 64 printable ASCII characters without braces or spaces";
                return Err(mistake.allowed(allowed));
            }
        }
        RedisStore::check(&spec.config()).map_err(|error| self.mistake(error).secret())
    }
}

/// The last database of a server by default.
const MAX_DATABASE: i64 = 15;

impl RedisSpec {
    /// Returns hints on the URLs, which are valid.
    pub(in crate::config) fn hints(&self) -> Vec<String> {
        let lists = [&self.cluster, &self.sentinels];
        let urls = lists.iter().copied().flatten().flatten().chain(&self.url).chain(&self.primary);
        let mut hints = Vec::new();
        for url in urls.map(|url| &*url.value.0) {
            let database = url.into_connection_info().map_or(0, |info| info.redis_settings().db());
            if database > MAX_DATABASE {
                hints.push(format!(
                    "a URL of Redis names the database {database}, and a server has the databases 0 to \
                     {MAX_DATABASE} by default"
                ));
            }
            let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
            if !url.contains("unix://") && user.is_some_and(|(user, _)| user.contains('@')) {
                hints.push(
                    "a URL of Redis has a user or a password with a bare `@`, which other clients read \
                     otherwise: write %40"
                        .to_owned(),
                );
            }
        }
        hints
    }

    /// Returns the configuration of the store.
    pub(in crate::config) fn config(&self) -> RedisConfig {
        let to = match (&self.cluster, &self.sentinels) {
            (Some(nodes), _) => RedisConfig::cluster(texts(nodes)),
            (None, Some(sentinels)) => {
                RedisConfig::sentinel(texts(sentinels), text(self.primary.as_ref()))
            }
            (None, None) => RedisConfig::url(text(self.url.as_ref())),
        };
        let connections = self.connections.map(|count| count.get() as usize);
        let secret = self.secret.as_ref().map(|secret| ((secret.0 >> 64) as u64, secret.0 as u64));
        let to = set(to, self.prefix.as_ref().map(|it| &it.value), RedisConfig::prefix);
        let to = set(to, connections, RedisConfig::connections);
        let to = set(to, secret, RedisConfig::secret);
        let to = set(to, self.connect_timeout.map(Into::into), RedisConfig::connect_timeout);
        let to = set(to, self.response_timeout.map(Into::into), RedisConfig::response_timeout);
        let to = set(to, self.plain_keys, RedisConfig::plain_keys);
        let to = set(to, self.batching, RedisConfig::batching);
        set(to, self.lazy, RedisConfig::lazy)
    }
}

impl RegionsSpec {
    pub(in crate::config) fn config(&self, resilience: Resilience) -> RegionsConfig {
        let to = RegionsConfig::new(self.count.get()).resilience(resilience);
        let to = set(to, self.share_percent.map(Within::get), RegionsConfig::share_percent);
        set(to, self.home_deadline.map(Into::into), RegionsConfig::home_deadline)
    }
}

fn texts(secrets: &[At<Secret>]) -> Vec<String> {
    secrets.iter().map(|secret| secret.value.0.clone()).collect()
}

fn text(secret: Option<&At<Secret>>) -> String {
    secret.map(|it| it.value.0.clone()).unwrap_or_default()
}
