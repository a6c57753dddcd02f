//! How a [`RedisStore`](super::RedisStore) names its keys, connects and waits.

use std::{fmt, time::Duration};

use crate::{error::Error, quota::Quota};

/// How a [`RedisStore`](super::RedisStore) names its keys, connects and waits.
///
/// Instances that are to share standings need the same prefix, secret and kind of keys.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// What every key begins with. The default is `toll`, short because every key has it.
    pub prefix: String,
    /// The secret of the hash by which keys are named. The default is fixed and public, so that
    /// instances agree: whoever reads the database can then test a guess of who is charged. Set
    /// one of your own to prevent that.
    pub secret: (u64, u64),
    /// Names keys by who is charged, readable to everybody who can read the database. The default
    /// is to hash.
    pub plain_keys: bool,
    /// Connections to each server, each shared by many checks. The default is 2.
    pub connections: usize,
    /// Lets checks that arrive while a call is in flight share the next call. One call decides up to
    /// 64 charges, check by check in the order of arrival. The default is `true`.
    pub batching: bool,
    /// How long connecting may take, behind Sentinel along with asking who is the primary. The
    /// default is 1 s. A check that may not wait so long gives up; connecting goes on.
    pub connect_timeout: Duration,
    /// How long an answer may take. The default is 500 ms. A connection on which nothing comes back
    /// for about as long, though somebody gave up waiting, is replaced.
    pub response_timeout: Duration,
    /// The highest limit of a [`SlidingLog`](crate::Algorithm::SlidingLog): the entries of one
    /// key. The default is 10,000, with which no call takes the server more than 2 ms.
    pub max_log_entries: u64,
    /// Certificates, in PEM, by which to trust the server; the default is the system's.
    pub root_certificates: Option<Vec<u8>>,
    /// The client's certificate and key, in PEM.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            prefix: "toll".into(),
            secret: (0x746f_6c6c_6761_7465, 0x6e6f_7420_7365_6372),
            plain_keys: false,
            connections: 2,
            batching: true,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            max_log_entries: 10_000,
            root_certificates: None,
            client_certificate: None,
        }
    }
}

impl RedisConfig {
    /// Begins every key with this: 1 to 64 printable characters without braces or spaces.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Hashes keys under this secret.
    #[must_use]
    pub fn secret(mut self, secret: (u64, u64)) -> Self {
        self.secret = secret;
        self
    }

    /// Names keys by who is charged instead of a hash.
    #[must_use]
    pub fn plain_keys(mut self) -> Self {
        self.plain_keys = true;
        self
    }

    /// Opens this many connections to each server, 1 to 64.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Makes one call for each check, and no batches.
    #[must_use]
    pub fn without_batching(mut self) -> Self {
        self.batching = false;
        self
    }

    /// Gives up connecting after this time.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Gives up waiting for an answer after this time.
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Allows sliding logs of this many entries: 10 bytes each. A log that grows is copied now and
    /// then, and a refund touches every block of 8 newer entries; the server does nothing else
    /// meanwhile, for about a millisecond at 10,000 entries.
    #[must_use]
    pub fn max_log_entries(mut self, entries: u64) -> Self {
        self.max_log_entries = entries;
        self
    }

    /// Trusts servers by these certificates, in PEM.
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root_certificates = Some(pem.into());
        self
    }

    /// Shows the server this certificate and key, in PEM.
    #[must_use]
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client_certificate = Some((pem.into(), key.into()));
        self
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if !(1..=64).contains(&self.prefix.len()) || !self.prefix.bytes().all(allowed) {
            let form = "1 to 64 printable characters without braces or spaces";
            return Err(Error::invalid("prefix", &self.prefix, form));
        }
        if !(1..=64).contains(&self.connections) {
            return Err(Error::invalid("number of connections", self.connections, "1 to 64"));
        }
        if !(1..=Quota::MAX_LOGGED).contains(&self.max_log_entries) {
            let entries = self.max_log_entries;
            return Err(Error::invalid("most log entries", entries, "1 to 2147483648"));
        }
        for (field, timeout) in
            [("connect timeout", self.connect_timeout), ("response timeout", self.response_timeout)]
        {
            if timeout.is_zero() {
                return Err(Error::invalid(field, timeout, "more than 0"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("plain_keys", &self.plain_keys)
            .field("connections", &self.connections)
            .field("batching", &self.batching)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("max_log_entries", &self.max_log_entries)
            .finish_non_exhaustive()
    }
}
