//! What stands between a client and a server, and can spoil what passes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{AbortHandle, JoinSet},
    time::sleep,
};

/// What becomes of the server's replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Spoil {
    Nothing,
    /// They come 200 ms late.
    Delay,
    /// They never come, nor does any other on the same connection: it is half open.
    Swallow,
    /// The connection ends in their stead.
    Cut,
    /// Half of one comes, and then the connection ends.
    Truncate,
    /// Every digit is another.
    Corrupt,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    spoil: Arc<AtomicU8>,
    accepting: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        Self::far_away(server, Duration::ZERO).await
    }

    /// Connecting takes so long, as it does where a handshake goes back and forth over a distance.
    pub(crate) async fn far_away(server: u16, connecting: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let spoil = Arc::new(AtomicU8::new(0));
        let shared = Arc::clone(&spoil);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let spoil = Arc::clone(&shared);
                connections.spawn(async move {
                    sleep(connecting).await;
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
                        return;
                    };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    let requests = pass(from_client, to_server, Arc::default());
                    tokio::join!(requests, pass(from_server, to_client, spoil));
                });
            }
        });
        Self { port, spoil, accepting: accepting.abort_handle() }
    }

    pub(crate) fn spoil(&self, how: Spoil) {
        self.spoil.store(how as u8, SeqCst);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, spoil: Arc<AtomicU8>) {
    let mut bytes = vec![0; 16_384];
    let mut half_open = false;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let how = spoil.load(SeqCst);
        half_open |= how == Spoil::Swallow as u8;
        let is = |spoil: Spoil| how == spoil as u8;
        let mut reply = &mut bytes[..count];
        if is(Spoil::Delay) {
            sleep(Duration::from_millis(200)).await;
        } else if half_open {
            continue;
        } else if is(Spoil::Cut) {
            return;
        } else if is(Spoil::Truncate) {
            reply = &mut reply[..count / 2];
        } else if is(Spoil::Corrupt) {
            for byte in &mut *reply {
                if byte.is_ascii_digit() {
                    *byte = b'0' + (*byte - b'0' + 5) % 10;
                }
            }
        }
        if to.write_all(reply).await.is_err() || is(Spoil::Truncate) {
            return;
        }
    }
}
