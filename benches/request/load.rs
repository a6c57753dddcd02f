//! A load of a fixed rate over connections that stay open.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::{RATE, server::BODY};

const CONNECTIONS: u32 = 16;
/// The longest response of the servers is shorter.
const MAX_RESPONSE_BYTES: usize = 4_096;

/// Sends requests of random clients, one of `clients`, for `seconds`. Returns the latency of each request in
/// microseconds, from the time at which it was sent.
pub(crate) fn run(port: u16, clients: u32, seconds: u32) -> Vec<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let start = Instant::now();
        let mut connections: JoinSet<Vec<f64>> = (0..CONNECTIONS)
            .map(|number| connection(port, clients, number, start, RATE * seconds / CONNECTIONS))
            .collect();
        let mut latencies = Vec::new();
        while let Some(connection) = connections.join_next().await {
            latencies.extend(connection.expect("no panic"));
        }
        latencies
    })
}

async fn connection(
    port: u16,
    clients: u32,
    number: u32,
    start: Instant,
    requests: u32,
) -> Vec<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    let between = Duration::from_secs(1) * CONNECTIONS / RATE;
    let mut turns = interval_at(start + between * number / CONNECTIONS, between);
    // A late request does not lower the rate.
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut latencies = Vec::with_capacity(requests as usize);
    let mut response = [0; MAX_RESPONSE_BYTES];
    let mut random = u64::from(number) * 7_919;
    for _ in 0..requests {
        // Random, so that a client sends a burst now and then.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let client = (random >> 33) as u32 % clients;
        let text = format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 203.0.{}.{}\r\n\r\n",
            client / 256,
            client % 256,
        );
        turns.tick().await;
        let sent = Instant::now();
        stream.write_all(text.as_bytes()).await.expect("the server reads");
        let mut length = 0;
        while !response[..length].ends_with(BODY.as_bytes()) {
            let more = stream.read(&mut response[length..]).await.expect("the server answers");
            assert_ne!(more, 0, "the server has closed the connection");
            length += more;
        }
        assert!(response.starts_with(b"HTTP/1.1 200"), "a request was denied");
        latencies.push(sent.elapsed().as_nanos() as f64 / 1e3);
    }
    latencies
}
