//! Redis at a distance. Each round trip takes long, but there is no fault: Redis still decides each check.

use std::time::Duration;

use plimsoll_testing::servers::Server;
use redis::io::tcp::socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::stage::{Stage, measured};

/// Starts a relay to a server, which holds each direction for half of the round trip, and returns its
/// URL. Like a kernel at a distance, it acknowledges a request no earlier than it replies.
pub(crate) async fn relay(server: u16, round_trip: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}/", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let accepted = Instant::now();
            tokio::spawn(async move {
                sleep_until(accepted + round_trip).await;
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                for socket in [&client, &server] {
                    socket.set_nodelay(true).expect("a socket");
                }
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::join!(
                    carry(from_client, to_server, round_trip / 2),
                    carry(from_server, to_client, round_trip / 2)
                );
            });
        }
    });
    url
}

/// Forwards all bytes, each after a delay. More bytes may arrive during the delay.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (under_way, mut arrived) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut bytes = vec![0; 65_536];
        loop {
            // The kernel resets this option, so it is set before each read.
            let _ = SockRef::from(from.as_ref()).set_tcp_quickack(false);
            let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
            let _ = under_way.send((Instant::now() + delay, bytes[..count].to_vec()));
        }
    };
    let write = async move {
        while let Some((due, bytes)) = arrived.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

async fn round_trip_of(millis: u64) {
    measured(async || {
        let server = Server::start();
        let url = relay(server.port, Duration::from_millis(millis)).await;
        let what = format!("network: round trip of {millis:>2} ms");
        let nothing = async |_: &_| ();
        Stage::new(&what, url).goes_unnoticed().run(nothing, nothing).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trip_of_1_ms() {
    round_trip_of(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trip_of_5_ms() {
    round_trip_of(5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trip_of_15_ms() {
    round_trip_of(15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trip_of_30_ms() {
    round_trip_of(30).await;
}
