//! A proxy between a client and a server, which injects faults.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::sleep,
};

#[derive(Default)]
pub struct Proxy {
    /// The delay of new connections, in milliseconds.
    pub handshake: AtomicU64,
    /// The delay of each reply, in milliseconds.
    pub answer: AtomicU64,
    /// The number of replies of its own that it still sends, each before one of the server's.
    pub strays: AtomicUsize,
    /// Replaces the script's reply to one charge by a number.
    pub nonsense: AtomicBool,
    /// Forwards nothing from a new connection.
    pub mute: AtomicBool,
    /// The number of connections, counted from the first, that get no replies any more.
    pub silent: AtomicUsize,
    /// The number of connections so far.
    pub opened: AtomicUsize,
    /// The number of connections that have not ended.
    pub open: Arc<AtomicUsize>,
    tasks: Mutex<Vec<AbortHandle>>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Proxy {
    pub async fn start(server: u16) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}/", listener.local_addr().expect("an address"));
        let proxy = Arc::new(Self::default());
        let this = Arc::clone(&proxy);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = this.opened.fetch_add(1, SeqCst);
                this.open.fetch_add(1, SeqCst);
                let open = Open(Arc::clone(&this.open));
                let task = tokio::spawn(Arc::clone(&this).carry(number, client, server, open));
                this.tasks.lock().expect("whole").push(task.abort_handle());
            }
        });
        (proxy, url)
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for task in self.tasks.lock().expect("whole").drain(..) {
            task.abort();
        }
    }

    async fn carry(self: Arc<Self>, number: usize, client: TcpStream, server: u16, _open: Open) {
        let (mut from_client, mut to_client) = client.into_split();
        if self.mute.load(SeqCst) {
            let _ = copy(&mut from_client, &mut sink()).await;
            return;
        }
        sleep(Duration::from_millis(self.handshake.load(SeqCst))).await;
        let server = TcpStream::connect(("127.0.0.1", server)).await.expect("the server");
        let (mut from_server, mut to_server) = server.into_split();
        let answers = async {
            let mut bytes = vec![0; 65_536];
            while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
                let fewer = |strays: usize| strays.checked_sub(1);
                if self.strays.fetch_update(SeqCst, SeqCst, fewer).is_ok() {
                    let _ = to_client.write_all(b"+OK\r\n").await;
                }
                sleep(Duration::from_millis(self.answer.load(SeqCst))).await;
                if number < self.silent.load(SeqCst) {
                    continue;
                }
                let scripted = bytes.starts_with(b"$72\r\n");
                let nonsense = scripted && self.nonsense.load(SeqCst);
                let answer = if nonsense { b":7\r\n" } else { &bytes[..read] };
                if to_client.write_all(answer).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = copy(&mut from_client, &mut to_server) => {}
            () = answers => {}
        }
    }
}
