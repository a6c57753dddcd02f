//! The routing of requests to the nodes that have their slots.

use std::{sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError};
use tokio::time::{Instant, sleep};

use super::{Node, Topology};
use crate::{
    error::Effect,
    redis::{
        RedisConfig,
        error::{Failure, Redirect},
        script::ScriptCall,
        wire::CallReply,
    },
    runtime::SingleFlight,
    store::NodeId,
};

/// The delay before a request is repeated because its slot is being moved.
const MOVING_SLOT_RETRY_DELAY: Duration = Duration::from_millis(5);

/// The shortest time between two refreshes of the topology.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// A cluster. Each request goes to the node that has its slot.
pub(in crate::redis) struct Cluster {
    topology: Arc<Topology>,
    refresh: SingleFlight<Failure>,
    /// The time for which a request follows redirections: the response timeout.
    redirect_timeout: Duration,
}

impl Cluster {
    /// Creates a cluster from the URLs of some nodes, and opens no connection yet.
    ///
    /// # Errors
    ///
    /// Returns an error if no URL is given, or one is not valid.
    pub(in crate::redis) fn new(
        seeds: &[String],
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        Ok(Self {
            topology: Arc::new(Topology::new(seeds, config)?),
            refresh: SingleFlight::with_min_interval(MIN_REFRESH_INTERVAL),
            redirect_timeout: config.response_timeout,
        })
    }

    /// Asks the nodes which of them has which slots, and waits for the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if no node answers.
    pub(in crate::redis) async fn refresh(&self) -> Result<(), Failure> {
        Ok(self.refresh.run(|| Arc::clone(&self.topology).refresh()).await?)
    }

    /// Returns the map of the slots.
    pub(in crate::redis) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Starts a [`refresh`](Self::refresh), and does not wait for it.
    fn start_refresh(&self) {
        self.refresh.start(|| Arc::clone(&self.topology).refresh());
    }

    /// Returns the identity of the node that has a slot. If no node is known to have it, the cluster
    /// counts as one node.
    pub(in crate::redis) fn node(&self, slot: u16) -> NodeId {
        self.topology.owner(slot).map_or(NodeId::ONLY, |node| node.id)
    }

    /// Waits until there is a connection to the node that has this slot.
    ///
    /// # Errors
    ///
    /// Returns an error if no node has the slot, or no connection to it can be opened.
    pub(in crate::redis) async fn ready(&self, slot: u16) -> Result<(), Failure> {
        let node = self.owner(slot).await?;
        match node.pool.ready().await {
            Err(failure) => match self.successor(slot, &node).await {
                Some(successor) => successor.pool.ready().await,
                None => Err(failure),
            },
            ready => ready,
        }
    }

    /// Runs a call of the script on the node that has the slot.
    ///
    /// A call that a node redirects has not run there, so it is repeated. If a node cannot be
    /// reached, or does not serve the slot, the call is repeated at most once: on the node that has
    /// taken over, if there is one. A call that may have run is never repeated.
    ///
    /// # Errors
    ///
    /// Returns an error if the call fails, or is still redirected after the response timeout.
    pub(in crate::redis) async fn run(
        &self,
        slot: u16,
        call: &ScriptCall<'_>,
    ) -> Result<CallReply, Failure> {
        let deadline = Instant::now() + self.redirect_timeout;
        let mut ask: Option<Arc<Node>> = None;
        let mut was_moved = false;
        let mut was_refused = false;
        loop {
            let (node, is_asking) = match ask.take() {
                Some(node) => (node, true),
                None => (self.owner(slot).await?, false),
            };
            let result = node.pool.run(call, is_asking).await;
            let Err(failure) = result else { return result };
            if failure.effect() == Effect::None {
                call.sent_flag.mark_unsent();
            }
            match failure.redirect() {
                Some(Redirect::Moved(address)) => {
                    if let Some(node) = self.topology.redirect_target(&node, &address) {
                        self.topology.set_owner(slot, &node);
                    }
                    // Other slots have usually moved, too.
                    self.start_refresh();
                    if was_moved {
                        // The nodes do not agree on the slot yet, and redirect to each other.
                        sleep(MOVING_SLOT_RETRY_DELAY).await;
                    }
                    was_moved = true;
                }
                Some(Redirect::Ask(address)) => {
                    ask = self.topology.redirect_target(&node, &address);
                }
                // The checks of a batch are repeated one by one.
                Some(Redirect::Later) if call.checks.len() > 1 => return Err(failure),
                Some(Redirect::Later) => sleep(MOVING_SLOT_RETRY_DELAY).await,
                None if failure.calls_for_another_node() && !was_refused => {
                    if self.successor(slot, &node).await.is_none() {
                        return Err(failure);
                    }
                    was_refused = true;
                }
                None => {
                    if failure.ends_connection() {
                        self.start_refresh();
                    }
                    return Err(failure);
                }
            }
            if Instant::now() >= deadline {
                return Err(match failure.redirect() {
                    Some(Redirect::Moved(_) | Redirect::Ask(_)) => no_owner(),
                    _ => failure,
                });
            }
        }
    }

    /// Asks the nodes for the slots after a node has refused a request, and returns the node that has
    /// the slot now. Returns `None` if it is the same node.
    ///
    /// All requests share the answer of the nodes, and wait for it at most once in
    /// [`MIN_REFRESH_INTERVAL`].
    async fn successor(&self, slot: u16, refusing: &Node) -> Option<Arc<Node>> {
        self.refresh().await.ok()?;
        self.topology.owner(slot).filter(|node| node.id != refusing.id)
    }

    /// Returns the node that has a slot. If all connections to it have ended, another node may have
    /// taken over, so the nodes are asked for the slots first.
    async fn owner(&self, slot: u16) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.topology.owner(slot)
            && !node.pool.is_lost()
        {
            return Ok(node);
        }
        let refreshed = self.refresh().await;
        match self.topology.owner(slot) {
            Some(node) => Ok(node),
            None => Err(refreshed.err().unwrap_or_else(no_owner)),
        }
    }
}

fn no_owner() -> Failure {
    let message = "no node of the cluster has this slot";
    Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
}
