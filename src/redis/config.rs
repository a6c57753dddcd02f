//! The configuration of a [`RedisStore`](super::RedisStore).

use std::{fmt, time::Duration};

use redis::IntoConnectionInfo;

pub(super) use self::app_pool::AppPool;
use crate::error::Error;

/// The configuration of a [`RedisStore`](super::RedisStore): the servers to which it connects, its
/// keys, connections and timeouts.
///
/// It begins with the servers:
///
/// | servers | constructor |
/// |---|---|
/// | one server | [`RedisConfig::url`] |
/// | a cluster | [`RedisConfig::cluster`] |
/// | the primary behind Sentinel | [`RedisConfig::sentinel`] |
/// | the server of an application's bb8 pool | `RedisConfig::pool` (feature `bb8`) |
///
/// [`RedisStore::connect_with`](super::RedisStore::connect_with) returns an error if a value is not
/// allowed.
///
/// Instances of a service share their standings if they have the same
/// [`prefix`](Self::prefix), [`secret`](Self::secret) and [`plain_keys`](Self::plain_keys).
///
/// # Example
///
/// ```no_run
/// use std::time::Duration;
///
/// use plimsoll::{Limiter, RedisStore, redis::RedisConfig};
///
/// # async fn connect() -> Result<(), plimsoll::Error> {
/// let config = RedisConfig::url("redis://limiter:s3cret@redis.internal/")
///     .prefix("shop.limits")
///     .connections(4)
///     .response_timeout(Duration::from_millis(250));
/// let limiter = Limiter::new(RedisStore::connect_with(config).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(super) servers: Servers,
    pub(super) prefix: String,
    pub(super) secret: (u64, u64),
    pub(super) plain_keys: bool,
    pub(super) connections: usize,
    pub(super) batching: bool,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) lazy: bool,
    pub(super) root_certificates: Option<Vec<u8>>,
    pub(super) client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// The servers to which a store connects.
#[derive(Clone)]
pub(super) enum Servers {
    /// The server at this URL.
    Url(String),
    /// The cluster to which the nodes at these URLs belong.
    Cluster(Vec<String>),
    /// The primary that the sentinels at these URLs name.
    Sentinel { sentinels: Vec<String>, primary: String },
    /// The server of the application's pool.
    #[cfg_attr(not(feature = "bb8"), expect(dead_code, reason = "needs the feature"))]
    AppPool(AppPool),
}

/// The server `redis://127.0.0.1/`, with the default settings.
impl Default for RedisConfig {
    fn default() -> Self {
        Self::url("redis://127.0.0.1/")
    }
}

impl RedisConfig {
    /// Creates the default configuration for the server at a URL:
    /// `redis://[user[:password]@]host[:port][/db]`, `rediss://..` for TLS, or
    /// `unix:///path[?user=..&pass=..&db=..]`.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self::of(Servers::Url(url.into()))
    }

    /// Creates the default configuration for a cluster. `nodes` are the URLs of some of its nodes.
    /// The user, password and TLS settings of the first URL are used for all nodes.
    #[must_use]
    pub fn cluster<S: Into<String>>(nodes: impl IntoIterator<Item = S>) -> Self {
        Self::of(Servers::Cluster(nodes.into_iter().map(Into::into).collect()))
    }

    /// Creates the default configuration for the primary that Redis Sentinel names. The store follows
    /// it after a failover.
    ///
    /// `sentinels` are the URLs of some sentinels. `primary` is the name, or a URL with the name as
    /// its host: `rediss://user:password@name/0`.
    #[must_use]
    pub fn sentinel<S: Into<String>>(
        sentinels: impl IntoIterator<Item = S>,
        primary: impl Into<String>,
    ) -> Self {
        let sentinels = sentinels.into_iter().map(Into::into).collect();
        Self::of(Servers::Sentinel { sentinels, primary: primary.into() })
    }

    /// Creates the default configuration for the server of the application's own [pool](bb8::Pool). The store
    /// connects through the manager of the pool: with its address, user, password, certificates and connection
    /// customizer. The certificates of this configuration are not used.
    ///
    /// The store opens [`connections`](Self::connections) connections of its own, which the
    /// pool's `max_size` does not count. It never uses the connections that the application checks
    /// out, so the application may use transactions, `SELECT` and blocking commands on them. Set
    /// `TCP_NODELAY` in the manager's connection info. Without it, a request can wait until the server
    /// has acknowledged an earlier one.
    #[cfg(feature = "bb8")]
    #[must_use]
    pub fn pool(pool: bb8::Pool<bb8_redis::RedisConnectionManager>) -> Self {
        Self::of(Servers::AppPool(AppPool(pool)))
    }

    fn of(servers: Servers) -> Self {
        Self {
            servers,
            prefix: "plim".into(),
            secret: DEFAULT_SECRET,
            plain_keys: false,
            connections: 2,
            batching: true,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            lazy: false,
            root_certificates: None,
            client_certificate: None,
        }
    }

    /// Takes all settings of another configuration, and keeps the servers.
    #[must_use]
    pub fn with_settings(self, settings: Self) -> Self {
        Self { servers: self.servers, ..settings }
    }

    /// Sets the prefix of every key in the database: 1 to 64 printable ASCII characters without
    /// braces or spaces. The default is `plim`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the secret of the hash that names keys. The default is fixed and public, so that
    /// instances agree without configuration. A reader of the database can then test a guess of a
    /// [`Key`](crate::Key), which a secret of your own prevents.
    #[must_use]
    pub fn secret(mut self, secret: (u64, u64)) -> Self {
        self.secret = secret;
        self
    }

    /// Sets whether keys in the database contain the text of the charged [`Key`](crate::Key), which
    /// every reader of the database then sees. The default is `false`: they contain a hash of it.
    #[must_use]
    pub fn plain_keys(mut self, plain: bool) -> Self {
        self.plain_keys = plain;
        self
    }

    /// Sets the number of connections to each server, 1 to 64. Many
    /// [checks](crate::Limiter::check) share each connection. The default is 2. A limiter with units in
    /// [flight](crate::guide::concurrency) opens one more.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets whether [checks](crate::Limiter::check) that arrive while a call is in flight share the
    /// next call, which decides up to 64 charges in the order of their arrival. The default is
    /// `true`.
    #[must_use]
    pub fn batching(mut self, batching: bool) -> Self {
        self.batching = batching;
        self
    }

    /// Sets the time that opening a connection may take, 1 ms to 1 hour. Behind Sentinel this
    /// includes finding the primary. The default is 1 s. A check with a shorter
    /// [`deadline`](crate::Resilience::deadline) does not wait that long; the connection is then
    /// opened in the background.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time that a reply may take, 1 ms to 1 hour. The default is 500 ms. It also ends a check with a
    /// longer [`deadline`](crate::Resilience::deadline). If a request times
    /// out and no reply arrives on its connection for about this long, the connection is replaced.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Sets whether the store is created without a connection, and connects in the background. The
    /// default is `false`: the store connects first, and that fails if it cannot. See
    /// [`RedisStore`](super::RedisStore#starting-without-redis).
    #[must_use]
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// Sets the certificates, in PEM, of the authorities that may sign the server's certificate. The
    /// default is none: the authorities that the system trusts.
    ///
    /// redis-rs also parses the system's certificates for each new connection. This takes about 24 ms
    /// of processor time in a debug build.
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Sets the certificate and the key, in PEM, that the client presents to the server. The default
    /// is none.
    #[must_use]
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client_certificate = Some((pem.into(), key.into()));
        self
    }

    /// Returns the text of [`Store::description`](crate::store::Store::description). It contains no address.
    pub(super) fn describe(&self) -> String {
        let (kind, url) = match &self.servers {
            Servers::Url(url) => ("single server", url.as_str()),
            Servers::Cluster(nodes) => ("cluster", nodes.first().map_or("", String::as_str)),
            Servers::Sentinel { primary, .. } => ("Sentinel", primary.as_str()),
            Servers::AppPool(_) => ("single server of a bb8 pool", ""),
        };
        let transport = match url.split_once(':') {
            Some(("rediss", _)) => " over TLS",
            Some(("unix", _)) => " over a Unix socket",
            _ => "",
        };
        let each = if matches!(self.servers, Servers::Cluster(_)) { " to each node" } else { "" };
        let info = url.into_connection_info().ok().filter(|_| each.is_empty());
        let database =
            info.map_or(String::new(), |info| format!(", database {}", info.redis_settings().db()));
        let Self { connections, prefix, .. } = self;
        let noun = if *connections == 1 { "connection" } else { "connections" };
        format!("Redis ({kind}{transport}{database}, {connections} {noun}{each}, prefix {prefix})")
    }

    /// Validates all values.
    ///
    /// # Errors
    ///
    /// Returns an error if a value is not allowed. The error names the field, the value and the allowed
    /// range.
    pub(super) fn validate(&self) -> Result<(), Error> {
        if !is_prefix(&self.prefix) {
            return Err(Error::invalid("RedisConfig::prefix", &self.prefix, PREFIX));
        }
        if !(1..=64).contains(&self.connections) {
            return Err(Error::invalid("RedisConfig::connections", self.connections, "1 to 64"));
        }
        for (field, timeout) in [
            ("RedisConfig::connect_timeout", self.connect_timeout),
            ("RedisConfig::response_timeout", self.response_timeout),
        ] {
            if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
                return Err(Error::invalid(field, timeout, "1 ms to 1 hour"));
            }
        }
        Ok(())
    }
}

const DEFAULT_SECRET: (u64, u64) = (0x706c_696d_736f_6c6c, 0x6e6f_7420_7365_6372);
const PREFIX: &str = "1 to 64 printable ASCII characters without braces or spaces";
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

fn is_prefix(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'{' && byte != b'}')
}

/// The output contains neither the servers, whose URLs may contain a password, nor the secret nor the
/// key of the client certificate.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("plain_keys", &self.plain_keys)
            .field("connections", &self.connections)
            .field("batching", &self.batching)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("lazy", &self.lazy)
            .finish_non_exhaustive()
    }
}

/// The seam of the feature `bb8`.
#[cfg(feature = "bb8")]
mod app_pool {
    use std::time::Duration;

    use bb8_redis::RedisConnectionManager;
    use redis::{RedisError, aio::MultiplexedConnection};

    /// The application's bb8 pool, as a way to connect.
    #[derive(Clone)]
    pub(in crate::redis) struct AppPool(pub(in crate::redis) bb8::Pool<RedisConnectionManager>);

    impl AppPool {
        /// Opens a connection of its own. The connections that the application checks out are not
        /// used: the application may start a transaction on one of them, select another database,
        /// or block it.
        pub(in crate::redis) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
            let mut redis = self.0.dedicated_connection().await?;
            // The pool of this crate has a response timeout that waits longer if the process itself
            // is late.
            redis.set_response_timeout(Duration::MAX);
            Ok(redis)
        }
    }
}

/// The seam without the feature `bb8`.
#[cfg(not(feature = "bb8"))]
mod app_pool {
    use redis::{RedisError, aio::MultiplexedConnection};

    /// A pool that does not exist, because this crate was built without bb8.
    #[derive(Clone)]
    pub(in crate::redis) enum AppPool {}

    impl AppPool {
        #[allow(clippy::unused_async, reason = "it has the signature of the other seam")]
        pub(in crate::redis) async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_field_the_value_and_what_is_allowed() {
        let config = RedisConfig::default;
        config().validate().expect("the default is valid");
        let hour = Duration::from_secs(3_600);
        config().connect_timeout(hour).connections(64).validate().expect("allowed");
        for (config, message) in [
            (
                config().prefix("a b"),
                "RedisConfig::prefix is \"a b\", allowed is 1 to 64 printable",
            ),
            (config().prefix(""), "RedisConfig::prefix is \"\", "),
            (config().connections(65), "RedisConfig::connections is 65, allowed is 1 to 64"),
            (
                config().connect_timeout(Duration::ZERO),
                "RedisConfig::connect_timeout is 0ns, allowed is 1 ms to 1 hour",
            ),
            (
                config().response_timeout(hour * 2),
                "RedisConfig::response_timeout is 7200s, allowed is 1 ms to 1 hour",
            ),
        ] {
            let error = config.validate().expect_err("not allowed");
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = RedisConfig::url("redis://:s3cret@host/")
            .secret((4_711, 4_712))
            .client_certificate("c", "key");
        let shown = format!("{config:?}");
        assert!(!["4711", "key\"", "s3cret"].iter().any(|it| shown.contains(it)), "{shown}");
    }

    #[test]
    fn settings_leave_the_servers() {
        let config = RedisConfig::cluster(["redis://n1/", "redis://n2/"]);
        let config = config.with_settings(RedisConfig::url("redis://other/").connections(7));
        assert!(matches!(&config.servers, Servers::Cluster(nodes) if nodes.len() == 2));
        assert_eq!(config.connections, 7);
    }
}
