//! A cluster: runs the script on the node that has the slot, and follows the slot where it moves.

use std::{borrow::Borrow, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError, Value};
use tokio::time::{Instant, sleep};

use super::topology::{Node, Topology};
use crate::error::Effect;
use crate::store::redis::{
    RedisConfig,
    connection::SingleFlight,
    error::{Failure, Redirect},
    reply::CallReply,
    script::{ScriptBy, ScriptCall},
    wire::WireCheck,
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

    /// Waits until a call for this slot can be sent at once.
    pub(in crate::store::redis) async fn ready(&self, slot: u16) -> Result<(), Failure> {
        let deadline = Instant::now() + self.limit;
        loop {
            let ready = self.owner(slot).await?.link.ready().await;
            if ready.is_ok() || Instant::now() >= deadline {
                return ready;
            }
            self.refresh_soon();
            sleep(PAUSE * 4).await;
        }
    }

    /// Runs the script on the node that has the slot. What a node redirects has not run, so
    /// repeating it doubles nothing; what may have run is never repeated.
    pub(in crate::store::redis) async fn run<C: Borrow<WireCheck>>(
        &self,
        slot: u16,
        call: &ScriptCall<'_, C>,
    ) -> Result<CallReply, Failure> {
        let deadline = Instant::now() + self.limit;
        let departure = call.departure();
        let mut ask: Option<Arc<Node>> = None;
        let mut moved = false;
        loop {
            let (node, asking) = match ask.take() {
                Some(node) => (node, true),
                None => (self.owner(slot).await?, false),
            };
            let link = &node.link;
            let send = |by: ScriptBy| async move {
                let (command, parse) = (call.encode(by), |value: Value| call.parse(&value));
                if asking {
                    link.send_asking(&command, departure, parse).await
                } else {
                    link.send(&command, departure, parse).await
                }
            };
            let result = node.loading.run(departure, send).await;
            let Err(failure) = result else { return result };
            if failure.effect() == Effect::None {
                departure.rejected();
            }
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
                Some(Redirect::Later) if call.is_batch() => return Err(failure),
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
