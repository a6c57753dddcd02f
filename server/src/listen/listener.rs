//! A listener, which accepts connections up to a number.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    connection::{age, serve},
    phase::{Phase, Phases},
    service::{ConnectionService, TooSlow},
    usage::Usage,
};
use crate::settings::Bounds;

/// A bound address, whose connections are served by a router.
pub(crate) struct Listener {
    name: &'static str,
    listener: TcpListener,
    address: SocketAddr,
}

/// The pause after an error of `accept` that does not pass by itself, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

impl Listener {
    /// Binds an address. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use or not of this machine.
    pub(crate) async fn bind(name: &'static str, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { name, listener, address })
    }

    /// Returns the address, with the port that was taken.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections until the service closes and all requests in flight are answered, or until the
    /// deadline of the shutdown.
    pub(crate) async fn serve(
        self,
        router: Router,
        too_slow: TooSlow,
        bounds: Bounds,
        phases: Phases,
    ) {
        let permits = Arc::new(Semaphore::new(bounds.max_connections));
        let open = metrics::gauge!("plimsoll_server_connections", "listener" => self.name);
        let accepted = metrics::counter!("plimsoll_server_accepted_connections_total", "listener" => self.name);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                next = self.accept(&permits) => {
                    let Some((stream, permit)) = next else { continue };
                    let service = ConnectionService {
                        router: router.clone(),
                        too_slow,
                        usage: Usage::new(),
                        phases: phases.clone(),
                        ends_at: Instant::now() + age(bounds.max_connection_age),
                        request_timeout: bounds.request_timeout,
                    };
                    let served = serve(stream, service, bounds);
                    let open = open.clone();
                    accepted.increment(1);
                    open.increment(1.0);
                    connections.spawn(async move {
                        served.await;
                        open.decrement(1.0);
                        drop(permit);
                    });
                    // The results of connections that have ended are dropped.
                    while connections.try_join_next().is_some() {}
                }
                () = phases.reach(Phase::Closing) => break,
            }
        }
        drop(self.listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        if timeout(bounds.shutdown_timeout, ended).await.is_err() {
            let left = connections.len();
            tracing::warn!(target: "plimsoll", "{}: {left} connections end without an answer", self.name);
            connections.shutdown().await;
        }
    }

    /// Accepts a connection. At the bound, new connections wait in the queue of the system. Returns `None` after an
    /// error, with a pause if it does not pass by itself.
    async fn accept(&self, permits: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let permit = Arc::clone(permits).acquire_owned().await.ok()?;
        match self.listener.accept().await {
            Ok((stream, _)) => Some((stream, permit)),
            Err(error) => {
                tracing::debug!(target: "plimsoll", "{}: a connection failed: {error}", self.name);
                if !is_of_client(&error) {
                    sleep(PAUSE).await;
                }
                None
            }
        }
    }
}

/// Returns whether a client has given up its connection before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
