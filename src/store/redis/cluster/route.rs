//! A cluster: runs the script on the node that has the slot, and follows the slot where it moves.

use std::{sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError, Value};
use tokio::time::{Instant, sleep};

use super::topology::{Node, Topology};
use crate::store::redis::{
    RedisConfig,
    connection::SingleFlight,
    error::{Failure, Redirect},
    script::Invocation,
};

#[derive(Debug)]
pub(in crate::store::redis) struct Cluster {
    topology: Arc<Topology>,
    refreshing: SingleFlight,
    /// For how long a request follows its slot.
    limit: Duration,
}

/// How long to wait before asking again for a slot that is on its way.
const PAUSE: Duration = Duration::from_millis(5);
/// Nodes are not asked more often than this who has which slots.
const REST: Duration = Duration::from_millis(100);

impl Cluster {
    pub(in crate::store::redis) fn new(
        seeds: &[String],
        config: &RedisConfig,
    ) -> Result<Self, RedisError> {
        let topology = Arc::new(Topology::new(seeds, config)?);
        let limit = config.response_timeout;
        Ok(Self { topology, refreshing: SingleFlight::new(REST), limit })
    }

    /// Asks the nodes which of them has which slots.
    pub(in crate::store::redis) async fn refresh(&self) -> Result<(), Failure> {
        self.refreshing.join(|| Arc::clone(&self.topology).refresh()).await
    }

    /// As [`refresh`](Self::refresh), but nobody waits for it.
    fn refresh_soon(&self) {
        // If that fails, the next request for the slot tries again, and waits for it.
        let _ = self.refreshing.begin(|| Arc::clone(&self.topology).refresh());
    }

    /// Runs the script on the node that has the slot. What a node redirects has not run, so
    /// repeating it doubles nothing; what may have run is never repeated.
    pub(in crate::store::redis) async fn run(
        &self,
        slot: u16,
        invocation: &Invocation,
    ) -> Result<Value, Failure> {
        let deadline = Instant::now() + self.limit;
        let mut ask: Option<Arc<Node>> = None;
        let mut moved = false;
        loop {
            let (node, asking) = match ask.take() {
                Some(node) => (node, true),
                None => (self.owner(slot).await?, false),
            };
            let (link, is_answer) = (&node.link, |value: &Value| invocation.is_answer(value));
            let result = if asking {
                let send = |command| link.send_asking(command, is_answer);
                node.loading.run(invocation, send).await
            } else {
                node.loading.run(invocation, |command| link.send(command, is_answer)).await
            };
            let Err(failure) = result else { return result };
            let redirected = |address: &str| {
                self.topology.redirected(&node, address).map_err(Failure::ServerError)
            };
            match failure.redirect() {
                Some(Redirect::Moved(address)) => {
                    if let Some(node) = redirected(&address)? {
                        self.topology.learn(slot, &node);
                    }
                    // One that has moved is seldom the only one.
                    self.refresh_soon();
                    // Nodes that do not agree yet send it to and fro.
                    if moved {
                        sleep(PAUSE).await;
                    }
                    moved = true;
                }
                Some(Redirect::Ask(address)) => ask = redirected(&address)?,
                // Several checks are then asked one by one.
                Some(Redirect::Later) if invocation.is_shared() => return Err(failure),
                Some(Redirect::Later) => sleep(PAUSE).await,
                None if matches!(failure, Failure::Unreachable(_)) || failure.ends_connection() => {
                    self.refresh_soon();
                    if !matches!(failure, Failure::Unreachable(_) | Failure::ServerError(_)) {
                        return Err(failure);
                    }
                    sleep(PAUSE * 4).await;
                }
                None => return Err(failure),
            }
            if Instant::now() >= deadline {
                return Err(match failure.redirect() {
                    Some(Redirect::Moved(_) | Redirect::Ask(_)) => nobody(),
                    _ => failure,
                });
            }
        }
    }

    /// The node that has the slot. If that one may be gone, the others are asked first who has
    /// taken over.
    async fn owner(&self, slot: u16) -> Result<Arc<Node>, Failure> {
        let known = self.topology.owner(slot);
        if let Some(node) = &known
            && !node.link.is_lost()
        {
            return Ok(Arc::clone(node));
        }
        let refreshed = self.refresh().await;
        if let Some(node) = self.topology.owner(slot) {
            return Ok(node);
        }
        refreshed?;
        Err(nobody())
    }
}

fn nobody() -> Failure {
    let message = "no node of the cluster has this slot";
    Failure::Unreachable((ErrorKind::ClusterConnectionNotFound, message).into())
}
