//! Requests that follow each other before the first reply: none of them waits for the network to
//! acknowledge an earlier one, as it would with Nagle's algorithm.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use bb8_redis::RedisConnectionManager;
use plimsoll::{Limiter, RedisStore, Resilience, redis::RedisConfig};
use plimsoll_testing::{calm::on_a_calm_machine, servers::Server};
use redis::{
    IntoConnectionInfo,
    io::tcp::{TcpSettings, socket2::SockRef},
};
use tokio::time::Instant;

use crate::{patient, policy};

/// The time for which the relay holds each reply of the script.
const REPLY_DELAY: Duration = Duration::from_millis(30);
/// The time between the two requests of a round.
const GAP: Duration = Duration::from_millis(3);

/// A relay to a server. Its side of each connection delays acknowledgements, as the kernel of a
/// busy server does.
struct Relay {
    url: String,
    /// The times at which calls of the script arrived.
    arrivals: Arc<Mutex<Vec<Instant>>>,
}

impl Relay {
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}/", listener.local_addr().expect("an address"));
        let arrivals = Arc::<Mutex<Vec<Instant>>>::default();
        let (port, times) = (server.port, Arc::clone(&arrivals));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
                server.set_nodelay(true).expect("a socket");
                let (to_server, to_client) =
                    (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                let times = Arc::clone(&times);
                thread::spawn(move || carry_requests(client, to_server, &times));
                thread::spawn(move || carry_replies(server, to_client));
            }
        });
        Self { url, arrivals }
    }

    /// Returns the median time between the two requests of a round, as they arrive, or an error if some
    /// arrived as one.
    async fn median_gap(&self, store: RedisStore) -> Result<Duration, String> {
        let limiter = Limiter::with_resilience(store, Resilience::none());
        let policy = policy("p", "1000/h");
        let check = || limiter.check(policy.charge("alice", 1));
        // The first checks load the script.
        let _ = check().await.expect("an answer");
        self.arrivals.lock().expect("whole").clear();
        for _ in 0..9 {
            let second = async {
                tokio::time::sleep(GAP).await;
                check().await
            };
            let (first, second) = tokio::join!(check(), second);
            let _ = first.expect("an answer");
            let _ = second.expect("an answer");
        }
        let arrivals = self.arrivals.lock().expect("whole").clone();
        let mut gaps: Vec<_> = arrivals.chunks_exact(2).map(|pair| pair[1] - pair[0]).collect();
        if gaps.len() != 9 {
            return Err(format!("{} requests arrived by themselves, of 18", arrivals.len()));
        }
        gaps.sort();
        Ok(gaps[4])
    }
}

fn carry_requests(mut client: TcpStream, mut server: TcpStream, arrivals: &Mutex<Vec<Instant>>) {
    let mut bytes = vec![0; 65_536];
    loop {
        // The kernel forgets this setting.
        SockRef::from(&client).set_tcp_quickack(false).expect("a socket");
        let Ok(read @ 1..) = client.read(&mut bytes) else { return };
        let now = Instant::now();
        let is_call = |bytes: &[u8]| bytes.windows(8).any(|word| word == b"EVALSHA\r");
        if is_call(&bytes[..read]) {
            arrivals.lock().expect("whole").push(now);
        }
        if server.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

fn carry_replies(mut server: TcpStream, mut client: TcpStream) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = server.read(&mut bytes) {
        if bytes.starts_with(b"$72\r\n") {
            thread::sleep(REPLY_DELAY);
        }
        if client.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_sent_at_once() {
    on_a_calm_machine(async || {
        let server = Server::start();
        let relay = Relay::start(&server);
        let config = || patient().connections(1).batching(false);
        let store = RedisStore::connect_with(RedisConfig::url(&relay.url).with_settings(config()))
            .await
            .expect("a store");
        assert_waits(relay.median_gap(store).await?, false, "the crate's connection")?;

        // An application's pool connects by itself and needs the setting.
        for (is_nodelay, waits) in [(false, true), (true, false)] {
            let info = relay.url.as_str().into_connection_info().expect("a valid address");
            let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(is_nodelay));
            let manager = RedisConnectionManager::new(info).expect("a manager");
            let pool = bb8::Pool::builder().max_size(1).build(manager).await.expect("a pool");
            let store = RedisStore::connect_with(RedisConfig::pool(pool).with_settings(config()))
                .await
                .expect("a store");
            let what = format!("a pool with TCP_NODELAY {is_nodelay}");
            assert_waits(relay.median_gap(store).await?, waits, &what)?;
        }
        Ok(())
    })
    .await;
}

/// Returns an error if the second request of a round waited for the first one, or did not, unexpectedly.
fn assert_waits(gap: Duration, waits: bool, what: &str) -> Result<(), String> {
    match (gap >= REPLY_DELAY / 2) == waits {
        true => Ok(()),
        false => Err(format!("{what}: the second request came {gap:?} after the first one")),
    }
}
