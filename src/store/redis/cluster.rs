//! A cluster: which node has which slot, and what to do when one has moved.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use redis::{Cmd, ErrorKind, RedisError, Value, from_redis_value};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    config::RedisConfig,
    failure::{Failure, Redirect},
    link::Link,
    origin::{Origin, Server},
    script::{Invocation, Loading},
};

pub(super) struct Cluster {
    /// The addresses that the application gave; their user, password and TLS are used for all.
    seeds: Vec<Server>,
    config: RedisConfig,
    slots: ArcSwap<Vec<Option<Arc<Node>>>>,
    nodes: Mutex<HashMap<String, Arc<Node>>>,
}

#[derive(Debug)]
struct Node {
    link: Link,
    loading: Loading,
}

const SLOTS: usize = 16_384;
/// How long to wait before asking again for a slot that is on its way.
const PAUSE: Duration = Duration::from_millis(5);

impl Cluster {
    pub(super) fn new(seeds: &[String], config: &RedisConfig) -> Result<Self, RedisError> {
        if seeds.is_empty() {
            return Err((ErrorKind::InvalidClientConfig, "no node is given").into());
        }
        let seeds = seeds.iter().map(|url| Server::from_url(url, config));
        Ok(Self {
            seeds: seeds.collect::<Result<_, _>>()?,
            config: config.clone(),
            slots: ArcSwap::from_pointee(vec![None; SLOTS]),
            nodes: Mutex::default(),
        })
    }

    /// Runs the script on the node that has the slot, and follows the slot where it moves. What a
    /// node redirects has not run, so repeating it doubles nothing; what may have run is never
    /// repeated.
    pub(super) async fn run(&self, slot: u16, invocation: &Invocation) -> Result<Value, Failure> {
        let deadline = Instant::now() + self.config.response_timeout;
        let mut ask: Option<Arc<Node>> = None;
        loop {
            let result = match ask.take() {
                Some(node) => {
                    let send = |command| node.link.send_asking(command);
                    node.loading.run(invocation, send).await
                }
                None => match self.owner(slot).await {
                    Ok(node) => {
                        node.loading.run(invocation, |command| node.link.send(command)).await
                    }
                    Err(failure) => Err(failure),
                },
            };
            let Err(failure) = result else { return result };
            match failure.redirect() {
                Some(Redirect::Moved(address)) => {
                    let node = self.node(&address).map_err(Failure::Refused)?;
                    self.learn(slot, Some(node));
                }
                Some(Redirect::Ask(address)) => {
                    ask = Some(self.node(&address).map_err(Failure::Refused)?);
                }
                // Several checks are then asked one by one.
                Some(Redirect::Later) if invocation.is_shared() => return Err(failure),
                Some(Redirect::Later) => sleep(PAUSE).await,
                // The node is gone, or no longer the primary: another one will have the slot.
                None if matches!(failure, Failure::Unreachable(_)) || failure.ends_connection() => {
                    self.learn(slot, None);
                    if !matches!(failure, Failure::Unreachable(_) | Failure::Refused(_)) {
                        return Err(failure);
                    }
                    sleep(PAUSE * 4).await;
                }
                None => return Err(failure),
            }
            if Instant::now() >= deadline {
                return Err(failure);
            }
        }
    }

    async fn owner(&self, slot: u16) -> Result<Arc<Node>, Failure> {
        if let Some(node) = &self.slots.load()[usize::from(slot)] {
            return Ok(Arc::clone(node));
        }
        self.refresh().await?;
        self.slots.load()[usize::from(slot)].clone().ok_or_else(|| {
            let message = "no node of the cluster has this slot";
            Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
        })
    }

    /// Asks the nodes which of them has which slots.
    pub(super) async fn refresh(&self) -> Result<(), Failure> {
        let known: Vec<_> = self.lock().values().cloned().collect();
        let mut last: Option<Failure> = None;
        for node in known {
            match node.link.send(slots_command()).await {
                Ok(value) => return self.adopt(None, value).map_err(Failure::Refused),
                Err(failure) => last = Some(failure),
            }
        }
        for seed in &self.seeds {
            match self.ask_seed(seed).await {
                Ok(value) => {
                    return self.adopt(Some(seed), value).map_err(Failure::Refused);
                }
                Err(error) => last = Some(Failure::Unreachable(error)),
            }
        }
        Err(last.unwrap_or_else(|| {
            let message = "no node of the cluster can be reached";
            Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
        }))
    }

    async fn ask_seed(&self, seed: &Server) -> Result<Value, RedisError> {
        let mut connection = seed.open().await?.connection;
        let deadline = Instant::now() + self.config.response_timeout;
        match timeout_at(deadline, slots_command().query_async(&mut connection)).await {
            Ok(answer) => answer,
            Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
        }
    }

    /// Takes over what `CLUSTER SLOTS` says: ranges, each with its primary first.
    fn adopt(&self, seed: Option<&Server>, value: Value) -> Result<(), RedisError> {
        let ranges: Vec<Vec<Value>> = from_redis_value(value)?;
        let mut slots = vec![None; SLOTS];
        for range in ranges {
            let [first, last, primary, ..] = &range[..] else { continue };
            let first: usize = from_redis_value(first.clone())?;
            let last: usize = from_redis_value(last.clone())?;
            let primary: Vec<Value> = from_redis_value(primary.clone())?;
            let [host, port, ..] = &primary[..] else { continue };
            let host: Option<String> = from_redis_value(host.clone())?;
            let port: u16 = from_redis_value(port.clone())?;
            // A node that does not know its own address leaves it out.
            let host = match (host, seed.map(|seed| seed.info().addr())) {
                (Some(host), _) if !host.is_empty() => host,
                (
                    _,
                    Some(
                        redis::ConnectionAddr::Tcp(host, _)
                        | redis::ConnectionAddr::TcpTls { host, .. },
                    ),
                ) => host.clone(),
                _ => continue,
            };
            let node = self.node(&format!("{host}:{port}"))?;
            for slot in slots.iter_mut().take(last + 1).skip(first) {
                *slot = Some(Arc::clone(&node));
            }
        }
        self.slots.store(Arc::new(slots));
        Ok(())
    }

    fn learn(&self, slot: u16, node: Option<Arc<Node>>) {
        self.slots.rcu(|slots| {
            let mut slots = Vec::clone(slots);
            slots[usize::from(slot)] = node.clone();
            slots
        });
    }

    fn node(&self, address: &str) -> Result<Arc<Node>, RedisError> {
        if let Some(node) = self.lock().get(address) {
            return Ok(Arc::clone(node));
        }
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().map_err(|_| {
            RedisError::from((ErrorKind::Parse, "a cluster node's address is not valid"))
        })?;
        let server = self.seeds[0].at(host.trim_matches(['[', ']']), port, &self.config)?;
        let RedisConfig { connections, response_timeout, .. } = self.config;
        let link = Link::new(Origin::Server(Box::new(server)), connections, response_timeout);
        let node = Arc::new(Node { link, loading: Loading::default() });
        Ok(Arc::clone(self.lock().entry(address.to_owned()).or_insert(node)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn slots_command() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.lock().len()).finish_non_exhaustive()
    }
}
