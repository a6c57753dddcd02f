//! The addresses of hosts, found by the system's resolver.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use redis::{RedisFuture, io::AsyncDNSResolver};
use tokio::{net::lookup_host, time::timeout};

use crate::{
    runtime::{FlightError, SingleFlight},
    sync::Mutex,
};

/// The time after which a resolution has failed. Its thread may hang until the system's resolver gives
/// up, usually after 30 seconds, so at most 30 threads hang for a host.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time after which the last known addresses of a host are used while a resolution hangs.
const USE_KNOWN_AFTER: Duration = Duration::from_millis(200);

/// The number of hosts from which on the known addresses are forgotten.
const MAX_HOSTS: usize = 1_000;

/// A resolver of host names. Clones share their resolutions and the addresses found.
///
/// A resolution runs in a task of its own. If it fails or takes long, the last known addresses of the
/// host are used.
#[derive(Clone)]
pub(super) struct Resolver {
    look_up: Arc<LookUpFn>,
    hosts: Arc<Mutex<HashMap<Box<str>, Arc<Host>>>>,
}

/// A function that finds the addresses of a host. Their port is 0.
type LookUpFn = dyn Fn(String) -> RedisFuture<'static, Vec<SocketAddr>> + Send + Sync;

struct Host {
    resolution: SingleFlight<String>,
    found: Arc<Found>,
}

#[derive(Default)]
struct Found {
    /// The addresses that the last successful resolution found.
    known: ArcSwapOption<Vec<SocketAddr>>,
    /// True if a resolution hangs or has hung, and none has succeeded since.
    is_late: AtomicBool,
}

impl Resolver {
    /// Creates a resolver that asks the system's.
    pub(super) fn new() -> Self {
        Self::with(|host| {
            Box::pin(async move { Ok(lookup_host((host, 0)).await?.collect::<Vec<_>>()) })
        })
    }

    fn with(
        look_up: impl Fn(String) -> RedisFuture<'static, Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self { look_up: Arc::new(look_up), hosts: Arc::default() }
    }

    /// Returns the addresses of a host.
    ///
    /// # Errors
    ///
    /// Returns an error if no resolution of the host has succeeded yet and this one fails.
    async fn addresses(&self, name: &str) -> io::Result<Arc<Vec<SocketAddr>>> {
        let host = self.host(name);
        let resolution = host.resolution.run(|| self.resolution(name, &host));
        let Found { known, is_late } = &*host.found;
        let result = if known.load().is_none() {
            resolution.await
        } else {
            let wait = if is_late.load(Relaxed) { Duration::ZERO } else { USE_KNOWN_AFTER };
            timeout(wait, resolution).await.unwrap_or_else(|_| {
                is_late.store(true, Relaxed);
                Ok(())
            })
        };
        known.load_full().ok_or_else(|| {
            io::Error::other(match result {
                Err(FlightError::Failed(message)) => message,
                _ => "the runtime ended before the resolution did".to_owned(),
            })
        })
    }

    /// Returns the operation that resolves a host and keeps its addresses.
    fn resolution(
        &self,
        name: &str,
        host: &Host,
    ) -> impl Future<Output = Result<(), String>> + Send + use<> {
        let (look_up, found) = ((self.look_up)(name.to_owned()), Arc::clone(&host.found));
        async move {
            match timeout(RESOLVE_TIMEOUT, look_up).await {
                Ok(Ok(addresses)) => {
                    found.known.store(Some(Arc::new(addresses)));
                    found.is_late.store(false, Relaxed);
                    Ok(())
                }
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("the name server does not answer".to_owned()),
            }
        }
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(name) {
            hosts.clear();
        }
        Arc::clone(hosts.entry(name.into()).or_default())
    }
}

impl Default for Host {
    fn default() -> Self {
        Self { resolution: SingleFlight::new(), found: Arc::default() }
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
                Err(_) => self.addresses(host).await?.to_vec(),
            };
            addresses.iter_mut().for_each(|address| address.set_port(port));
            Ok(Box::new(addresses.into_iter()) as Box<_>)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering::SeqCst};

    use tokio::time::{Instant, sleep};

    use super::*;

    /// A name server that takes 10 ms for an answer, and can hang or fail.
    #[derive(Default)]
    struct NameServer {
        hangs: AtomicBool,
        fails: AtomicBool,
        resolutions: AtomicU16,
    }

    impl NameServer {
        fn start() -> (Arc<Self>, Resolver) {
            let server = Arc::new(Self::default());
            let answering = Arc::clone(&server);
            (server, Resolver::with(move |_| Box::pin(Arc::clone(&answering).look_up())))
        }

        async fn look_up(self: Arc<Self>) -> Result<Vec<SocketAddr>, redis::RedisError> {
            let number = self.resolutions.fetch_add(1, SeqCst) + 1;
            if self.hangs.load(SeqCst) {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(10)).await;
            if self.fails.load(SeqCst) {
                return Err(io::Error::new(io::ErrorKind::NotFound, "unknown").into());
            }
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], number))])
        }
    }

    /// The number of the resolution that found the address.
    async fn number(resolver: &Resolver) -> io::Result<u16> {
        Ok(resolver.addresses("redis.test").await?[0].port())
    }

    #[tokio::test]
    async fn addresses_are_not_looked_up() {
        let (server, resolver) = NameServer::start();
        for host in ["127.0.0.1", "::1"] {
            let found: Vec<_> = resolver.resolve(host, 7).await.expect("no resolution").collect();
            assert_eq!(found, [SocketAddr::new(host.parse().expect("an address"), 7)]);
        }
        assert_eq!(server.resolutions.load(SeqCst), 0);
        let found: Vec<_> = resolver.resolve("redis.test", 7).await.expect("found").collect();
        assert_eq!(found, [SocketAddr::from(([127, 0, 0, 1], 7))]);
    }

    #[tokio::test]
    async fn the_system_knows_localhost() {
        let resolver = Resolver::new();
        let found = resolver.addresses("localhost").await.expect("known everywhere");
        assert!(found.iter().all(|address| address.ip().is_loopback()));
        assert!(resolver.addresses("\0").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_share_a_resolution() {
        let (_, resolver) = NameServer::start();
        let found = tokio::join!(number(&resolver), number(&resolver));
        assert_eq!((found.0.expect("found"), found.1.expect("found")), (1, 1));
        assert_eq!(number(&resolver).await.expect("found"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_known_addresses_serve_while_a_resolution_hangs() {
        let (server, resolver) = NameServer::start();
        assert_eq!(number(&resolver).await.expect("found"), 1);
        server.hangs.store(true, SeqCst);
        let start = Instant::now();
        assert_eq!(number(&resolver).await.expect("known"), 1);
        assert_eq!(start.elapsed(), USE_KNOWN_AFTER);
        // A resolution that hangs does not notice that the name server is back. The next one does.
        server.hangs.store(false, SeqCst);
        assert_eq!(number(&resolver).await.expect("known"), 1);
        assert_eq!(start.elapsed(), USE_KNOWN_AFTER);
        sleep(2 * RESOLVE_TIMEOUT).await;
        assert_eq!(number(&resolver).await.expect("known"), 1);
        sleep(RESOLVE_TIMEOUT).await;
        assert_eq!(number(&resolver).await.expect("found"), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_an_error_only_while_no_address_is_known() {
        let (server, resolver) = NameServer::start();
        server.hangs.store(true, SeqCst);
        let (start, error) = (Instant::now(), number(&resolver).await.expect_err("it hangs"));
        assert_eq!(error.to_string(), "the name server does not answer");
        assert_eq!(start.elapsed(), RESOLVE_TIMEOUT);
        sleep(RESOLVE_TIMEOUT).await;
        server.hangs.store(false, SeqCst);
        assert_eq!(number(&resolver).await.expect("found"), 2);
        server.fails.store(true, SeqCst);
        assert_eq!(number(&resolver).await.expect("known"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_hosts_is_bounded() {
        let (_, resolver) = NameServer::start();
        for host in 0..2 * MAX_HOSTS {
            resolver.addresses(&format!("host-{host}")).await.expect("found");
        }
        assert!(resolver.hosts.lock().len() <= MAX_HOSTS);
    }
}
