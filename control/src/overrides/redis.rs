//! The [overrides](Override) in Redis: one hash and one stream, which one script reads and changes.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use plimsoll::{RedisStore, redis::RedisConfig};
use redis::{
    AsyncCommands, AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, Script,
    ServerErrorKind, aio::MultiplexedConnection, streams::StreamRangeReply,
};
use tokio::time::{Instant, timeout_at};

use super::{
    AuditEntry, Change, Override, OverrideError,
    audit::MAX_AUDIT,
    entry::{Edit, Entries},
    error::MAX_OVERRIDES,
};
use crate::time::{from_millis, to_millis};

/// The time to live of the keys. Each instance renews it.
const TTL: Duration = Duration::from_secs(30 * 86_400);
/// The fields of the hash that are read: the [overrides](Override), and some more.
const MAX_FIELDS: usize = MAX_OVERRIDES + 100;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for a command that is sent again, together with its first reply.
const DEADLINE: Duration = Duration::from_secs(4);

/// A connection to the Redis that has the overrides.
pub(super) struct RedisBackend {
    client: Client,
    /// The connection that all commands share, until it fails.
    connection: Mutex<Option<MultiplexedConnection>>,
    script: Script,
    entries: String,
    audit: String,
    /// The prefix of the keys.
    prefix: String,
}

/// The answer to a poll.
pub(super) struct Poll {
    pub(super) now_micros: u64,
    /// The version, or 0 if there are no overrides.
    pub(super) version: u64,
    /// The time of the first change in microseconds.
    pub(super) epoch: u64,
    /// The overrides, if they have changed.
    pub(super) changed: Option<Entries>,
}

/// A change that was made, and the version before it.
pub(super) struct Changed {
    pub(super) change: Change,
    pub(super) previous: u64,
}

impl RedisBackend {
    /// Creates a connection, which is opened by the first command.
    pub(super) fn new(url: &str, prefix: &str) -> Result<Self, OverrideError> {
        // This chooses the cryptography of TLS, too.
        let checked = RedisStore::check(&RedisConfig::url(url).prefix(prefix));
        checked.map_err(|error| OverrideError::Config(error.to_string()))?;
        Ok(Self {
            client: Client::open(url).map_err(|error| failed(&error))?,
            connection: Mutex::default(),
            script: Script::new(include_str!("../../lua/overrides.lua")),
            entries: format!("{prefix}:{{overrides}}:entries"),
            audit: format!("{prefix}:{{overrides}}:audit"),
            prefix: prefix.into(),
        })
    }

    /// Asks for the overrides if they have another version than the known one.
    pub(super) async fn poll(&self, known: u64) -> Result<Poll, OverrideError> {
        let mut invocation = self.script.prepare_invoke();
        invocation.key(&self.entries).key(&self.audit).arg("poll").arg(TTL.as_millis() as u64);
        invocation.arg(MAX_OVERRIDES).arg(MAX_AUDIT).arg(known);
        let invocation = &invocation;
        let send = |mut connection| async move { invocation.invoke_async(&mut connection).await };
        let reply = self.send_once(send).await;
        let (now_micros, version, epoch, fields): (_, _, _, Option<Vec<(String, String)>>) =
            reply.map_err(|error| failed(&error))?;
        let changed = fields.map(|fields| {
            let entry = |(field, value): (String, String)| Some((field, parse(&value)?));
            fields.into_iter().take(MAX_FIELDS).filter_map(entry).collect()
        });
        Ok(Poll { now_micros, version, epoch, changed })
    }

    /// Changes an override if it has the expected version.
    pub(super) async fn change(
        &self,
        field: &str,
        edit: Edit<'_>,
        audit: &AuditEntry,
    ) -> Result<Changed, OverrideError> {
        let expected = edit.expected().map(|it| it.to_string()).unwrap_or_default();
        let mut arguments = vec![json(audit), field.to_owned(), expected];
        let (operation, after) = match edit {
            Edit::Remove(_) => ("remove", None),
            Edit::Set(new) => {
                let until = new.until.map_or(0, to_millis).to_string();
                arguments.extend([until, json(&new.at(0))]);
                ("set", Some(new))
            }
        };
        let (status, version, previous, before) = self.call(operation, arguments).await?;
        match status.as_str() {
            "ok" => {}
            "conflict" => {
                let expected = edit.expected().unwrap_or_default();
                return Err(OverrideError::Conflict { expected, found: version });
            }
            "missing" => return Err(OverrideError::NotFound),
            "full" => return Err(OverrideError::TooMany),
            _ => return Err(OverrideError::past()),
        }
        let (before, after) = (before.as_deref().and_then(parse), after.map(|it| it.at(version)));
        let change = Change { before, after, version, ..Change::default() };
        Ok(Changed { change, previous })
    }

    /// Adds an entry to the audit log.
    pub(super) async fn note(&self, entry: &AuditEntry) -> Result<(), OverrideError> {
        self.call("note", vec![json(entry)]).await.map(drop)
    }

    /// Returns the newest entries of the audit log, the newest first.
    pub(super) async fn audit(&self, count: usize) -> Result<Vec<AuditEntry>, OverrideError> {
        let read = |mut connection: MultiplexedConnection| async move {
            connection.xrevrange_count(&self.audit, "+", "-", count).await
        };
        let reply: StreamRangeReply = self.send(read).await?;
        let entries = reply.ids.iter().filter_map(|id| {
            let mut entry: AuditEntry = serde_json::from_str(&id.get::<String>("entry")?).ok()?;
            let micros: u64 = id.id.split('-').next()?.parse().ok()?;
            entry.time = from_millis(micros / 1_000);
            entry.version = id.get::<u64>("version").filter(|version| *version > 0);
            entry.before = id.get::<String>("before").filter(|it| !it.is_empty()).or(entry.before);
            Some(entry)
        });
        Ok(entries.collect())
    }

    /// Sends a command whose effect is the same if it is made twice. If the connection does not lead to a server
    /// that answers, sends it once more over another one.
    async fn send<T, F>(
        &self,
        command: impl Fn(MultiplexedConnection) -> F,
    ) -> Result<T, OverrideError>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let end = Instant::now() + DEADLINE;
        let error = match self.send_once(&command).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let first = failed(&error);
        if !is_of_connection(&error) {
            return Err(first);
        }
        match timeout_at(end, self.send_once(&command)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) if !first.may_apply() => Err(failed(&error)),
            // The first one may have been made.
            Ok(Err(_)) => Err(first),
            Err(_) => {
                let message = format!("no reply within {DEADLINE:?}");
                Err(OverrideError::Unavailable { message, may_apply: true })
            }
        }
    }

    /// Sends a command over the shared connection. After an error of the connection, the next command opens another
    /// one.
    async fn send_once<T, F>(
        &self,
        command: impl FnOnce(MultiplexedConnection) -> F,
    ) -> RedisResult<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let shared = self.connection().clone();
        let connection = match shared {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_TIMEOUT))
                    .set_response_timeout(Some(RESPONSE_TIMEOUT));
                let opened =
                    self.client.get_multiplexed_async_connection_with_config(&config).await?;
                self.connection().insert(opened).clone()
            }
        };
        let sent = command(connection).await;
        if sent.as_ref().is_err_and(is_of_connection) {
            *self.connection() = None;
        }
        sent
    }

    fn connection(&self) -> MutexGuard<'_, Option<MultiplexedConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the script for a change. It makes a change once, also if the change is sent twice.
    async fn call(&self, operation: &str, arguments: Vec<String>) -> Result<Reply, OverrideError> {
        let id = RandomState::new().hash_one(());
        let mut invocation = self.script.prepare_invoke();
        invocation.key(&self.entries).key(&self.audit);
        invocation.key(format!("{}:{{overrides}}:reply:{id:016x}", self.prefix));
        invocation.arg(operation).arg(TTL.as_millis() as u64);
        invocation.arg(MAX_OVERRIDES).arg(MAX_AUDIT).arg(arguments);
        let invocation = &invocation;
        let send = |mut connection| async move { invocation.invoke_async(&mut connection).await };
        self.send(send).await
    }
}

/// Returns whether the connection does not lead to a server that answers: another one may.
fn is_of_connection(error: &RedisError) -> bool {
    let is_read_only = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
    let is_cut_short = error.kind() == ErrorKind::Parse;
    error.is_timeout() || error.is_connection_dropped() || is_cut_short || is_read_only
}

/// The status of a change, its version, the version before, and the override before.
type Reply = (String, u64, u64, Option<String>);

/// Returns the error of a command.
fn failed(error: &RedisError) -> OverrideError {
    let message = match error.code() {
        Some(code) => format!("{} {code}", error.category()),
        None if error.is_timeout() => format!("no reply within {RESPONSE_TIMEOUT:?}"),
        None if error.is_connection_refusal() => "it refuses connections".to_owned(),
        None if error.is_connection_dropped() => "the connection was closed".to_owned(),
        None => error.category().to_owned(),
    };
    let is_known = error.is_connection_refusal() || error.code().is_some();
    let may_apply = is_of_connection(error) && !is_known;
    OverrideError::Unavailable { message, may_apply }
}

/// Reads an override of the hash. Other fields are none.
fn parse(value: &str) -> Option<Override> {
    let mut parts = value.splitn(3, ' ');
    let (version, _until, json) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let entry: Override = serde_json::from_str(json).ok()?;
    Some(Override { version, since: from_millis(version / 1_000), ..entry })
}

fn json(value: &impl serde::Serialize) -> String {
    // Neither type has a map with keys that are not texts.
    serde_json::to_string(value).unwrap_or_default()
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
