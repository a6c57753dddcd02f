//! What is known of a cluster: its nodes, and which of them has which slot.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use redis::{Cmd, ConnectionAddr, ErrorKind, RedisError};
use tokio::{task::JoinSet, time::sleep};

use super::slots::{self, Range, SLOTS};
use crate::store::redis::{
    RedisConfig,
    connection::{Connector, Pool, ServerConnector},
    departure::Departure,
    error::Failure,
    script::ScriptLoader,
};

pub(in crate::store::redis) struct Topology {
    /// The addresses that the application gave; their user, password and TLS are used for all.
    seeds: Vec<ServerConnector>,
    config: RedisConfig,
    map: RwLock<Map>,
}

struct Map {
    owners: Vec<Option<Arc<Node>>>,
    nodes: HashMap<Address, Arc<Node>>,
}

type Address = (String, u16);

#[derive(Debug)]
pub(in crate::store::redis) struct Node {
    pub(in crate::store::redis) host: String,
    pub(in crate::store::redis) link: Pool,
    pub(in crate::store::redis) loading: ScriptLoader,
}

/// The given addresses are asked a little later than the nodes, to which there are connections.
const LATER: Duration = Duration::from_millis(50);

impl Topology {
    pub(in crate::store::redis) fn new(
        seeds: &[String],
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        if seeds.is_empty() {
            return Err((ErrorKind::InvalidClientConfig, "no node is given").into());
        }
        let seeds = seeds.iter().map(|url| ServerConnector::from_url(url, config));
        Ok(Self {
            seeds: seeds.collect::<Result<_, _>>()?,
            config: config.clone(),
            map: RwLock::new(Map { owners: vec![None; SLOTS], nodes: HashMap::new() }),
        })
    }

    pub(in crate::store::redis) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.read().owners[usize::from(slot)].clone()
    }

    pub(in crate::store::redis) fn learn(&self, slot: u16, node: &Arc<Node>) {
        self.write().owners[usize::from(slot)] = Some(Arc::clone(node));
    }

    /// The node to which another redirects; `None` if that one does not know where it is.
    pub(in crate::store::redis) fn redirected(
        &self,
        by: &Node,
        address: &str,
    ) -> Result<Option<Arc<Node>>, RedisError> {
        let Some(address) = slots::read_address(address, &by.host)? else { return Ok(None) };
        let mut map = self.write();
        let node = match map.nodes.get(&address) {
            Some(node) => Arc::clone(node),
            None => self.connect(&address)?,
        };
        map.nodes.insert(address, Arc::clone(&node));
        Ok(Some(node))
    }

    /// Asks all nodes at once, because some may be silent, which of them has which slots. The first
    /// map without gaps counts: a node that has been taken out of the cluster knows of no slots.
    pub(in crate::store::redis) async fn refresh(self: Arc<Self>) -> Result<(), Failure> {
        let mut asked = JoinSet::new();
        let nodes: Vec<_> = self.read().nodes.values().cloned().collect();
        let later = if nodes.is_empty() { Duration::ZERO } else { LATER };
        for node in nodes {
            asked.spawn(async move {
                let parse = |value| slots::is_answer(&value).then_some(value);
                let (command, departure) = (slots_command(), Departure::default());
                let answer = node.link.send(&command, &departure, parse).await?;
                slots::read(answer, &node.host).map_err(Failure::ServerError)
            });
        }
        for seed in self.seeds.clone() {
            let connecting = self.config.connect_timeout;
            asked.spawn(async move {
                sleep(later).await;
                let asking = ask_seed(&seed);
                match tokio::time::timeout(connecting, asking).await {
                    Ok(answer) => answer.map_err(Failure::Unreachable),
                    Err(_) => Err(unreachable()),
                }
            });
        }
        let (mut best, mut most, mut last) = (Vec::new(), 0, None);
        while most < SLOTS
            && let Some(answer) = asked.join_next().await
        {
            match answer {
                Ok(Ok(ranges)) => {
                    let covered = slots::covered(&ranges);
                    if covered > most {
                        (best, most) = (ranges, covered);
                    }
                }
                Ok(Err(failure)) => last = Some(failure),
                Err(_) => {}
            }
        }
        if most == 0 {
            return Err(last.unwrap_or_else(unreachable));
        }
        self.adopt(&best, most == SLOTS).map_err(Failure::ServerError)
    }

    /// A map with gaps only adds to what is known. One without gaps replaces it: nodes that are not
    /// in it are forgotten.
    fn adopt(&self, ranges: &[Range], complete: bool) -> Result<(), RedisError> {
        let mut map = self.write();
        let mut nodes = HashMap::new();
        for range in ranges {
            let address = (range.host.clone(), range.port);
            let node = match nodes.get(&address).or_else(|| map.nodes.get(&address)) {
                Some(node) => Arc::clone(node),
                None => self.connect(&address)?,
            };
            map.owners[range.first..=range.last].fill(Some(Arc::clone(&node)));
            nodes.insert(address, node);
        }
        if complete {
            map.nodes = nodes;
        } else {
            map.nodes.extend(nodes);
        }
        Ok(())
    }

    /// Nothing is opened before the first request.
    fn connect(&self, (host, port): &Address) -> Result<Arc<Node>, RedisError> {
        let server = self.seeds[0].at(host, *port, &self.config)?;
        let link = Pool::new(Connector::Server(Box::new(server)), &self.config);
        Ok(Arc::new(Node { host: host.clone(), link, loading: ScriptLoader::default() }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask_seed(seed: &ServerConnector) -> Result<Vec<Range>, RedisError> {
    let host = match seed.info().addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    };
    let mut connection = seed.open().await?.connection;
    slots::read(slots_command().query_async(&mut connection).await?, host)
}

fn slots_command() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

fn unreachable() -> Failure {
    let message = "no node of the cluster says which has which slot";
    Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology").field("nodes", &self.read().nodes.len()).finish_non_exhaustive()
    }
}
