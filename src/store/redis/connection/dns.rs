//! Host names, when nobody answers who knows them.
//!
//! The system's resolver blocks its thread, for ten seconds and more if a name server is silent, and
//! cannot be called off. So it has threads of its own, not those on which the application reads its
//! files, and never more than a few: whoever comes when all of them hang is told so at once.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    thread,
};

use redis::{RedisFuture, io::AsyncDNSResolver};
use tokio::sync::{Semaphore, oneshot};

/// The most lookups at the same time, in this process. Two connections try twice a second each, and
/// the usual resolver gives up after ten seconds, having asked twice: so many ask all the time,
/// however long it lasts. SentinelConnector, nodes of a cluster and other stores come on top, but the
/// resolver is the same for all of them, and hangs for all.
const MOST: usize = 20;

static TURNS: Semaphore = Semaphore::const_new(MOST);

/// A resolver that takes turns with all others of this process.
pub(in crate::store::redis) struct Names(&'static Semaphore);

impl Default for Names {
    fn default() -> Self {
        Self(&TURNS)
    }
}

impl AsyncDNSResolver for Names {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found = match host.parse() {
                Ok(address) => vec![SocketAddr::new(address, port)],
                Err(_) => self.look_up(host.to_owned(), port).await?,
            };
            Ok(Box::new(found.into_iter()) as Box<_>)
        })
    }
}

impl Names {
    async fn look_up(&self, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let hangs =
            || io::Error::other("the resolver hangs: it has not answered earlier questions");
        let turn = self.0.try_acquire().map_err(|_| hangs())?;
        let (found, finds) = oneshot::channel();
        thread::Builder::new().name("tollgate-names".into()).spawn(move || {
            let addresses = (host, port).to_socket_addrs().map(Iterator::collect);
            drop(turn);
            // Perhaps nobody waits any more.
            let _ = found.send(addresses);
        })?;
        finds.await.map_err(|_| hangs())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever needs turns has them for itself.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test]
    async fn all_take_turns() {
        let _alone = ALONE.lock().await;
        let (names, others) = (Names::default(), Names::default());
        let hang = names.0.try_acquire_many(MOST as u32).expect("nobody else has turns");
        assert!(others.look_up("localhost".into(), 7).await.is_err());
        drop(hang);
        assert!(others.look_up("localhost".into(), 7).await.is_ok());
    }

    #[tokio::test]
    async fn addresses_are_not_looked_up() {
        static NONE: Semaphore = Semaphore::const_new(0);
        let names = Names(&NONE);
        for host in ["127.0.0.1", "::1"] {
            let found: Vec<_> = names.resolve(host, 7).await.expect("no question").collect();
            assert_eq!(found, [SocketAddr::new(host.parse().expect("an address"), 7)]);
        }
        assert!(names.resolve("localhost", 7).await.is_err());
    }

    #[tokio::test]
    async fn turns_come_back() {
        let _alone = ALONE.lock().await;
        let names = Names::default();
        for _ in 0..2 * MOST {
            let found = names.look_up("localhost".into(), 7).await.expect("known everywhere");
            assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
            assert!(names.look_up("\0".into(), 7).await.is_err());
        }
    }
}
