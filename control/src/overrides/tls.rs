//! The seam of the feature `redis-tls`.

#[cfg(feature = "redis-tls")]
mod with {
    use rustls::crypto::{CryptoProvider, ring};

    /// The form of the URL of a server.
    pub(in crate::overrides) const URL: &str =
        "redis://[user[:password]@]host[:port][/db], or rediss://.. for TLS";

    /// Chooses the cryptography of TLS, unless the program has done so.
    pub(in crate::overrides) fn prepare() {
        if CryptoProvider::get_default().is_none() {
            // This fails if another thread has just installed a provider, which serves as well.
            let _ = ring::default_provider().install_default();
        }
    }
}

#[cfg(not(feature = "redis-tls"))]
mod without {
    /// The form of the URL of a server.
    pub(in crate::overrides) const URL: &str =
        "redis://[user[:password]@]host[:port][/db]; rediss:// needs the feature redis-tls";

    /// Does nothing.
    pub(in crate::overrides) fn prepare() {}
}

#[cfg(feature = "redis-tls")]
pub(super) use self::with::{URL, prepare};
#[cfg(not(feature = "redis-tls"))]
pub(super) use self::without::{URL, prepare};
