//! Which server is the primary, according to Sentinel.

use redis::{Cmd, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, Value};

use super::{config::RedisConfig, origin::Server};

/// Some sentinels, and the name under which they know a primary.
pub(super) struct Sentinels {
    sentinels: Vec<Server>,
    name: String,
    /// Settings of the primary; its address is what the sentinels say.
    primary: Server,
    config: RedisConfig,
}

impl Sentinels {
    /// `primary` is the name that sentinels know, or a URL with that name as its host, which may
    /// have a user, a password, a database and TLS.
    pub(super) fn new(
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
        Ok(Self {
            sentinels: sentinels
                .iter()
                .map(|url| Server::from_url(url, config))
                .collect::<Result<_, _>>()?,
            name,
            primary: Server::new(info, config)?,
            config: config.clone(),
        })
    }

    /// Asks the sentinels in turn, and the server that they name whether it agrees.
    pub(super) async fn primary(&self) -> Result<Server, RedisError> {
        let mut last: Option<RedisError> = None;
        for sentinel in &self.sentinels {
            match self.ask(sentinel).await {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| (ErrorKind::EmptySentinelList, "no sentinel is given").into()))
    }

    async fn ask(&self, sentinel: &Server) -> Result<Server, RedisError> {
        let mut connection = sentinel.open().await?.connection;
        let mut question = Cmd::new();
        question.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let address: Option<(String, u16)> = question.query_async(&mut connection).await?;
        let Some((host, port)) = address else {
            let message = "the sentinels know no primary of this name";
            return Err((ErrorKind::MasterNameNotFoundBySentinel, message).into());
        };
        let server = self.primary.at(&host, port, &self.config)?;
        // During a failover a sentinel may still name the old one.
        let mut connection = server.open().await?.connection;
        let mut role = Cmd::new();
        role.arg("ROLE");
        let role: Value = role.query_async(&mut connection).await?;
        let is_primary = match &role {
            Value::Array(items) => match items.first() {
                Some(Value::BulkString(role)) => role == b"master",
                Some(Value::SimpleString(role)) => role == "master",
                _ => false,
            },
            _ => false,
        };
        if is_primary {
            Ok(server)
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
