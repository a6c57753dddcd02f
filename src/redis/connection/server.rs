//! The connector to the server at an address.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisError, RedisFuture, io::AsyncDNSResolver,
};
use tokio::{net::lookup_host, time::timeout};

use super::{Connection, connection::Liveness};
use crate::{
    redis::RedisConfig,
    runtime::{FlightError, SingleFlight},
    sync::Mutex,
};

/// The maximum number of requests that a connection queues. Further requests wait until there is
/// room.
const MAX_QUEUED_REQUESTS: usize = 1_024;

/// A connector to the server at an address.
#[derive(Clone)]
pub(in crate::redis) struct ServerConnector {
    client: Client,
    options: AsyncConnectionConfig,
}

impl ServerConnector {
    /// Creates a connector for a `redis://`, `rediss://` or `unix://` URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, or needs TLS and this crate was built without `redis-tls`.
    pub(in crate::redis) fn from_url(url: &str, config: &RedisConfig) -> Result<Self, RedisError> {
        // A part of the password would be the port or the path, and a part of the user the host.
        let authority = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
        let user = authority.and_then(|it| it.rsplit_once('@'));
        if user.is_some_and(|(user, _)| user.contains(['/', '?', '#'])) {
            return Err((ErrorKind::InvalidClientConfig, "a part is not percent-encoded").into());
        }
        Self::new(url.into_connection_info()?, config)
    }

    fn new(info: ConnectionInfo, config: &RedisConfig) -> Result<Self, RedisError> {
        // With RESP3, redis-rs reports the end of a connection, so that no request is sent over a
        // connection that has ended. Redis supports RESP3 since version 6.0.
        // From version 7.2 on, the name of the library is one more right that a user may lack: Redis
        // would log a refusal for each connection.
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        // With Nagle's algorithm, a request would wait while the server has not acknowledged an
        // earlier one: at 30 ms round trip, half of the checks would then miss their deadline.
        let tcp_settings = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp_settings);
        let options = AsyncConnectionConfig::new()
            // The pool of this crate has timeouts that wait longer if the process itself is late.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MAX_QUEUED_REQUESTS)
            .set_dns_resolver(Resolver::default());
        let client = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            tls::client(info, config)?
        } else {
            Client::open(info)?
        };
        Ok(Self { client, options })
    }

    /// Returns a connector with the same user, password and TLS settings for another address.
    pub(in crate::redis) fn at(
        &self,
        host: &str,
        port: u16,
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        let info = self.client.get_connection_info().clone();
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host: host.into(),
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host.into(), port),
        };
        Self::new(info.set_addr(address), config)
    }

    /// Returns the host of the address, empty for a Unix socket.
    pub(in crate::redis) fn host(&self) -> &str {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Returns host and port, or the path of a Unix socket, for errors. It contains no user and no password.
    pub(in crate::redis) fn address(&self) -> String {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                address_text(host, *port)
            }
            ConnectionAddr::Unix(path) => path.display().to_string(),
            _ => String::new(),
        }
    }

    /// Opens a connection. The caller must set a timeout.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be reached or refuses the connection.
    pub(in crate::redis) async fn connect(&self) -> Result<Connection, RedisError> {
        let liveness = Arc::new(Liveness::default());
        let watched = Arc::clone(&liveness);
        let options = self.options.clone().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                watched.close();
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let redis = self.client.get_multiplexed_async_connection_with_config(&options).await?;
        Ok(Connection::new(redis, liveness))
    }
}

/// Returns host and port as text. An IPv6 address is put in brackets.
fn address_text(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The time after which a resolution has failed, and another one starts: a resolution that hangs may notice only
/// seconds later that the name server is back. Its thread may hang until the system's resolver gives up,
/// usually after 30 seconds, so at most 30 threads hang for a server.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A resolver of the name of one server. Connections that are opened at the same time share a resolution, so a
/// name server that hangs does not take all of tokio's threads for blocking work (`tests/faults/names.rs`).
#[derive(Clone)]
struct Resolver {
    resolution: Arc<SingleFlight<String>>,
    found: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Default for Resolver {
    fn default() -> Self {
        Self { resolution: Arc::new(SingleFlight::new()), found: Arc::default() }
    }
}

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let address = (host.to_owned(), port);
        let found = Arc::clone(&self.found);
        let resolution = async move {
            match timeout(RESOLVE_TIMEOUT, lookup_host(address)).await {
                Ok(Ok(addresses)) => *found.lock() = addresses.collect(),
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err("the name server does not answer".to_owned()),
            }
            Ok(())
        };
        Box::pin(async move {
            match self.resolution.run(|| resolution).await {
                Ok(()) => Ok(Box::new(self.found.lock().clone().into_iter()) as Box<_>),
                Err(FlightError::Failed(message)) => Err(io::Error::other(message).into()),
                Err(_) => {
                    Err(io::Error::other("the runtime ended before the resolution did").into())
                }
            }
        })
    }
}

/// The seam of the feature `redis-tls`.
#[cfg(feature = "redis-tls")]
mod tls {
    use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisError, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};

    use crate::redis::RedisConfig;

    /// Creates a client that connects with TLS.
    pub(super) fn client(info: ConnectionInfo, config: &RedisConfig) -> Result<Client, RedisError> {
        if CryptoProvider::get_default().is_none() {
            // This fails if another thread has just installed a provider, which serves as well.
            let _ = ring::default_provider().install_default();
        }
        let client_tls = config.client_certificate.as_ref().map(|(certificate, key)| {
            ClientTlsConfig { client_cert: certificate.clone(), client_key: key.clone() }
        });
        let root_cert = config.root_certificates.clone();
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
    }
}

/// The seam without the feature `redis-tls`.
#[cfg(not(feature = "redis-tls"))]
mod tls {
    use redis::{Client, ConnectionInfo, ErrorKind, RedisError};

    use crate::redis::RedisConfig;

    /// Returns an error, because this crate was built without TLS.
    pub(super) fn client(_: ConnectionInfo, _: &RedisConfig) -> Result<Client, RedisError> {
        Err((ErrorKind::InvalidClientConfig, "TLS needs the feature redis-tls").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_and_names_are_resolved() {
        for host in ["127.0.0.1", "::1", "localhost"] {
            let resolver = Resolver::default();
            let found: Vec<_> = resolver.resolve(host, 7).await.expect("known").collect();
            assert!(!found.is_empty());
            assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
        }
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_is_an_error() {
        assert!(Resolver::default().resolve("\0", 7).await.is_err());
    }
}
