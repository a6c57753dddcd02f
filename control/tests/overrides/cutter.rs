//! A proxy before Redis that cuts a connection at a point of the next call of a script.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// The point at which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Before the call: the connection is closed while it is idle.
    Idle,
    /// The call arrives at the proxy, and nothing at Redis.
    BeforeRequest,
    /// Half of the call arrives at Redis.
    WithinRequest,
    /// Redis makes the change, and no byte of its reply comes back.
    BeforeReply,
    /// Half of the reply comes back.
    WithinReply,
    /// Redis makes the change. No reply comes back, and the connection stays open.
    NoReply,
}

pub(crate) const POINTS: [Point; 5] = [
    Point::Idle,
    Point::BeforeRequest,
    Point::WithinRequest,
    Point::BeforeReply,
    Point::WithinReply,
];

#[derive(Default)]
pub(crate) struct Cutter {
    /// The word of the calls that are cut, and where.
    armed: Mutex<Option<(&'static str, Point)>>,
    connections: Mutex<Vec<AbortHandle>>,
}

impl Cutter {
    /// Starts a proxy before the server at this port. Returns it with its URL.
    pub(crate) async fn start(server: u16) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}/", listener.local_addr().expect("an address"));
        let cutter = Arc::new(Self::default());
        let this = Arc::clone(&cutter);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let task = tokio::spawn(Arc::clone(&this).carry(client, server)).abort_handle();
                this.connections.lock().expect("whole").push(task);
            }
        });
        (cutter, url)
    }

    /// Cuts the connection of the next call that contains the word, or all connections at once.
    pub(crate) fn cut(&self, word: &'static str, point: Point) {
        if point == Point::Idle {
            self.connections.lock().expect("whole").drain(..).for_each(|it| it.abort());
        } else {
            *self.armed.lock().expect("whole") = Some((word, point));
        }
    }

    /// Returns whether the cut was made.
    pub(crate) fn has_cut(&self) -> bool {
        self.armed.lock().expect("whole").is_none()
    }

    async fn carry(self: Arc<Self>, mut client: TcpStream, server: u16) {
        let mut server = TcpStream::connect(("127.0.0.1", server)).await.expect("the server");
        let (mut call, mut reply) = (vec![0; 65_536], vec![0; 65_536]);
        let mut cut = None;
        loop {
            tokio::select! {
                read = client.read(&mut call) => {
                    let Ok(read @ 1..) = read else { return };
                    let text = String::from_utf8_lossy(&call[..read]).into_owned();
                    if let Some((_, point)) =
                        self.armed.lock().expect("whole").take_if(|(word, _)| text.contains(*word))
                    {
                        cut = Some(point);
                    }
                    let forwarded = match cut {
                        Some(Point::BeforeRequest) => 0,
                        Some(Point::WithinRequest) => read / 2,
                        _ => read,
                    };
                    if server.write_all(&call[..forwarded]).await.is_err() || forwarded < read {
                        return;
                    }
                }
                read = server.read(&mut reply) => {
                    let Ok(read @ 1..) = read else { return };
                    let forwarded = match cut {
                        Some(Point::NoReply) => continue,
                        Some(Point::BeforeReply) => 0,
                        Some(Point::WithinReply) => read / 2,
                        _ => read,
                    };
                    if client.write_all(&reply[..forwarded]).await.is_err() || forwarded < read {
                        return;
                    }
                }
            }
        }
    }
}
