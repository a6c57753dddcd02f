//! Where connections come from: an address, the application's pool, or the primary that Sentinel
//! names.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8::Pool;
use bb8_redis::RedisConnectionManager;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisError, aio::MultiplexedConnection,
};
use tokio::time::timeout;

use super::{config::RedisConfig, names::Names, sentinel::Sentinels, silence::Silence};

/// A connection, and whether it is known to have ended.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) connection: MultiplexedConnection,
    pub(super) ended: Arc<AtomicBool>,
    pub(super) silence: Silence,
}

pub(super) enum Origin {
    Server(Box<Server>),
    Pool(Pool<RedisConnectionManager>),
    Sentinels(Box<Sentinels>),
}

impl Origin {
    pub(super) async fn open(&self) -> Result<Live, RedisError> {
        match self {
            Self::Server(server) => server.open().await,
            Self::Sentinels(sentinels) => sentinels.primary().await?.open().await,
            // The pool tests what it hands out; it is given back at once, so that a pool of one
            // connection serves everybody.
            Self::Pool(pool) => match pool.get().await {
                Ok(pooled) => Ok(Live {
                    connection: pooled.clone(),
                    ended: Arc::default(),
                    silence: Silence::default(),
                }),
                Err(bb8::RunError::User(error)) => Err(error),
                Err(bb8::RunError::TimedOut) => {
                    Err((ErrorKind::Io, "the pool had no connection in time").into())
                }
            },
        }
    }

    /// Whether the end of a connection shows only when it is used.
    pub(super) fn ends_unnoticed(&self) -> bool {
        matches!(self, Self::Pool(_))
    }
}

/// One server, and how to connect to it.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    connecting: Duration,
    options: AsyncConnectionConfig,
    names: Names,
}

impl Server {
    pub(super) fn new(info: ConnectionInfo, config: &RedisConfig) -> Result<Self, RedisError> {
        Self::named_by(Names::default(), info, config)
    }

    fn named_by(
        names: Names,
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
            .set_dns_resolver(names.clone());
        let client = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            secure::client(info, config)?
        } else {
            Client::open(info)?
        };
        Ok(Self { client, connecting: config.connect_timeout, options, names })
    }

    pub(super) fn from_url(url: &str, config: &RedisConfig) -> Result<Self, RedisError> {
        Self::new(url.into_connection_info()?, config)
    }

    /// The same settings for another address.
    pub(super) fn at(
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
        Self::named_by(self.names.clone(), info, config)
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        self.client.get_connection_info()
    }

    pub(super) async fn open(&self) -> Result<Live, RedisError> {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let options = self.options.clone().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                seen.store(true, Ordering::Release);
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let opening = self.client.get_multiplexed_async_connection_with_config(&options);
        // Resolving a name counts, too.
        match timeout(self.connecting, opening).await {
            Ok(connection) => {
                Ok(Live { connection: connection?, ended, silence: Silence::default() })
            }
            Err(_) => Err((ErrorKind::Io, "connecting took too long").into()),
        }
    }
}

/// The one place that knows whether this crate was built with TLS.
#[cfg(feature = "redis-tls")]
mod secure {
    use redis::{ClientTlsConfig, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};

    use super::*;

    pub(super) fn client(info: ConnectionInfo, config: &RedisConfig) -> Result<Client, RedisError> {
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
    use super::*;

    pub(super) fn client(_: ConnectionInfo, _: &RedisConfig) -> Result<Client, RedisError> {
        Err((ErrorKind::InvalidClientConfig, "TLS needs the feature redis-tls").into())
    }
}
