//! The resolver, which runs resolutions in threads and shares their answers.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use redis::{RedisFuture, io::AsyncDNSResolver};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{Pacing, Ticket};

/// The time after which a resolution without an answer is assumed to hang, and another one is started.
const RESTART_AFTER: Duration = Duration::from_millis(500);

/// The time after which the last known addresses of a host are used if no resolution has found it.
const USE_KNOWN_AFTER: Duration = Duration::from_millis(200);

/// The longest time to wait for an answer. The timeout of a connection attempt is usually shorter.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of hosts whose addresses are kept.
const MAX_HOSTS: usize = 256;

/// A resolver of host names. Clones share their resolutions and the addresses found.
#[derive(Clone)]
pub(in crate::redis) struct Resolver(Arc<ResolverShared>);

struct ResolverShared {
    look_up: Box<ResolveFn>,
    state: Mutex<ResolverState>,
}

/// A function that blocks until the addresses of a host are found. Their port is 0.
type ResolveFn = dyn Fn(&str) -> io::Result<Addresses> + Send + Sync;

type Addresses = Arc<[SocketAddr]>;

/// The result of a resolution. An error is kept as its kind and message, because [`io::Error`] cannot
/// be cloned for all waiting tasks.
type ResolveResult = Result<Addresses, (io::ErrorKind, String)>;

#[derive(Default)]
struct ResolverState {
    hosts: HashMap<Box<str>, Host>,
    pacing: Pacing,
    /// The number of resolutions that have started.
    resolutions: u64,
}

#[derive(Default)]
struct Host {
    result: watch::Sender<Option<ResolveResult>>,
    /// The addresses that the last successful resolution found.
    known: Option<Addresses>,
    /// The start of the first resolution since the last result.
    waiting_since: Option<Instant>,
    /// The resolution that started last.
    newest: NewestResolution,
}

#[derive(Default)]
struct NewestResolution {
    number: u64,
    /// `None` when the resolution has ended.
    started: Option<Instant>,
}

/// The next step of a task that needs the addresses of a host.
enum NextAction {
    Use(Addresses),
    WaitUntil(Instant),
}

impl Resolver {
    /// Returns the resolver that all stores of this process share. It calls the system's resolver.
    pub(in crate::redis) fn system() -> Self {
        static SYSTEM: LazyLock<Resolver> =
            LazyLock::new(|| Resolver::new(|host| Ok((host, 0).to_socket_addrs()?.collect())));
        SYSTEM.clone()
    }

    fn new(look_up: impl Fn(&str) -> io::Result<Addresses> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ResolverShared { look_up: Box::new(look_up), state: Mutex::default() }))
    }

    /// Waits for the addresses of a host: the first successful answer to any running resolution of it.
    ///
    /// # Errors
    ///
    /// Returns an error if the name server says that there is no such host, or does not answer within
    /// [`RESOLVE_TIMEOUT`].
    async fn addresses(&self, host: &str) -> io::Result<Addresses> {
        let give_up_at = Instant::now() + RESOLVE_TIMEOUT;
        let mut results = self.lock().host(host)?.result.subscribe();
        while Instant::now() < give_up_at {
            let wake_at = match self.start_resolution_if_due(host)? {
                NextAction::Use(addresses) => return Ok(addresses),
                NextAction::WaitUntil(time) => time.min(give_up_at),
            };
            if timeout_at(wake_at, results.changed()).await.is_ok()
                && let Some(result) = results.borrow_and_update().clone()
            {
                return result.map_err(|(kind, message)| io::Error::new(kind, message));
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the name server does not answer"))
    }

    /// Starts a resolution, unless one of the same host has started less than [`RESTART_AFTER`] ago.
    fn start_resolution_if_due(&self, name: &str) -> io::Result<NextAction> {
        let now = Instant::now();
        let mut state = self.lock();
        let due = state.host(name)?.newest.started.map_or(now, |started| started + RESTART_AFTER);
        let mut wake_at = due;
        if due <= now {
            wake_at = now
                + match state.pacing.start(now) {
                    Ok(ticket) => self.spawn_resolution(&mut state, name, ticket, now)?,
                    Err(retry_after) => retry_after,
                };
        }
        let host = state.host(name)?;
        let use_known_at = *host.waiting_since.get_or_insert(now) + USE_KNOWN_AFTER;
        Ok(match &host.known {
            Some(known) if use_known_at <= now => NextAction::Use(Arc::clone(known)),
            Some(_) => NextAction::WaitUntil(wake_at.min(use_known_at)),
            None => NextAction::WaitUntil(wake_at),
        })
    }

    /// Starts a resolution in a thread, and returns the time after which another may start.
    fn spawn_resolution(
        &self,
        state: &mut ResolverState,
        name: &str,
        ticket: Ticket,
        now: Instant,
    ) -> io::Result<Duration> {
        state.resolutions += 1;
        let number = state.resolutions;
        let (resolver, host) = (self.clone(), name.to_owned());
        let thread = thread::Builder::new().name("plimsoll-dns".into()).spawn(move || {
            let result = (resolver.0.look_up)(&host);
            resolver.finish(&host, number, ticket, result);
        });
        if let Err(error) = thread {
            state.pacing.finish(ticket, false);
            return Err(error);
        }
        state.host(name)?.newest = NewestResolution { number, started: Some(now) };
        Ok(RESTART_AFTER)
    }

    /// Passes the result of a resolution to the waiting tasks. A failure is ignored if a newer
    /// resolution has started, because that one may succeed.
    fn finish(&self, name: &str, number: u64, ticket: Ticket, result: io::Result<Addresses>) {
        let mut state = self.lock();
        state.pacing.finish(ticket, result.is_ok());
        let Some(host) = state.hosts.get_mut(name) else { return };
        let is_newest = host.newest.number == number;
        if is_newest {
            host.newest.started = None;
        }
        if let Ok(addresses) = &result {
            host.known = Some(Arc::clone(addresses));
        } else if !is_newest {
            return;
        }
        host.waiting_since = None;
        host.result.send_replace(Some(result.map_err(|error| (error.kind(), error.to_string()))));
    }

    fn lock(&self) -> MutexGuard<'_, ResolverState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolverState {
    /// Returns the entry of a host, and adds it if there is none. If the table is full, the entry
    /// of the least recently looked up host is replaced.
    ///
    /// # Errors
    ///
    /// Returns an error if the table is full and tasks wait for the addresses of all its hosts.
    fn host(&mut self, name: &str) -> io::Result<&mut Host> {
        if self.hosts.len() >= MAX_HOSTS && !self.hosts.contains_key(name) {
            let idle = self.hosts.iter().filter(|(_, host)| host.result.is_closed());
            let oldest = idle.min_by_key(|(_, host)| host.newest.number);
            let message = "too many host names are being looked up";
            let oldest = oldest.ok_or_else(|| io::Error::other(message))?.0.clone();
            self.hosts.remove(&oldest);
        }
        Ok(self.hosts.entry(name.into()).or_default())
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
    use std::{
        pin::pin,
        sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        task::{Context, Poll, Waker},
        thread::sleep,
    };

    use super::{super::pacing::MAX_RESOLUTIONS, *};

    /// A name server that can hang. A resolution that hangs does not notice when it is back.
    #[derive(Default)]
    struct NameServer {
        hangs: AtomicBool,
        /// Resolutions that hang end when this is set.
        gives_up: AtomicBool,
        fails: AtomicBool,
        /// Answers wait while this is set.
        holds_answers: AtomicBool,
        resolutions: AtomicU64,
    }

    impl NameServer {
        fn start() -> (Arc<Self>, Resolver) {
            let server = Arc::new(Self::default());
            let answering = Arc::clone(&server);
            (server, Resolver::new(move |_| answering.look_up()))
        }

        fn look_up(&self) -> io::Result<Addresses> {
            let number = self.resolutions.fetch_add(1, SeqCst) as u16 + 1;
            if self.hangs.load(SeqCst) {
                while !self.gives_up.load(SeqCst) {
                    sleep(Duration::from_millis(1));
                }
                return Err(io::Error::other("given up"));
            }
            while self.holds_answers.load(SeqCst) {
                sleep(Duration::from_millis(1));
            }
            if self.fails.load(SeqCst) {
                return Err(io::Error::new(io::ErrorKind::NotFound, "unknown"));
            }
            Ok(Arc::from([SocketAddr::from(([127, 0, 0, 1], number))]))
        }
    }

    /// The number of the resolution that found the address.
    async fn number(resolver: &Resolver) -> io::Result<u16> {
        Ok(resolver.addresses("redis.test").await?[0].port())
    }

    /// The results of two tasks, both of which wait before the first answer comes.
    async fn numbers_at_once(
        server: &NameServer,
        resolver: &Resolver,
    ) -> (io::Result<u16>, io::Result<u16>) {
        server.holds_answers.store(true, SeqCst);
        let release = async { server.holds_answers.store(false, SeqCst) };
        let (first, second, ()) = tokio::join!(number(resolver), number(resolver), release);
        (first, second)
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
        let resolver = Resolver::system();
        for _ in 0..2 * MAX_RESOLUTIONS {
            let found = resolver.addresses("localhost").await.expect("known everywhere");
            assert!(found.iter().all(|address| address.ip().is_loopback()));
            assert!(resolver.addresses("\0").await.is_err());
        }
    }

    #[tokio::test]
    async fn tasks_share_a_resolution() {
        let (server, resolver) = NameServer::start();
        let (first, second) = numbers_at_once(&server, &resolver).await;
        assert_eq!((first.expect("found"), second.expect("found")), (1, 1));
        assert_eq!(number(&resolver).await.expect("found"), 2, "results are not kept");
        server.fails.store(true, SeqCst);
        let (first, second) = numbers_at_once(&server, &resolver).await;
        for error in [first.expect_err("unknown"), second.expect_err("unknown")] {
            assert_eq!((error.kind(), &*error.to_string()), (io::ErrorKind::NotFound, "unknown"));
        }
        assert_eq!(server.resolutions.load(SeqCst), 3);
    }

    /// Waits until `holds` returns true, however late the machine is.
    async fn until(holds: impl Fn() -> bool) {
        let give_up_at = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < give_up_at, "never");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Ends the outage, and returns the number of resolutions that have started. They still hang.
    async fn recover(server: &NameServer, resolver: &Resolver) -> u64 {
        until(|| server.resolutions.load(SeqCst) == resolver.lock().resolutions).await;
        server.hangs.store(false, SeqCst);
        server.resolutions.load(SeqCst)
    }

    #[tokio::test]
    async fn a_resolution_that_hangs_is_repeated() {
        let (server, resolver) = NameServer::start();
        server.hangs.store(true, SeqCst);
        let task = tokio::spawn({
            let resolver = resolver.clone();
            async move { number(&resolver).await }
        });
        until(|| server.resolutions.load(SeqCst) == 3).await;
        let hanging = recover(&server, &resolver).await;
        let recovered = Instant::now();
        let found = u64::from(task.await.expect("no panic").expect("found"));
        // On a late machine, the one after the next may answer first.
        assert!((hanging + 1..=hanging + 2).contains(&found), "{found} of {hanging}");
        let elapsed = recovered.elapsed();
        assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
        // Those that give up later change nothing.
        server.gives_up.store(true, SeqCst);
        until(|| Arc::strong_count(&resolver.0) == 1).await;
        let before = server.resolutions.load(SeqCst);
        assert_eq!(u64::from(number(&resolver).await.expect("found")), before + 1);
    }

    #[tokio::test]
    async fn the_last_known_addresses_are_used_while_resolutions_hang() {
        let (server, resolver) = NameServer::start();
        assert_eq!(number(&resolver).await.expect("found"), 1);
        server.hangs.store(true, SeqCst);
        let began = Instant::now();
        assert_eq!(number(&resolver).await.expect("known"), 1);
        assert!(began.elapsed() >= USE_KNOWN_AFTER);
        let does_not_wait = || {
            let polled = pin!(number(&resolver)).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(Ok(1))), "{polled:?}");
        };
        does_not_wait();
        let hanging = recover(&server, &resolver).await;
        tokio::time::sleep(RESTART_AFTER).await;
        // A resolution starts beside it.
        does_not_wait();
        let is_answered =
            || resolver.lock().host("redis.test").expect("an entry").waiting_since.is_none();
        until(is_answered).await;
        assert!(u64::from(number(&resolver).await.expect("found")) > hanging);
        server.gives_up.store(true, SeqCst);
    }

    #[tokio::test]
    async fn the_number_of_hosts_is_bounded() {
        let (_, resolver) = NameServer::start();
        for host in 0..2 * MAX_HOSTS {
            resolver.addresses(&format!("host-{host}")).await.expect("found");
        }
        let mut state = resolver.lock();
        assert_eq!(state.hosts.len(), MAX_HOSTS);
        assert!(state.hosts.contains_key("host-511") && !state.hosts.contains_key("host-0"));
        let names: Vec<_> = state.hosts.keys().cloned().collect();
        let waiting: Vec<_> = names
            .iter()
            .map(|name| state.host(name).expect("an entry").result.subscribe())
            .collect();
        assert!(state.host("one-more").is_err());
        drop(waiting);
        assert!(state.host("one-more").is_ok());
    }
}
