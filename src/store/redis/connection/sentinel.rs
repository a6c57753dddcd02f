//! Which server is the primary, according to Sentinel.

use std::sync::Arc;

use redis::{Cmd, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, Value};
use tokio::task::JoinSet;

use super::{
    connector::{Connection, ServerConnector},
    single_flight::first_good,
};
use crate::store::redis::RedisConfig;

/// Some sentinels, and the name under which they know a primary.
pub(in crate::store::redis) struct SentinelConnector {
    sentinels: Vec<ServerConnector>,
    sought: Arc<Sought>,
}

struct Sought {
    name: String,
    /// Settings of the primary; its address is what the sentinels say.
    primary: ServerConnector,
    config: RedisConfig,
}

impl SentinelConnector {
    /// `primary` is the name that sentinels know, or a URL with that name as its host, which may
    /// have a user, a password, a database and TLS.
    pub(in crate::store::redis) fn new(
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
        let info: ConnectionInfo = url.as_str().into_connection_info()?;
        // Hosts in URLs are folded to lower case, names of primaries are not.
        let name = host_of(&url).to_owned();
        let sentinels = sentinels.iter().map(|url| ServerConnector::from_url(url, config));
        let primary = ServerConnector::new(info, config)?;
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            sought: Arc::new(Sought { name, primary, config: config.clone() }),
        })
    }

    /// Asks all sentinels at once, because some may be silent, and the servers that they name
    /// whether they agree. Whoever waits for it bounds how long that may take.
    pub(in crate::store::redis) async fn primary(&self) -> Result<Connection, RedisError> {
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            asked.spawn(Self::ask(sentinel.clone(), Arc::clone(&self.sought)));
        }
        first_good(asked).await
    }

    async fn ask(sentinel: ServerConnector, sought: Arc<Sought>) -> Result<Connection, RedisError> {
        let mut connection = sentinel.open().await?.connection;
        let mut question = Cmd::new();
        question.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&sought.name);
        let address: Option<(String, u16)> = question.query_async(&mut connection).await?;
        let Some((host, port)) = address else {
            let message = "the sentinels know no primary of this name";
            return Err((ErrorKind::MasterNameNotFoundBySentinel, message).into());
        };
        let live = sought.primary.at(&host, port, &sought.config)?.open().await?;
        // During a failover a sentinel may still name the old one.
        let mut role = Cmd::new();
        role.arg("ROLE");
        let role: Value = role.query_async(&mut live.connection.clone()).await?;
        let is_primary = match &role {
            Value::Array(items) => match items.first() {
                Some(Value::BulkString(role)) => role == b"master",
                Some(Value::SimpleString(role)) => role == "master",
                _ => false,
            },
            _ => false,
        };
        if is_primary {
            Ok(live)
        } else {
            Err((ErrorKind::Io, "the server that the sentinel names is not a primary").into())
        }
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.split(':').next().unwrap_or(host)
}
