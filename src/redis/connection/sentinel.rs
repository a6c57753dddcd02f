//! The connector to the primary that Sentinel names.

use std::io;

use redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::task::JoinSet;

use super::{Connection, ServerConnector};
use crate::redis::RedisConfig;

/// A connector to the primary that Sentinel names.
#[derive(Clone)]
pub(in crate::redis) struct SentinelConnector {
    sentinels: Vec<ServerConnector>,
    /// The name of the primary.
    name: String,
    /// The user, password, database and TLS settings of the primary. The address comes from the sentinels.
    primary: ServerConnector,
    config: RedisConfig,
}

impl SentinelConnector {
    /// Creates a connector from the URLs of some sentinels and the name of a primary.
    ///
    /// `primary` is the name, or a URL with the name as its host: `rediss://user:password@name/0`.
    ///
    /// # Errors
    ///
    /// Returns an error if no sentinel is given, or a URL is not valid.
    pub(in crate::redis) fn new(
        sentinels: &[String],
        primary: &str,
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        if sentinels.is_empty() {
            return Err((ErrorKind::InvalidClientConfig, "no sentinel is given").into());
        }
        let url = if primary.contains("://") {
            primary.to_owned()
        } else {
            format!("redis://{primary}/")
        };
        // The parsed host is in lower case, but the names of primaries are case-sensitive.
        let name = host_of(&url).to_owned();
        let primary = ServerConnector::from_url(&url, config)?;
        let sentinels = sentinels.iter().map(|url| ServerConnector::from_url(url, config));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            name,
            primary,
            config: config.clone(),
        })
    }

    /// Returns the name of the primary, and the addresses of the sentinels, for errors.
    pub(super) fn address(&self) -> String {
        let sentinels: Vec<_> = self.sentinels.iter().map(ServerConnector::address).collect();
        format!("the primary {} of the sentinels {}", self.name, sentinels.join(", "))
    }

    /// Connects to the primary.
    ///
    /// All sentinels are asked at once, because some may not answer. The first connection to a
    /// primary is returned. The caller must set a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if no sentinel answers, or none names a server that agrees that it is the primary.
    pub(super) async fn connect(&self) -> Result<Connection, RedisError> {
        let mut attempts = JoinSet::new();
        for sentinel in &self.sentinels {
            let sentinel = sentinel.clone();
            let connector = self.clone();
            attempts.spawn(async move { connector.connect_by(&sentinel).await });
        }
        first_ok(attempts).await
    }

    /// Connects to the server that `sentinel` names, if that server agrees that it is the primary.
    async fn connect_by(&self, sentinel: &ServerConnector) -> Result<Connection, RedisError> {
        let mut sentinel = sentinel.connect().await?.redis;
        let mut command = Cmd::new();
        command.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let address: Option<(String, u16)> = command.query_async(&mut sentinel).await?;
        let Some((host, port)) = address else {
            let message = "the sentinels know no primary of this name";
            return Err((ErrorKind::MasterNameNotFoundBySentinel, message).into());
        };
        let connection = self.primary.at(&host, port, &self.config)?.connect().await?;
        // During a failover a sentinel may still name the old primary.
        let mut command = Cmd::new();
        command.arg("ROLE");
        let role: Value = command.query_async(&mut connection.redis.clone()).await?;
        if is_primary(&role) {
            Ok(connection)
        } else {
            Err((ErrorKind::Io, "the server that the sentinel names is not a primary").into())
        }
    }
}

/// Returns whether the reply to `ROLE` comes from a primary.
fn is_primary(role: &Value) -> bool {
    let Value::Array(items) = role else { return false };
    match items.first() {
        Some(Value::BulkString(role)) => role == b"master",
        Some(Value::SimpleString(role)) => role == "master",
        _ => false,
    }
}

/// Returns the host of a URL as it is written.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.split(':').next().unwrap_or(host)
}

/// Returns the first success, and aborts the other attempts.
///
/// # Errors
///
/// Returns an error if all attempts fail. The error is from the last attempt to which a server answered, or
/// else from the first attempt that failed.
pub(super) async fn first_ok<T: 'static>(
    mut attempts: JoinSet<Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let mut last: Option<RedisError> = None;
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) if error.is_io_error() && last.is_some() => {}
            Ok(Err(error)) => last = Some(error),
            // The runtime is shutting down and has aborted the attempt.
            Err(_) => {}
        }
    }
    Err(last.unwrap_or_else(|| {
        let message = "the runtime ended before the operation did";
        io::Error::new(io::ErrorKind::Interrupted, message).into()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_primary_keeps_its_case() {
        for url in ["redis://Shared-1", "rediss://user:p@Shared-1:26379/0?protocol=resp3"] {
            assert_eq!(host_of(url), "Shared-1");
        }
    }

    #[test]
    fn only_a_primary_has_the_role_master() {
        let role = |name: &str| Value::Array(vec![Value::SimpleString(name.into()), Value::Int(0)]);
        assert!(is_primary(&role("master")));
        for other in [role("slave"), role("sentinel"), Value::Array(vec![]), Value::Okay] {
            assert!(!is_primary(&other), "{other:?}");
        }
    }

    fn unreachable() -> RedisError {
        io::Error::from(io::ErrorKind::ConnectionRefused).into()
    }

    #[tokio::test]
    async fn the_first_success_counts() {
        let mut attempts = JoinSet::new();
        attempts.spawn(async { Err(unreachable()) });
        attempts.spawn(async { Ok(7) });
        attempts.spawn(std::future::pending());
        assert_eq!(first_ok(attempts).await.expect("one succeeds"), 7);
    }

    #[tokio::test]
    async fn the_error_of_a_server_that_answered_is_preferred() {
        let mut attempts = JoinSet::<Result<(), RedisError>>::new();
        attempts.spawn(async { Err((ErrorKind::AuthenticationFailed, "wrong password").into()) });
        attempts.spawn(async {
            tokio::task::yield_now().await;
            Err(unreachable())
        });
        let error = first_ok(attempts).await.expect_err("both fail");
        assert_eq!(error.kind(), ErrorKind::AuthenticationFailed);
        assert!(first_ok(JoinSet::<Result<(), RedisError>>::new()).await.is_err());
    }
}
