//! Where connections come from: an address, the application's pool, or the primary that Sentinel
//! names.

use std::{sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisError, aio::MultiplexedConnection,
};

use super::{SentinelConnector, SingleFlight, dns::Resolver, health::Pulse};
use crate::store::redis::RedisConfig;

/// A connection, and what is known of its state.
#[derive(Debug)]
pub(in crate::store::redis) struct Connection {
    pub(in crate::store::redis) connection: MultiplexedConnection,
    pub(in crate::store::redis) pulse: Arc<Pulse>,
    pub(in crate::store::redis) testing: SingleFlight,
}

impl Connection {
    fn new(connection: MultiplexedConnection, pulse: Arc<Pulse>) -> Self {
        Self { connection, pulse, testing: SingleFlight::new(Duration::ZERO) }
    }
}

pub(in crate::store::redis) enum Connector {
    Server(Box<ServerConnector>),
    Bb8 { pool: bb8::Pool<RedisConnectionManager>, response_timeout: Duration },
    Sentinel(Box<SentinelConnector>),
}

impl Connector {
    pub(in crate::store::redis) async fn open(self: Arc<Self>) -> Result<Connection, RedisError> {
        match &*self {
            Self::Server(server) => server.open().await,
            Self::Sentinel(sentinels) => sentinels.primary().await,
            // Not one of those that the application checks out: whoever has one of them may begin a
            // transaction on it, select another database, or block it.
            Self::Bb8 { pool, response_timeout } => {
                let mut connection = pool.dedicated_connection().await?;
                connection.set_response_timeout(*response_timeout);
                Ok(Connection::new(connection, Arc::default()))
            }
        }
    }

    /// Whether the end of a connection shows only when it is used.
    pub(in crate::store::redis) fn ends_unnoticed(&self) -> bool {
        matches!(self, Self::Bb8 { .. })
    }
}

/// One server, and how to connect to it.
#[derive(Clone)]
pub(in crate::store::redis) struct ServerConnector {
    client: Client,
    options: AsyncConnectionConfig,
}

impl ServerConnector {
    pub(in crate::store::redis) fn new(
        info: ConnectionInfo,
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        // In version 3 of the protocol the end of a connection is a message, so that no request is
        // sent into one that has ended. Every server from 6.0 on speaks it.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = info.set_redis_settings(settings);
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(config.connect_timeout))
            .set_response_timeout(Some(config.response_timeout))
            .set_pipeline_buffer_size(1024)
            .set_dns_resolver(Resolver::system());
        let client = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            secure::client(info, config)?
        } else {
            Client::open(info)?
        };
        Ok(Self { client, options })
    }

    pub(in crate::store::redis) fn from_url(
        url: &str,
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        Self::new(url.into_connection_info()?, config)
    }

    /// The same settings for another address.
    pub(in crate::store::redis) fn at(
        &self,
        host: &str,
        port: u16,
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        let mut info = self.client.get_connection_info().clone();
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host: host.into(),
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host.into(), port),
        };
        info = info.set_addr(address);
        Self::new(info, config)
    }

    pub(in crate::store::redis) fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    pub(in crate::store::redis) async fn open(&self) -> Result<Connection, RedisError> {
        let pulse = Arc::new(Pulse::default());
        let seen = Arc::clone(&pulse);
        let options = self.options.clone().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                seen.end();
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let connection = self.client.get_multiplexed_async_connection_with_config(&options).await?;
        Ok(Connection::new(connection, pulse))
    }
}

/// The one place that knows whether this crate was built with TLS.
#[cfg(feature = "redis-tls")]
mod secure {
    use redis::{ClientTlsConfig, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};

    use super::*;

    pub(in crate::store::redis) fn client(
        info: ConnectionInfo,
        config: &RedisConfig,
    ) -> Result<Client, RedisError> {
        if CryptoProvider::get_default().is_none() {
            // If another thread was faster, its choice is as good.
            let _ = ring::default_provider().install_default();
        }
        let client_tls = config.client_certificate.as_ref().map(|(certificate, key)| {
            ClientTlsConfig { client_cert: certificate.clone(), client_key: key.clone() }
        });
        let root_cert = config.root_certificates.clone();
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
    }
}

#[cfg(not(feature = "redis-tls"))]
mod secure {
    use redis::ErrorKind;

    use super::*;

    pub(in crate::store::redis) fn client(
        _: ConnectionInfo,
        _: &RedisConfig,
    ) -> Result<Client, RedisError> {
        Err((ErrorKind::InvalidClientConfig, "TLS needs the feature redis-tls").into())
    }
}
