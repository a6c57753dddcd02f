//! The [overrides](Override) in Redis: one hash and one stream, which one script reads and changes.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    io,
    sync::LazyLock,
    time::Duration,
};

use plimsoll::{RedisStore, redis::RedisConfig};
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, RedisError, RedisResult, Script,
    ScriptInvocation, ServerErrorKind, aio::MultiplexedConnection, streams::StreamRangeReply,
};
use tokio::time::{Instant, timeout_at};

use super::{
    AuditEntry, OverrideError,
    audit::MAX_AUDIT,
    error::MAX_OVERRIDES,
    known::{Edit, Stored},
};

/// The time to live of the keys. Each instance renews it.
const TTL: Duration = Duration::from_secs(30 * 86_400);
/// The fields of the hash that are read: the overrides, those that have ended, and some more.
const MAX_FIELDS: usize = 2 * MAX_OVERRIDES;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for a request that is sent again, together with its first reply.
const DEADLINE: Duration = Duration::from_secs(4);

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/overrides.lua")));

/// A connection to the Redis that has the overrides.
pub(super) struct RedisBackend {
    client: Client,
    /// The connection, until it fails.
    connection: Option<MultiplexedConnection>,
    entries: String,
    audit: String,
    /// The prefix of the keys of changes that were made.
    made: String,
}

impl RedisBackend {
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
        })
    }

    /// Returns the time of Redis in microseconds, and the overrides if they have another version than the known one.
    pub(super) async fn poll(
        &mut self,
        known: u64,
    ) -> Result<(u64, Option<Stored>), OverrideError> {
        let polled = self.call("poll", vec![known.to_string()]).await;
        let (now_micros, fields): (_, Option<_>) = polled.map_err(|error| failed(&error, false))?;
        Ok((now_micros, fields.map(stored)))
    }

    /// Adds an entry to the audit log, and makes the edit that it is about. Returns false, and does neither, if the
    /// overrides have another version than the edit follows.
    pub(super) async fn write(
        &mut self,
        entry: &AuditEntry,
        edit: Option<&Edit>,
    ) -> Result<bool, OverrideError> {
        let mut arguments = vec![MAX_AUDIT.to_string(), json(entry)];
        if let Some(Edit { field, change, previous, removed }) = edit {
            let after = change.after.as_ref().map(json).unwrap_or_default();
            arguments.extend([previous.to_string(), change.version.to_string()]);
            arguments.extend([field.clone(), after]);
            arguments.extend_from_slice(removed);
        }
        let operation = if edit.is_some() { "change" } else { "note" };
        self.call(operation, arguments).await.map_err(|error| failed(&error, true))
    }

    /// Returns the newest entries of the audit log, the newest first.
    pub(super) async fn audit(&mut self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        let read = self.call("audit", vec![count.to_string()]).await;
        let StreamRangeReply { ids } = read.map_err(|error| failed(&error, false))?;
        let entries = ids.iter().filter_map(|id| id.get::<String>("entry"));
        Ok(entries.filter_map(|entry| serde_json::from_str(&entry).ok()).collect())
    }

    /// Calls the script. It makes a change once, also if the call is sent twice: if the connection does not lead to a
    /// server that answers, the call is sent once more over another one. The error of the first call is the one that
    /// says whether a change may have been made.
    async fn call<T: FromRedisValue>(
        &mut self,
        operation: &str,
        arguments: Vec<String>,
    ) -> RedisResult<T> {
        let end = Instant::now() + DEADLINE;
        let made = format!("{}:{:016x}", self.made, RandomState::new().hash_one(()));
        let mut invocation = SCRIPT.key(&self.entries);
        invocation.key(&self.audit).key(made);
        invocation.arg(operation).arg(TTL.as_millis() as u64).arg(arguments);
        let first = match self.send(&invocation).await {
            Err(error) if is_of_connection(&error) => error,
            sent => return sent,
        };
        match timeout_at(end, self.send(&invocation)).await {
            Ok(Err(_)) if may_apply(&first) => Err(first),
            Ok(sent) => sent,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
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

/// Reads the fields of the hash. Values that are no overrides are skipped.
fn stored(fields: HashMap<String, String>) -> Stored {
    let version = fields.get(":version").and_then(|it| it.parse().ok());
    let epoch = fields.get(":epoch").and_then(|it| it.parse().ok());
    let read = fields.into_iter().take(MAX_FIELDS);
    let entries = read.filter_map(|(field, it)| Some((field, serde_json::from_str(&it).ok()?)));
    Stored {
        entries: entries.collect(),
        version: version.unwrap_or_default(),
        epoch: epoch.unwrap_or_default(),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Neither type has a map with keys that are not texts.
    serde_json::to_string(value).unwrap_or_default()
}
