//! Requests at a steady rate, each at its own time, whether or not the ones before have ended.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until, timeout},
};

use super::servers::HEADER;

pub(crate) const KEYS: u64 = 4;
/// Requests a second to each server: twice as many as the limits of all keys admit.
pub(crate) const RATE: u64 = 400;
/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request and its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The time at which it was due.
    pub(crate) due: Duration,
    /// From then until the end of the response.
    pub(crate) took: Duration,
    /// 0 if none came.
    pub(crate) status: u16,
}

/// Sends requests to a server for `length`, and returns the samples in the order of their times.
pub(crate) async fn run(server: SocketAddr, begin: Instant, length: Duration) -> Vec<Sample> {
    let client = Arc::new(Client { server, idle: Mutex::default() });
    let (samples, mut received) = unbounded_channel();
    let gap = Duration::from_secs(1) / RATE as u32;
    for number in 0.. {
        let due = gap * number;
        if due >= length {
            break;
        }
        sleep_until(begin + due).await;
        tokio::spawn(Arc::clone(&client).request(begin, due, number, samples.clone()));
    }
    drop(samples);
    let mut all = Vec::new();
    while let Some(sample) = received.recv().await {
        all.push(sample);
    }
    all.sort_by_key(|sample: &Sample| sample.due);
    all
}

/// The connections to a server that no request uses.
struct Client {
    server: SocketAddr,
    idle: Mutex<Vec<SendRequest<Empty<Bytes>>>>,
}

impl Client {
    async fn request(
        self: Arc<Self>,
        begin: Instant,
        due: Duration,
        number: u32,
        samples: UnboundedSender<Sample>,
    ) {
        let key = u64::from(number) % KEYS;
        let status = timeout(PATIENCE, self.ask(key)).await.ok().flatten().unwrap_or(0);
        let _ = samples.send(Sample { due, took: (begin + due).elapsed(), status });
    }

    async fn ask(&self, key: u64) -> Option<u16> {
        let idle = self.idle.lock().expect("whole").pop();
        let mut sender = match idle.filter(|it| !it.is_closed()) {
            Some(sender) => sender,
            None => {
                let io = TokioIo::new(TcpStream::connect(self.server).await.ok()?);
                let (sender, connection) = http1::handshake(io).await.ok()?;
                tokio::spawn(connection);
                sender
            }
        };
        let request = http::Request::get("/").header("host", "localhost");
        let request = request.header(HEADER, format!("client-{key}"));
        let response = sender.send_request(request.body(Empty::new()).ok()?).await.ok()?;
        let (head, body) = response.into_parts();
        body.collect().await.ok()?;
        self.idle.lock().expect("whole").push(sender);
        Some(head.status.as_u16())
    }
}
