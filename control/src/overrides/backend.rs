//! The place that keeps the overrides, their audit log, the instances, and the units of the last hours. In Redis, one
//! script reads and changes all of its keys.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
    time::Duration,
};

use plimsoll::{RedisStore, redis::RedisConfig};
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, RedisError, RedisResult, Script,
    ScriptInvocation, ServerErrorKind, aio::MultiplexedConnection, streams::StreamRangeReply,
};

use super::{
    AuditEntry, OverrideError,
    audit::MAX_AUDIT,
    error::MAX_OVERRIDES,
    known::{Edit, Stored},
};
use crate::{
    Instance,
    fleet::{Announcement, Hours, KEPT_HOURS},
    offenders::Totals,
};

/// The time to live of the keys. Each instance renews it.
const TTL: Duration = Duration::from_secs(30 * 86_400);
/// The fields of the hash that are read: the overrides, those that have ended, and some more.
const MAX_FIELDS: usize = 2 * MAX_OVERRIDES;
/// The time for which an instance is known after its last announcement.
const EXPIRY: Duration = Duration::from_secs(5);
/// The most instances that are known.
const MAX_INSTANCES: usize = 1_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/overrides.lua")));

/// The place that keeps the overrides and their audit log.
pub(super) enum Backend {
    /// The process, which knows all overrides.
    Memory {
        /// The audit log, the newest entry first.
        audit: VecDeque<AuditEntry>,
        hours: Hours,
    },
    Redis(Box<Redis>),
}

/// The number of an hour, and its fields.
type StoredHour = (u64, HashMap<String, u64>);

/// A connection to the Redis that has the overrides.
pub(super) struct Redis {
    client: Client,
    /// The connection, until it fails.
    connection: Option<MultiplexedConnection>,
    entries: String,
    audit: String,
    /// The prefix of the keys of changes that were made.
    made: String,
    seen: String,
    announcements: String,
    /// The prefix of the keys of hours.
    hours: String,
}

impl Backend {
    pub(super) fn memory() -> Self {
        Self::Memory { audit: VecDeque::new(), hours: Hours::default() }
    }

    /// Adds an entry to the audit log, and makes the edit that it is about. Returns false, and does neither, if the
    /// overrides have another version than the edit follows.
    pub(super) async fn write(
        &mut self,
        entry: &AuditEntry,
        edit: Option<&Edit>,
    ) -> Result<bool, OverrideError> {
        let redis = match self {
            Self::Redis(redis) => redis,
            Self::Memory { audit, .. } => {
                audit.truncate(MAX_AUDIT - 1);
                audit.push_front(entry.clone());
                return Ok(true);
            }
        };
        let mut arguments = vec![MAX_AUDIT.to_string(), json(Some(entry))];
        if let Some(Edit { field, change, previous, removed }) = edit {
            arguments.extend([previous.to_string(), change.version.to_string()]);
            arguments.extend([field.clone(), json(change.after.as_ref())]);
            arguments.extend_from_slice(removed);
        }
        let operation = if edit.is_some() { "change" } else { "note" };
        redis.call(operation, arguments).await.map_err(|error| failed(&error, true))
    }

    /// Returns the newest entries of the audit log, the newest first.
    pub(super) async fn audit(&mut self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        let redis = match self {
            Self::Redis(redis) => redis,
            Self::Memory { audit, .. } => return Ok(audit.iter().take(count).cloned().collect()),
        };
        let read = redis.call("audit", vec![count.to_string()]).await;
        let StreamRangeReply { ids } = read.map_err(|error| failed(&error, false))?;
        let entries = ids.iter().filter_map(|id| id.get::<String>("entry"));
        Ok(entries.filter_map(|entry| serde_json::from_str(&entry).ok()).collect())
    }
}

impl Redis {
    /// Creates a connection, which is opened by the first request.
    pub(super) fn new(url: &str, prefix: &str) -> Result<Self, OverrideError> {
        // This chooses the cryptography of TLS, too.
        let checked = RedisStore::check(&RedisConfig::url(url).prefix(prefix));
        checked.map_err(|error| OverrideError::Config(error.to_string()))?;
        Ok(Self {
            client: Client::open(url).map_err(|error| failed(&error, false))?,
            connection: None,
            entries: format!("{prefix}:{{overrides}}:entries"),
            audit: format!("{prefix}:{{overrides}}:audit"),
            made: format!("{prefix}:{{overrides}}:made"),
            seen: format!("{prefix}:{{overrides}}:seen"),
            announcements: format!("{prefix}:{{overrides}}:announcements"),
            hours: format!("{prefix}:{{overrides}}:hour:"),
        })
    }

    /// Announces this instance. Returns the time of Redis in microseconds, and the overrides if they have another version
    /// than the known one.
    pub(super) async fn poll(
        &mut self,
        known: u64,
        id: &str,
        announcement: &Announcement,
        new_units: &BTreeMap<String, Totals>,
    ) -> Result<(u64, Option<Stored>), OverrideError> {
        let arguments = [known.to_string(), id.to_owned(), json(Some(announcement))];
        let limits = [EXPIRY.as_millis().to_string(), MAX_INSTANCES.to_string()];
        let added = new_units.iter().flat_map(|(policy, units)| {
            [policy.clone(), units.admitted.to_string(), units.denied.to_string()]
        });
        let hours = [(KEPT_HOURS * 3_600_000).to_string()];
        let added: Vec<_> = hours.into_iter().chain(added).collect();
        let polled = self.call("poll", [&arguments[..], &limits[..], &added[..]].concat()).await;
        let (now_micros, version, epoch, fields): (_, _, _, Option<HashMap<String, String>>) =
            polled.map_err(|error| failed(&error, false))?;
        let stored = fields.map(|fields| {
            let read = fields.into_iter().take(MAX_FIELDS).filter_map(|(field, value)| {
                // Other values are no overrides.
                Some((field, serde_json::from_str(&value).ok()?))
            });
            Stored { entries: read.collect(), version, epoch }
        });
        Ok((now_micros, stored))
    }

    /// Returns the time of Redis in milliseconds, and the instances that have announced themselves.
    pub(super) async fn instances(&mut self) -> Result<(u64, Vec<Instance>), OverrideError> {
        let read = self.call("instances", vec![EXPIRY.as_millis().to_string()]).await;
        let (now_millis, seen, announcements): (u64, Vec<(String, f64)>, HashMap<String, String>) =
            read.map_err(|error| failed(&error, false))?;
        let instances = seen.into_iter().filter_map(|(id, seen_millis)| {
            // Other values are no announcements.
            let announcement = serde_json::from_str(announcements.get(&id)?).ok()?;
            Some(Instance::new(id, seen_millis as u64, announcement))
        });
        Ok((now_millis, instances.take(MAX_INSTANCES).collect()))
    }

    /// Returns the time of Redis in milliseconds, and the units of the last hours.
    pub(super) async fn hours(&mut self) -> Result<(u64, Hours), OverrideError> {
        let read = self.call("hours", vec![KEPT_HOURS.to_string()]).await;
        let (now_millis, hours): (u64, Vec<StoredHour>) =
            read.map_err(|error| failed(&error, false))?;
        let hours = hours.into_iter().map(|(hour, fields)| {
            let mut units = BTreeMap::<String, Totals>::new();
            for (field, count) in fields {
                match field.split_once(':') {
                    Some(("admitted", policy)) => {
                        units.entry(policy.to_owned()).or_default().admitted = count;
                    }
                    Some(("denied", policy)) => {
                        units.entry(policy.to_owned()).or_default().denied = count;
                    }
                    // Other fields are no counts.
                    _ => {}
                }
            }
            (hour, units)
        });
        Ok((now_millis, Hours::new(hours)))
    }

    /// Calls the script. It makes a change once, also if the call is sent twice: if the connection does not lead to a
    /// server that answers, the call is sent once more over another one. If both fail, the error of the first call is
    /// returned when that call may have made a change.
    async fn call<T: FromRedisValue>(
        &mut self,
        operation: &str,
        arguments: Vec<String>,
    ) -> RedisResult<T> {
        let made = format!("{}:{:016x}", self.made, RandomState::new().hash_one(()));
        let mut invocation = SCRIPT.key(&self.entries);
        invocation.key(&self.audit).key(made).key(&self.seen).key(&self.announcements);
        invocation.key(&self.hours);
        invocation.arg(operation).arg(TTL.as_millis() as u64).arg(arguments);
        let first = match self.send(&invocation).await {
            Err(error) if is_of_connection(&error) => error,
            sent => return sent,
        };
        match self.send(&invocation).await {
            Err(_) if may_apply(&first) => Err(first),
            sent => sent,
        }
    }

    /// Sends a call over the connection. After an error of the connection, the next call opens another one.
    async fn send<T: FromRedisValue>(
        &mut self,
        invocation: &ScriptInvocation<'_>,
    ) -> RedisResult<T> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_TIMEOUT))
                    .set_response_timeout(Some(RESPONSE_TIMEOUT));
                let opened = self.client.get_multiplexed_async_connection_with_config(&config);
                self.connection.insert(opened.await?)
            }
        };
        let sent = invocation.invoke_async(connection).await;
        if sent.as_ref().is_err_and(is_of_connection) {
            self.connection = None;
        }
        sent
    }
}

/// Returns whether the connection does not lead to a server that answers: another one may.
fn is_of_connection(error: &RedisError) -> bool {
    let is_read_only = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
    let is_cut_short = error.kind() == ErrorKind::Parse;
    error.is_timeout() || error.is_connection_dropped() || is_cut_short || is_read_only
}

/// Returns whether the server may have run the script of this call.
fn may_apply(error: &RedisError) -> bool {
    is_of_connection(error) && !error.is_connection_refusal() && error.code().is_none()
}

/// Returns the error of a call.
fn failed(error: &RedisError, is_change: bool) -> OverrideError {
    let message = match error.code() {
        Some(code) => format!("{} {code}", error.category()),
        None if error.is_timeout() => format!("no reply within {RESPONSE_TIMEOUT:?}"),
        None if error.is_connection_refusal() => "it refuses connections".to_owned(),
        None if error.is_connection_dropped() => "the connection was closed".to_owned(),
        None => error.category().to_owned(),
    };
    OverrideError::Unavailable { message, may_apply: is_change && may_apply(error) }
}

/// Returns a value as JSON, or an empty text for `None`.
fn json(value: Option<&impl serde::Serialize>) -> String {
    // Neither type has a map with keys that are not texts.
    value.and_then(|value| serde_json::to_string(value).ok()).unwrap_or_default()
}
