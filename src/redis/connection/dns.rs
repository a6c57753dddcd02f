//! The addresses of hosts, found by the system's resolver.

use std::{collections::HashMap, io, net::SocketAddr, sync::Arc, time::Duration};

use redis::{RedisFuture, io::AsyncDNSResolver};
use tokio::{net::lookup_host, time::timeout};

use crate::{
    runtime::{FlightError, SingleFlight},
    sync::Mutex,
};

/// The time after which a resolution has failed, and another one starts: one that hangs may notice only
/// seconds later that the name server is back. Its thread may hang until the system's resolver gives up,
/// usually after 30 seconds, so at most 30 threads hang for a host.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of hosts from which on the resolver forgets them.
const MAX_HOSTS: usize = 1_000;

/// A resolver of host names. Connections that are opened at the same time share a resolution, so a name server
/// that hangs does not take all of tokio's threads for blocking work (`tests/faults/names.rs`).
#[derive(Clone, Default)]
pub(super) struct Resolver(Arc<Mutex<HashMap<Box<str>, Arc<Host>>>>);

struct Host {
    resolution: SingleFlight<String>,
    found: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Resolver {
    /// Returns the addresses of a host.
    ///
    /// # Errors
    ///
    /// Returns an error if the resolution fails or has no answer in time.
    async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let host = self.host(name);
        let resolution = || {
            let address = (name.to_owned(), 0);
            let found = Arc::clone(&host.found);
            async move {
                match timeout(RESOLVE_TIMEOUT, lookup_host(address)).await {
                    Ok(Ok(addresses)) => *found.lock() = addresses.collect(),
                    Ok(Err(error)) => return Err(error.to_string()),
                    Err(_) => return Err("the name server does not answer".to_owned()),
                }
                Ok(())
            }
        };
        match host.resolution.run(resolution).await {
            Ok(()) => Ok(host.found.lock().clone()),
            Err(FlightError::Failed(message)) => Err(io::Error::other(message)),
            Err(_) => Err(io::Error::other("the runtime ended before the resolution did")),
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.0.lock();
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(name) {
            hosts.clear();
        }
        let new = || Arc::new(Host { resolution: SingleFlight::new(), found: Arc::default() });
        Arc::clone(hosts.entry(name.into()).or_insert_with(new))
    }
}

impl AsyncDNSResolver for Resolver {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let mut addresses = match host.parse() {
                Ok(address) => vec![SocketAddr::new(address, port)],
                Err(_) => self.addresses(host).await?,
            };
            addresses.iter_mut().for_each(|address| address.set_port(port));
            Ok(Box::new(addresses.into_iter()) as Box<_>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_not_looked_up_and_names_are() {
        let resolver = Resolver::default();
        for host in ["127.0.0.1", "::1"] {
            let found: Vec<_> = resolver.resolve(host, 7).await.expect("no resolution").collect();
            assert_eq!(found, [SocketAddr::new(host.parse().expect("an address"), 7)]);
        }
        assert!(resolver.0.lock().is_empty());
        let found: Vec<_> = resolver.resolve("localhost", 7).await.expect("known").collect();
        assert!(!found.is_empty());
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_is_an_error() {
        assert!(Resolver::default().addresses("\0").await.is_err());
    }
}
