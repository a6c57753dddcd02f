//! A proxy between a client and a server that can spoil replies.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::{AbortHandle, JoinSet},
    time::sleep,
};

/// A fault in the replies of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Spoil {
    Nothing,
    /// Replies come 200 ms late.
    Delay,
    /// No reply comes on this connection any more: it is half open.
    Swallow,
    /// The connection is closed instead of a reply.
    Cut,
    /// Half of a reply comes, and then the connection is closed.
    Truncate,
    /// Every digit of a reply is changed.
    Corrupt,
}

pub struct Proxy {
    /// 0 if it listens on a socket.
    pub port: u16,
    spoil: Arc<AtomicU8>,
    accepting: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    pub async fn start(server: u16) -> Self {
        Self::far_away(server, Duration::ZERO).await
    }

    /// Connecting takes so long, as it does where a handshake goes back and forth over a distance.
    pub async fn far_away(server: u16, connecting: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        Self::between(port, Listener::Tcp(listener), Upstream::Port(server), connecting)
    }

    /// Passes connections to the unix socket `own` on to the socket `server`.
    pub fn on_socket(own: &Path, server: &Path) -> Self {
        let listener = Listener::Unix(UnixListener::bind(own).expect("a free path"));
        Self::between(0, listener, Upstream::Socket(server.to_owned()), Duration::ZERO)
    }

    fn between(port: u16, listener: Listener, server: Upstream, connecting: Duration) -> Self {
        let spoil = Arc::new(AtomicU8::new(0));
        let (shared, server) = (Arc::clone(&spoil), Arc::new(server));
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok(client) = listener.accept().await {
                let (spoil, server) = (Arc::clone(&shared), Arc::clone(&server));
                connections.spawn(async move {
                    sleep(connecting).await;
                    let Ok(server) = server.connect().await else { return };
                    let (from_client, to_client) = split(client);
                    let (from_server, to_server) = split(server);
                    let requests = pass(from_client, to_server, Arc::default());
                    tokio::join!(requests, pass(from_server, to_client, spoil));
                });
            }
        });
        Self { port, spoil, accepting: accepting.abort_handle() }
    }

    pub fn spoil(&self, how: Spoil) {
        self.spoil.store(how as u8, SeqCst);
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// The address of the server.
enum Upstream {
    Port(u16),
    Socket(PathBuf),
}

impl Upstream {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Port(port) => Box::new(TcpStream::connect(("127.0.0.1", *port)).await?),
            Self::Socket(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    spoil: Arc<AtomicU8>,
) {
    forward(&mut from, &mut to, spoil).await;
    // The half of a split stream does not close it when it is dropped.
    let _ = to.shutdown().await;
}

async fn forward(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    spoil: Arc<AtomicU8>,
) {
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
