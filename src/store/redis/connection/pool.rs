//! A few connections to one server, each shared by many requests, and replaced when it ends.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use redis::{Cmd, RedisError, Value};
use tokio::{task::JoinSet, time::timeout};

use super::{
    connector::{Connection, Connector},
    health::{self, Patience},
    single_flight::{SingleFlight, first_good},
};
use crate::store::redis::{RedisConfig, departure::Departure, error::Failure};

pub(in crate::store::redis) struct Pool {
    origin: Arc<Connector>,
    places: Box<[Slot]>,
    next: AtomicUsize,
    connecting: Duration,
    patience: Patience,
}

/// The place of one connection.
struct Slot {
    live: Arc<ArcSwapOption<Connection>>,
    opening: SingleFlight,
}

impl Pool {
    pub(in crate::store::redis) fn new(origin: Connector, config: &RedisConfig) -> Self {
        let place = |_| Slot { live: Arc::default(), opening: SingleFlight::new(Duration::ZERO) };
        Self {
            origin: Arc::new(origin),
            places: (0..config.connections).map(place).collect(),
            next: AtomicUsize::new(0),
            connecting: config.connect_timeout,
            patience: Patience::new(config.response_timeout),
        }
    }

    /// Connects, so that a wrong address or password shows now.
    pub(in crate::store::redis) async fn warm_up(&self) -> Result<(), Failure> {
        for place in &self.places {
            self.opened(place).await?;
        }
        Ok(())
    }

    /// Sends a command over one of the connections and parses its reply.
    ///
    /// `parse` returns `None` for a value that cannot be the reply to this command. The connection
    /// is then replaced: after one reply too many, each that follows belongs to another request.
    pub(in crate::store::redis) async fn send<T>(
        &self,
        command: &Cmd,
        departure: &Departure,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let (place, live) = self.live().await?;
        let mut connection = live.connection.clone();
        let asking = Asking::begin(self, place, &live, departure);
        let answer = connection.send_packed_command(command).await;
        asking.end(answer, parse)
    }

    /// Sends a command to a cluster node behind `ASKING`, and parses its reply as
    /// [`send`](Self::send) does.
    pub(in crate::store::redis) async fn send_asking<T>(
        &self,
        command: &Cmd,
        departure: &Departure,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let (place, live) = self.live().await?;
        let mut connection = live.connection.clone();
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING");
        pipeline.add_command(command.clone());
        let asking = Asking::begin(self, place, &live, departure);
        let answer = match connection.send_packed_commands(&pipeline, 0, 2).await {
            Ok(values) => Ok(values.into_iter().next_back().unwrap_or(Value::Nil)),
            Err(error) => Err(error),
        };
        asking.end(answer, parse)
    }

    /// Waits until there is a connection.
    pub(in crate::store::redis) async fn ready(&self) -> Result<(), Failure> {
        if self.places.iter().any(|place| usable(&place.live).is_some()) {
            return Ok(());
        }
        self.live().await.map(drop)
    }

    /// Whether all connections have ended, and none has been replaced: the server may be gone.
    pub(in crate::store::redis) fn is_lost(&self) -> bool {
        self.places.iter().all(Slot::is_lost)
    }

    /// The next connection. While it is being replaced, any other: nobody waits who need not.
    async fn live(&self) -> Result<(&Slot, Arc<Connection>), Failure> {
        let count = self.places.len();
        let next = self.next.fetch_add(1, Ordering::Relaxed) % count;
        for place in (next..next + count).map(|index| &self.places[index % count]) {
            if let Some(live) = self.tested(place).await {
                return Ok((place, live));
            }
            // If it fails, the next who need it try again, and wait for it.
            let _ = place.opening.begin(|| self.open(place));
        }
        let place = &self.places[next];
        Ok((place, self.opened(place).await?))
    }

    /// The connection in this place, if there is one.
    async fn tested(&self, place: &Slot) -> Option<Arc<Connection>> {
        let live = usable(&place.live)?;
        if self.origin.ends_unnoticed() && live.pulse.is_idle() {
            // What comes of it shows below.
            let _ = live.testing.join(|| self.test(&live, Duration::ZERO)).await;
        }
        Some(live).filter(|live| !live.pulse.has_ended())
    }

    /// The connection in this place, a new one if there is none.
    async fn opened(&self, place: &Slot) -> Result<Arc<Connection>, Failure> {
        place.opening.join(|| self.open(place)).await?;
        usable(&place.live).ok_or_else(|| {
            let message = "the new connection has ended again";
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, message);
            Failure::Unreachable(error.into())
        })
    }

    fn open(&self, place: &Slot) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        open(Arc::clone(&self.origin), Arc::clone(&place.live), self.connecting)
    }

    /// An answer did not come in time: whether any comes will show, and soon, on all connections.
    fn doubt(&self) {
        for live in self.places.iter().filter_map(|place| usable(&place.live)) {
            // It is only a test: where it cannot be made, the next who is kept waiting tries.
            let _ = live.testing.begin(|| self.test(&live, self.patience.grace()));
        }
    }

    fn test(
        &self,
        live: &Connection,
        grace: Duration,
    ) -> impl Future<Output = Result<(), Failure>> + Send + use<> {
        health::test(live.connection.clone(), Arc::clone(&live.pulse), grace, self.patience)
    }
}

impl Slot {
    fn is_lost(&self) -> bool {
        match &*self.live.load() {
            Some(live) => live.pulse.has_ended(),
            None => self.opening.has_failed(),
        }
    }
}

fn usable(live: &ArcSwapOption<Connection>) -> Option<Arc<Connection>> {
    live.load_full().filter(|live| !live.pulse.has_ended())
}

/// Puts a new connection where there is none that can be used. An attempt that hangs does not hold
/// up another for long: meanwhile the server may be back, or another may have become the primary.
async fn open(
    origin: Arc<Connector>,
    place: Arc<ArcSwapOption<Connection>>,
    limit: Duration,
) -> Result<(), Failure> {
    // Somebody was faster.
    if usable(&place).is_some() {
        return Ok(());
    }
    let attempts = async {
        let mut attempts = JoinSet::new();
        attempts.spawn(Arc::clone(&origin).open());
        if let Ok(Some(Ok(opened))) = timeout(limit / 2, attempts.join_next()).await {
            return opened;
        }
        attempts.spawn(origin.open());
        first_good(attempts).await
    };
    let opened = timeout(limit, attempts).await.unwrap_or_else(|_| {
        let message = "connecting took too long";
        Err(io::Error::new(io::ErrorKind::TimedOut, message).into())
    });
    place.store(Some(Arc::new(opened.map_err(Failure::Unreachable)?)));
    Ok(())
}

/// A question on a connection. If nobody waits for the answer any more, or it is late, the
/// connection is in doubt.
struct Asking<'l> {
    link: &'l Pool,
    place: &'l Slot,
    live: &'l Connection,
    doubtful: bool,
}

impl<'l> Asking<'l> {
    fn begin(link: &'l Pool, place: &'l Slot, live: &'l Connection, departure: &Departure) -> Self {
        departure.depart();
        Self { link, place, live, doubtful: true }
    }

    fn end<T>(
        mut self,
        answer: Result<Value, RedisError>,
        parse: impl FnOnce(Value) -> Option<T>,
    ) -> Result<T, Failure> {
        let pulse = &self.live.pulse;
        let answer = answer.and_then(Value::extract_error).map_err(Failure::of_request);
        let answer = match answer.map(parse) {
            Ok(None) => Err(Failure::NotOurs),
            Ok(Some(_)) | Err(Failure::ServerError(_)) if pulse.is_astray() => {
                Err(Failure::NotOurs)
            }
            Ok(Some(reply)) => Ok(reply),
            Err(failure) => Err(failure),
        };
        match &answer {
            Ok(_) => pulse.beat(),
            Err(Failure::NotOurs) => {
                // Whoever always answers so is not connected to for each check.
                if pulse.go_astray() {
                    self.place.opening.failed(Failure::Unreachable(astray()));
                }
            }
            Err(failure) if failure.ends_connection() => {
                pulse.end();
                // A server that refuses is the same after each new connection.
                if let Failure::ServerError(_) = failure {
                    self.place.opening.failed(failure.clone());
                }
            }
            Err(Failure::ServerError(_)) => pulse.beat(),
            Err(_) => return answer,
        }
        self.doubtful = false;
        answer
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.doubtful {
            self.link.doubt();
        }
    }
}

fn astray() -> RedisError {
    let message = "the connection before answered what nobody had asked";
    io::Error::new(io::ErrorKind::InvalidData, message).into()
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("connections", &self.places.len()).finish_non_exhaustive()
    }
}
