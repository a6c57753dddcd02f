//! The address at which the limiters find Redis. As behind a load balancer, a failover moves it to another
//! server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::sleep,
};

pub(crate) struct Address {
    server: AtomicU16,
    /// The delay of each reply in milliseconds.
    delay: AtomicU64,
    connections: Mutex<Vec<AbortHandle>>,
}

impl Address {
    /// Returns the address, and its URL. New connections lead to the server at this port.
    pub(crate) async fn of(server: u16) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}/", listener.local_addr().expect("an address"));
        let address = Arc::new(Self {
            server: server.into(),
            delay: AtomicU64::new(0),
            connections: Mutex::default(),
        });
        let this = Arc::clone(&address);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connection = tokio::spawn(Arc::clone(&this).carry(client));
                let mut connections = this.connections.lock().expect("whole");
                connections.retain(|it| !it.is_finished());
                connections.push(connection.abort_handle());
            }
        });
        (address, url)
    }

    /// Delays each reply by this time.
    pub(crate) fn delay(&self, time: Duration) {
        self.delay.store(time.as_millis() as u64, Relaxed);
    }

    /// Leads to another server, and ends the connections to the old one.
    pub(crate) fn move_to(&self, server: u16) {
        self.server.store(server, Relaxed);
        self.connections.lock().expect("whole").drain(..).for_each(|it| it.abort());
    }

    async fn carry(self: Arc<Self>, client: TcpStream) {
        // If nothing listens there, the client finds its connection closed.
        let server = TcpStream::connect(("127.0.0.1", self.server.load(Relaxed))).await;
        let Ok(server) = server else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let replies = async {
            let mut bytes = vec![0; 65_536];
            while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
                sleep(Duration::from_millis(self.delay.load(Relaxed))).await;
                if to_client.write_all(&bytes[..read]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = copy(&mut from_client, &mut to_server) => {}
            () = replies => {}
        }
    }
}
