//! The configuration of the store.

use std::{fmt, sync::Arc, time::Duration};

use plimsoll::{Error, clock::Clock, error::ErrorKind};
use tokio_postgres::config::TargetSessionAttrs;

/// The configuration of a [`PostgresStore`](crate::PostgresStore).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use plimsoll_postgres::PostgresConfig;
///
/// let config = PostgresConfig::url("postgres://limits@10.0.0.5,10.0.0.6/app")?
///     .table("limits.plimsoll")
///     .connections(8)
///     .timeout(Duration::from_millis(500));
/// # let _ = config;
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(crate) server: tokio_postgres::Config,
    pub(crate) table: String,
    pub(crate) secret: [u64; 2],
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
    pub(crate) waits_for_disk: bool,
    pub(crate) test_clock: Option<Arc<dyn Clock>>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<rustls::ClientConfig>,
}

/// The secret of a store without one of its own. It is public.
const DEFAULT_SECRET: [u64; 2] = [0x706c_696d, 0x736f_6c6c];

impl PostgresConfig {
    /// Creates a configuration from a URL such as `postgres://user:password@host:5432/database`, or from
    /// parameters such as `host=/run/postgresql dbname=app`.
    ///
    /// With several hosts, the store uses the first one that accepts writes.
    ///
    /// # Errors
    ///
    /// An error of the kind [`Invalid`](ErrorKind::Invalid) if the text is neither.
    pub fn url(url: &str) -> Result<Self, Error> {
        let server = url.parse::<tokio_postgres::Config>().map_err(|_| {
            // The text of the error may repeat the password.
            let message = "the address of the database is neither a postgres:// URL nor parameters";
            Error::new(ErrorKind::Invalid, message)
        })?;
        Ok(Self::server(server))
    }

    /// Creates a configuration from a [`tokio_postgres::Config`].
    #[must_use]
    pub fn server(mut server: tokio_postgres::Config) -> Self {
        server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Self {
            server,
            table: "plimsoll".to_owned(),
            secret: DEFAULT_SECRET,
            connections: 4,
            timeout: Duration::from_secs(1),
            waits_for_disk: true,
            test_clock: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the name of the table, with or without a schema. The default is `plimsoll`.
    ///
    /// A name has up to 40 lower-case letters, digits and `_`, and does not begin with a digit.
    /// [`connect`](crate::PostgresStore::connect) returns an error for another name.
    #[must_use]
    pub fn table(self, name: impl Into<String>) -> Self {
        Self { table: name.into(), ..self }
    }

    /// Sets the secret of the hash by which the database knows keys and policies. All instances need the
    /// same. The default is public, so that a reader of the table can test whether it has a given key.
    #[must_use]
    pub fn secret(self, secret: [u64; 2]) -> Self {
        Self { secret, ..self }
    }

    /// Sets the number of connections, from 1 to 64. The default is 4. Each decides up to 64 checks at a
    /// time.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.clamp(1, 64), ..self }
    }

    /// Sets the longest time that the store waits for a connection, and for each exchange. The server
    /// ends a transaction of this store after the same time. The default is 1 second. A
    /// [`deadline`](plimsoll::Resilience::deadline) of the limiter ends a check earlier.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: timeout.max(Duration::from_millis(1)), ..self }
    }

    /// Lets commits return before the disk has them. Checks become faster, and a server that crashes may
    /// forget the units of its last second. (This is `synchronous_commit = off`.)
    #[must_use]
    pub fn commit_asynchronously(self) -> Self {
        Self { waits_for_disk: false, ..self }
    }

    /// Connects with TLS. Without it, the store fails if the URL has `sslmode=require`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: rustls::ClientConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Takes the time from a clock instead of the server.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn test_clock(self, clock: impl Clock) -> Self {
        Self { test_clock: Some(Arc::new(clock)), ..self }
    }

    /// Returns an error if the name of the table cannot stand in a statement as it is.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        let parts: Vec<&str> = self.table.split('.').collect();
        if parts.len() <= 2 && parts.into_iter().all(is_name) {
            return Ok(());
        }
        let shown: String = self.table.chars().take(90).collect();
        let allowed = "up to 40 of a-z, 0-9 and '_', perhaps behind a schema and '.'";
        let message = format!("table is {shown:?}, allowed is {allowed}");
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

fn is_name(part: &str) -> bool {
    (1..=40).contains(&part.len())
        && !part.starts_with(|first: char| first.is_ascii_digit())
        && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig").field("table", &self.table).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_name_that_needs_no_quotes() {
        let config = PostgresConfig::url("postgres://u:p@localhost/d").expect("a URL");
        for right in ["plimsoll", "_a1", "limits.plimsoll"] {
            assert!(config.clone().table(right).validate().is_ok(), "{right}");
        }
        let long = "a".repeat(41);
        for wrong in ["", "1a", "a;b", "a\"", "A", "a.b.c", "a.", ".a", "a b", "é", &long] {
            let error = config.clone().table(wrong).validate().expect_err(wrong);
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().starts_with("table is "),
                "{error}"
            );
        }
    }

    #[test]
    fn no_text_has_the_password() {
        let config = PostgresConfig::url("postgres://u:hunter2@localhost/d").expect("a URL");
        assert!(!format!("{config:?}").contains("hunter2"));
        let error = PostgresConfig::url("postgres://u:hunter2@localhost:x/d").expect_err("no port");
        assert!(
            error.kind() == ErrorKind::Invalid && !format!("{error:?}").contains("hunter2"),
            "{error:?}"
        );
    }
}
