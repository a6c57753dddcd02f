//! The nodes of a cluster, and the node of each slot.

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, ErrorKind, RedisError, Value, from_redis_value};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    redis::{
        RedisConfig,
        connection::{Connector, Pool, ServerConnector},
        error::Failure,
        script::SentFlag,
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
        self.map.read().owners[usize::from(slot)].clone()
    }

    /// Returns the first slot of the node that has a slot.
    pub(in crate::redis) fn first_slot_of_owner(&self, slot: u16) -> Option<u16> {
        let map = self.map.read();
        let id = map.owners[usize::from(slot)].as_ref()?.id;
        let mut owners = map.owners.iter().map(|owner| owner.as_ref().map(|node| node.id));
        owners.position(|owner| owner == Some(id)).map(|first| first as u16)
    }

    /// Returns the nodes that have slots.
    pub(in crate::redis) fn owners(&self) -> HashSet<NodeId> {
        self.map.read().owners.iter().flatten().map(|node| node.id).collect()
    }

    /// Records that a node has a slot.
    pub(super) fn set_owner(&self, slot: u16, node: &Arc<Node>) {
        self.map.write().owners[usize::from(slot)] = Some(Arc::clone(node));
    }

    /// Returns the node to which `redirecting` redirects a request. Returns `None` if the address is not valid, if
    /// `redirecting` does not know the host, or if there are already [`MAX_NODES`] nodes.
    pub(super) fn redirect_target(&self, redirecting: &Node, address: &str) -> Option<Arc<Node>> {
        let address = parse_address(address, &redirecting.host)?;
        self.node(&mut self.map.write(), address)
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
        let mut best = Vec::new();
        let mut failure = None;
        while covered(&best) < SLOT_COUNT
            && let Some(reply) = replies.join_next().await
        {
            match reply {
                Ok(Ok(ranges)) if covered(&ranges) > covered(&best) => best = ranges,
                Ok(Err(error)) => failure = Some(error),
                Ok(Ok(_)) | Err(_) => {}
            }
        }
        if best.is_empty() {
            return Err(failure.unwrap_or_else(slots_unknown));
        }
        self.update(&best, covered(&best) == SLOT_COUNT);
        Ok(())
    }

    /// Asks all known nodes for the slots, and after [`SEED_DELAY`] the servers at the seed
    /// addresses.
    fn ask_all(&self) -> JoinSet<Result<Vec<SlotRange>, Failure>> {
        let mut replies = JoinSet::new();
        let nodes: Vec<_> = self.map.read().nodes.values().cloned().collect();
        let seed_delay = if nodes.is_empty() { Duration::ZERO } else { SEED_DELAY };
        for node in nodes {
            replies.spawn(async move { node.slot_ranges().await });
        }
        for seed in &self.seeds {
            // Its connections end with the task.
            let node = Node::new(NodeId::ONLY, seed.host(), seed.clone(), &self.config);
            replies.spawn(async move {
                sleep(seed_delay).await;
                node.slot_ranges().await
            });
        }
        replies
    }

    /// Updates the map with the ranges in a reply. A complete reply replaces all nodes, so that
    /// nodes without slots are forgotten. Any other reply adds to the map.
    fn update(&self, ranges: &[SlotRange], is_complete: bool) {
        let mut map = self.map.write();
        let mut known = if is_complete { mem::take(&mut map.nodes) } else { HashMap::new() };
        for range in ranges {
            let address = (range.host.clone(), range.port);
            if let Some(node) = known.remove(&address) {
                map.nodes.insert(address.clone(), node);
            }
            let node = self.node(&mut map, address);
            if node.is_some() {
                map.owners[range.first..=range.last].fill(node);
            }
        }
    }

    /// Returns the node at an address, and adds it if it is not known. Returns `None` if there are
    /// already [`MAX_NODES`] nodes.
    fn node(&self, map: &mut SlotMap, address: Address) -> Option<Arc<Node>> {
        if let Some(node) = map.nodes.get(&address) {
            return Some(Arc::clone(node));
        }
        if map.nodes.len() >= MAX_NODES {
            return None;
        }
        // It has the settings of a URL that was valid, so this does not fail.
        let connector = self.seeds[0].at(&address.0, address.1, &self.config).ok()?;
        let id = NodeId(self.node_count.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let node = Arc::new(Node::new(id, &address.0, connector, &self.config));
        map.nodes.insert(address, Arc::clone(&node));
        Some(node)
    }
}

fn slots_unknown() -> Failure {
    let message = "no node of the cluster tells which nodes have the slots";
    Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
}

/// One node of a cluster.
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
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg("SLOTS");
        let sent_flag = SentFlag::default();
        self.pool.send(&command, false, &sent_flag, |reply| parse_ranges(reply, &self.host)).await
    }
}

/// The number of hash slots of a cluster.
const SLOT_COUNT: usize = 16_384;

/// A range of slots, and the address of the primary that has them.
#[derive(Debug, PartialEq)]
struct SlotRange {
    first: usize,
    /// The last slot of the range, inclusive.
    last: usize,
    host: String,
    port: u16,
}

/// Parses the reply of the node at `replying_host` to `CLUSTER SLOTS`. Ranges whose primary has an
/// address that this node does not know are left out. Returns `None` if the reply is not valid, such as one with
/// a slot in several ranges.
fn parse_ranges(reply: Value, replying_host: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = reply else { return None };
    let mut parsed = Vec::new();
    let mut are_taken = [false; SLOT_COUNT];
    for range in ranges {
        let Value::Array(range) = range else { return None };
        let [first, last, primary, ..] = &range[..] else { continue };
        let first: usize = from_redis_value(first.clone()).ok()?;
        let last: usize = from_redis_value(last.clone()).ok()?;
        if first > last || last >= SLOT_COUNT {
            return None;
        }
        let are_taken = &mut are_taken[first..=last];
        if are_taken.contains(&true) {
            return None;
        }
        are_taken.fill(true);
        let primary: Vec<Value> = from_redis_value(primary.clone()).ok()?;
        let [host, port, ..] = &primary[..] else { continue };
        let host: Option<String> = from_redis_value(host.clone()).ok()?;
        let port = from_redis_value(port.clone()).ok()?;
        if let Some(host) = resolve_host(host.as_deref().unwrap_or_default(), replying_host) {
            parsed.push(SlotRange { first, last, host: host.to_owned(), port });
        }
    }
    Some(parsed)
}

/// Parses the address in a redirection by the node at `replying_host`, as host and port. Returns
/// `None` if it is not valid, or that node does not know the host.
fn parse_address(address: &str, replying_host: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((resolve_host(host, replying_host)?.to_owned(), port.parse().ok()?))
}

/// Returns the host in a node's reply. An empty host stands for the node itself, and `?` for a host
/// that the node does not know.
fn resolve_host<'a>(host: &'a str, replying_host: &'a str) -> Option<&'a str> {
    match host {
        "?" => None,
        "" => Some(replying_host).filter(|host| !host.is_empty()),
        host => Some(host.trim_matches(['[', ']'])),
    }
}

/// Returns the number of slots in these ranges.
fn covered(ranges: &[SlotRange]) -> usize {
    let mut is_covered = vec![false; SLOT_COUNT];
    for range in ranges {
        is_covered[range.first..=range.last].fill(true);
    }
    is_covered.into_iter().filter(|is_covered| *is_covered).count()
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
        topology.update(&[range(0, 99, 1), range(100, 16_383, 2)], true);
        let owner = |slot| topology.owner(slot).expect("known");
        let first = owner(0);
        topology.update(&[range(0, 99, 3)], false);
        assert_eq!(topology.map.read().nodes.len(), 3);
        assert!(!Arc::ptr_eq(&owner(0), &first));
        topology.update(&[range(0, 16_383, 1)], true);
        assert_eq!(topology.map.read().nodes.len(), 1);
        assert!(Arc::ptr_eq(&owner(7_000), &first), "a known node keeps its connections");
    }

    #[test]
    fn the_number_of_nodes_is_bounded() {
        let topology = topology();
        let node = Node::new(NodeId(1), "10.0.0.1", topology.seeds[0].clone(), &topology.config);
        for port in 1..=2_000 {
            let target = topology.redirect_target(&node, &format!("10.0.0.1:{port}"));
            assert_eq!(target.is_some(), port <= MAX_NODES);
        }
        assert_eq!(topology.map.read().nodes.len(), MAX_NODES);
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn reply_range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary])
    }

    #[test]
    fn an_empty_host_means_the_replying_node() {
        let hosts = [text("10.0.0.1"), text(""), Value::Nil, text("?")];
        let reply = hosts.into_iter().zip(0..).map(|(host, at)| reply_range(at, at, host, 6_379));
        let ranges = parse_ranges(Value::Array(reply.collect()), "here").expect("valid");
        let hosts: Vec<_> = ranges.iter().map(|range| &*range.host).collect();
        assert_eq!(hosts, ["10.0.0.1", "here", "here"]);
        assert_eq!(covered(&ranges), 3);

        let address = |address| parse_address(address, "here");
        assert_eq!(address("10.0.0.1:6381"), Some(("10.0.0.1".into(), 6_381)));
        assert_eq!(address(":6381"), Some(("here".into(), 6_381)));
        assert_eq!(address("::1:6381"), Some(("::1".into(), 6_381)));
        assert_eq!(address("?:6381"), None);
        assert_eq!(address("nowhere"), None);
        assert_eq!(address("nowhere:x"), None);
    }

    #[test]
    fn a_map_is_complete_if_it_covers_all_slots() {
        let all = parse_ranges(
            Value::Array(vec![
                reply_range(0, 99, text("a"), 1),
                reply_range(100, 16_383, text("b"), 1),
            ]),
            "here",
        );
        assert_eq!(covered(&all.expect("valid")), SLOT_COUNT);
        let none = parse_ranges(Value::Array(Vec::new()), "here").expect("valid");
        assert_eq!(covered(&none), 0);
        assert!(
            parse_ranges(Value::Array(vec![reply_range(0, 16_384, text("a"), 1)]), "here")
                .is_none()
        );
        assert!(
            parse_ranges(Value::Array(vec![reply_range(9, 8, text("a"), 1)]), "here").is_none()
        );
        // No slot is in two ranges, of which each alone may be valid.
        for (first, last, is_valid) in [(100, 199, true), (99, 199, false), (0, 16_383, false)] {
            let ranges = [(0, 99, "a"), (first, last, "b")];
            let ranges = ranges.map(|(first, last, host)| reply_range(first, last, text(host), 1));
            let parsed = parse_ranges(Value::Array(ranges.into()), "here");
            assert_eq!(parsed.is_some(), is_valid, "{first} to {last}");
        }
        for other in [Value::Okay, text("a"), Value::Array(vec![Value::Int(7)])] {
            assert!(parse_ranges(other.clone(), "here").is_none(), "{other:?}");
        }
    }
}
