//! The nodes of a cluster, and the node of each slot.

use std::{
    collections::{HashMap, HashSet},
    fmt, mem,
    sync::{
        Arc, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, ErrorKind, RedisError};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::slots::{self, SLOT_COUNT, SlotRange};
use crate::{
    redis::{
        RedisConfig,
        connection::{Connector, Pool, ServerConnector},
        error::{Failure, SentFlag},
    },
    store::NodeId,
    sync::RwLock,
};

/// The maximum number of nodes that are kept. Redis recommends clusters of at most 1,000 nodes.
const MAX_NODES: usize = 1_000;

/// The delay before the servers at the seed addresses are asked for the slots. The known nodes, to
/// which there are connections, usually answer earlier.
const SEED_DELAY: Duration = Duration::from_millis(50);

/// The nodes of a cluster, and the node of each slot.
pub(in crate::redis) struct Topology {
    /// The addresses that the application configured. All nodes are used with the user, password
    /// and TLS settings of the first one.
    seeds: Vec<ServerConnector>,
    config: RedisConfig,
    map: RwLock<SlotMap>,
    /// The number of nodes that there have been. The first one has the number 1.
    node_count: AtomicU32,
}

/// The node of each slot, and all nodes by address.
struct SlotMap {
    /// The node of each slot, at the index of the slot.
    owners: Vec<Option<Arc<Node>>>,
    /// At most [`MAX_NODES`].
    nodes: HashMap<Address, Arc<Node>>,
}

/// Host and port.
type Address = (String, u16);

impl Topology {
    /// Creates a topology without nodes from the URLs of some nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if no URL is given, or one is not valid.
    pub(super) fn new(seeds: &[String], config: &RedisConfig) -> Result<Self, RedisError> {
        if seeds.is_empty() {
            return Err((ErrorKind::InvalidClientConfig, "no node is given").into());
        }
        let seeds = seeds.iter().map(|url| ServerConnector::from_url(url, config));
        Ok(Self {
            seeds: seeds.collect::<Result<_, _>>()?,
            config: config.clone(),
            map: RwLock::new(SlotMap { owners: vec![None; SLOT_COUNT], nodes: HashMap::new() }),
            node_count: AtomicU32::new(0),
        })
    }

    /// Returns the address of the node that has a slot, or else the addresses of the seeds, for errors.
    pub(in crate::redis) fn address(&self, slot: u16) -> String {
        let known = self.owner(slot).and_then(|node| node.pool.connector().address());
        known.unwrap_or_else(|| {
            let seeds: Vec<_> = self.seeds.iter().map(ServerConnector::address).collect();
            seeds.join(", ")
        })
    }

    /// Returns the node that has a slot, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.read().owners[usize::from(slot)].clone()
    }

    /// Returns the first slot of the node that has a slot.
    pub(in crate::redis) fn first_slot_of_owner(&self, slot: u16) -> Option<u16> {
        let map = self.read();
        let id = map.owners[usize::from(slot)].as_ref()?.id;
        let is_owner = |owner: &Option<Arc<Node>>| owner.as_ref().is_some_and(|it| it.id == id);
        map.owners.iter().position(is_owner).map(|first| first as u16)
    }

    /// Returns the nodes that have slots.
    pub(in crate::redis) fn owners(&self) -> HashSet<NodeId> {
        self.read().owners.iter().flatten().map(|node| node.id).collect()
    }

    /// Records that a node has a slot.
    pub(super) fn set_owner(&self, slot: u16, node: &Arc<Node>) {
        self.write().owners[usize::from(slot)] = Some(Arc::clone(node));
    }

    /// Returns the node to which `redirecting` redirects a request. Returns `None` if `redirecting`
    /// does not know the host, or if there are already [`MAX_NODES`] nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not valid.
    pub(super) fn redirect_target(
        &self,
        redirecting: &Node,
        address: &str,
    ) -> Result<Option<Arc<Node>>, RedisError> {
        match slots::parse_address(address, &redirecting.host)? {
            Some(address) => self.write().node(address, |address| self.new_node(address)),
            None => Ok(None),
        }
    }

    /// Asks all nodes for the slots, and updates the map.
    ///
    /// All nodes are asked at once, because some may not answer. The first reply that covers all
    /// slots is used. If there is none, the reply that covers the most slots is used: a node that
    /// was taken out of the cluster knows no slots.
    ///
    /// # Errors
    ///
    /// Returns an error if no node replies with any slots within the connect timeout plus the response
    /// timeout.
    pub(super) async fn refresh(self: Arc<Self>) -> Result<(), Failure> {
        let mut replies = self.ask_all();
        let (mut best, mut covered, mut failure) = (Vec::new(), 0, None);
        while covered < SLOT_COUNT
            && let Some(reply) = replies.join_next().await
        {
            match reply {
                Ok(Ok(ranges)) if slots::covered(&ranges) > covered => {
                    covered = slots::covered(&ranges);
                    best = ranges;
                }
                Ok(Err(error)) => failure = Some(error),
                Ok(Ok(_)) | Err(_) => {}
            }
        }
        if covered == 0 {
            return Err(failure.unwrap_or_else(slots_unknown));
        }
        self.update(&best, covered == SLOT_COUNT).map_err(Failure::ServerError)
    }

    /// Asks all known nodes for the slots, and after [`SEED_DELAY`] the servers at the seed
    /// addresses.
    fn ask_all(&self) -> JoinSet<Result<Vec<SlotRange>, Failure>> {
        let mut replies = JoinSet::new();
        let nodes: Vec<_> = self.read().nodes.values().cloned().collect();
        let seed_delay = if nodes.is_empty() { Duration::ZERO } else { SEED_DELAY };
        for node in nodes {
            replies.spawn(async move { node.slot_ranges().await });
        }
        for seed in self.seeds.clone() {
            let connect_timeout = self.config.connect_timeout;
            replies.spawn(async move {
                sleep(seed_delay).await;
                match timeout(connect_timeout, slot_ranges_of_seed(&seed)).await {
                    Ok(reply) => reply.map_err(Failure::Unreachable),
                    Err(_) => Err(slots_unknown()),
                }
            });
        }
        replies
    }

    /// Updates the map with the ranges in a reply. A complete reply replaces all nodes, so that
    /// nodes without slots are forgotten. Any other reply adds to the map.
    fn update(&self, ranges: &[SlotRange], is_complete: bool) -> Result<(), RedisError> {
        let mut map = self.write();
        let mut known = if is_complete { mem::take(&mut map.nodes) } else { HashMap::new() };
        for range in ranges {
            let address = (range.host.clone(), range.port);
            if let Some(node) = known.remove(&address) {
                map.nodes.insert(address.clone(), node);
            }
            let node = map.node(address, |address| self.new_node(address))?;
            if node.is_some() {
                map.owners[range.first..=range.last].fill(node);
            }
        }
        Ok(())
    }

    fn new_node(&self, (host, port): &Address) -> Result<Node, RedisError> {
        let connector = self.seeds[0].at(host, *port, &self.config)?;
        let id = NodeId(self.node_count.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        Ok(Node::new(id, host, connector, &self.config))
    }

    fn read(&self) -> RwLockReadGuard<'_, SlotMap> {
        self.map.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, SlotMap> {
        self.map.write()
    }
}

impl SlotMap {
    /// Returns the node at an address, and adds it if it is not known. Returns `None` if there are
    /// already [`MAX_NODES`] nodes.
    fn node(
        &mut self,
        address: Address,
        new_node: impl FnOnce(&Address) -> Result<Node, RedisError>,
    ) -> Result<Option<Arc<Node>>, RedisError> {
        if let Some(node) = self.nodes.get(&address) {
            return Ok(Some(Arc::clone(node)));
        }
        if self.nodes.len() >= MAX_NODES {
            return Ok(None);
        }
        let node = Arc::new(new_node(&address)?);
        self.nodes.insert(address, Arc::clone(&node));
        Ok(Some(node))
    }
}

fn slots_unknown() -> Failure {
    let message = "no node of the cluster tells which nodes have the slots";
    Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology").field("nodes", &self.read().nodes.len()).finish_non_exhaustive()
    }
}

/// One node of a cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) host: String,
    pub(super) pool: Pool,
}

impl Node {
    /// Creates a node, which opens its connections when they are needed.
    pub(super) fn new(
        id: NodeId,
        host: &str,
        connector: ServerConnector,
        config: &RedisConfig,
    ) -> Self {
        let pool = Pool::new(Connector::Server(Box::new(connector)), config);
        Self { id, host: host.to_owned(), pool }
    }

    /// Asks this node which node has which slots.
    ///
    /// # Errors
    ///
    /// Returns an error if the request fails or the reply is not valid.
    async fn slot_ranges(&self) -> Result<Vec<SlotRange>, Failure> {
        let parse = |value| slots::is_slots_reply(&value).then_some(value);
        let reply = self.pool.send(&cluster_slots(), false, &SentFlag::default(), parse).await?;
        slots::parse(reply, &self.host).map_err(Failure::ServerError)
    }
}

/// Asks the server at a seed address which node has which slots, over a connection of its own.
///
/// # Errors
///
/// Returns an error if connecting fails, the request fails, or the reply is not valid.
async fn slot_ranges_of_seed(seed: &ServerConnector) -> Result<Vec<SlotRange>, RedisError> {
    let mut redis = seed.connect().await?.redis;
    slots::parse(cluster_slots().query_async(&mut redis).await?, seed.host())
}

fn cluster_slots() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        let seeds = ["redis://10.0.0.1:6379/".to_owned()];
        Topology::new(&seeds, &RedisConfig::default()).expect("a valid address")
    }

    fn range(first: usize, last: usize, port: u16) -> SlotRange {
        SlotRange { first, last, host: "10.0.0.1".into(), port }
    }

    #[test]
    fn a_complete_map_forgets_nodes_without_slots() {
        let topology = topology();
        topology.update(&[range(0, 99, 1), range(100, 16_383, 2)], true).expect("valid");
        let owner = |slot| topology.owner(slot).expect("known");
        let first = owner(0);
        topology.update(&[range(0, 99, 3)], false).expect("valid");
        assert_eq!(topology.read().nodes.len(), 3);
        assert!(!Arc::ptr_eq(&owner(0), &first));
        topology.update(&[range(0, 16_383, 1)], true).expect("valid");
        assert_eq!(topology.read().nodes.len(), 1);
        assert!(Arc::ptr_eq(&owner(7_000), &first), "a known node keeps its connections");
    }

    #[test]
    fn the_number_of_nodes_is_bounded() {
        let topology = topology();
        let node = Node::new(NodeId(1), "10.0.0.1", topology.seeds[0].clone(), &topology.config);
        for port in 1..=2_000 {
            let target = topology.redirect_target(&node, &format!("10.0.0.1:{port}"));
            assert_eq!(target.expect("valid").is_some(), port <= MAX_NODES);
        }
        assert_eq!(topology.read().nodes.len(), MAX_NODES);
    }
}
