//! The seam of the feature `redis-tls`.

#[cfg(feature = "redis-tls")]
mod seam {
    use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisError, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};

    use crate::redis::RedisConfig;

    /// Creates a client that connects with TLS.
    pub(in super::super) fn client(
        info: ConnectionInfo,
        config: &RedisConfig,
    ) -> Result<Client, RedisError> {
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

#[cfg(not(feature = "redis-tls"))]
mod seam {
    use redis::{Client, ConnectionInfo, ErrorKind, RedisError};

    use crate::redis::RedisConfig;

    /// Returns an error, because this crate was built without TLS.
    pub(in super::super) fn client(
        _: ConnectionInfo,
        _: &RedisConfig,
    ) -> Result<Client, RedisError> {
        Err((ErrorKind::InvalidClientConfig, "TLS needs the feature redis-tls").into())
    }
}

pub(super) use seam::client;
