//! The backends: one server, or a cluster.

use redis::RedisError;

use super::{
    cluster::Cluster,
    config::{RedisConfig, Servers},
    connection::{Connector, Pool, SentinelConnector, ServerConnector},
    error::Failure,
    script::ScriptCall,
    wire::{self, CallReply, WireCharge, WireCheck},
};
use crate::{error::Error, store::NodeId};

/// The server or the cluster on which the script runs.
pub(super) enum Backend {
    Server(Box<Pool>),
    Cluster(Box<Cluster>),
}

impl Backend {
    /// Creates the backend, and opens no connection yet.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is not valid, or there is none.
    #[cfg_attr(not(feature = "bb8"), allow(unreachable_code, reason = "there is no pool"))]
    pub(super) fn new(config: &RedisConfig) -> Result<Self, RedisError> {
        let connector = match &config.servers {
            Servers::Url(url) => {
                Connector::Server(Box::new(ServerConnector::from_url(url, config)?))
            }
            Servers::Cluster(nodes) => {
                return Ok(Self::Cluster(Box::new(Cluster::new(nodes, config)?)));
            }
            Servers::Sentinel { sentinels, primary } => {
                Connector::Sentinel(Box::new(SentinelConnector::new(sentinels, primary, config)?))
            }
            Servers::AppPool(pool) => Connector::AppPool(pool.clone()),
        };
        Ok(Self::Server(Box::new(Pool::new(connector, config))))
    }

    /// Returns the hash slot of a charge. All charges of one call must be in one slot. A single
    /// server counts as one slot.
    pub(super) fn slot(&self, charge: &WireCharge) -> u16 {
        match self {
            Self::Server(_) => 0,
            Self::Cluster(_) => wire::slot(charge.key_name()),
        }
    }

    /// Returns the identity of the node that has the slot.
    pub(super) fn node(&self, slot: u16) -> NodeId {
        match self {
            Self::Server(_) => NodeId::ONLY,
            Self::Cluster(cluster) => cluster.node(slot),
        }
    }

    /// Returns the slot of a check if all of its charges are in the same slot.
    pub(super) fn only_slot(&self, check: &WireCheck) -> Option<u16> {
        let mut slots = check.charges().iter().map(|charge| self.slot(charge));
        let first = slots.next().unwrap_or_default();
        slots.all(|slot| slot == first).then_some(first)
    }

    /// Returns the error of a call for this slot. It names the server, unless the failure is one of this process.
    pub(super) fn error(&self, slot: u16, failure: Failure) -> Error {
        let is_of_server = !matches!(failure, Failure::NoRuntime);
        let error = Error::from(failure);
        let (error, address) = match self {
            Self::Server(pool) => {
                (error.with_place(pool.connector().place()), pool.connector().address())
            }
            Self::Cluster(cluster) => {
                let topology = cluster.topology();
                let place = match (cluster.node(slot).number(), topology.first_slot_of_owner(slot))
                {
                    (Some(number), Some(first)) => format!("node {number} (slots from {first})"),
                    _ => "cluster".to_owned(),
                };
                (error.with_place(place), Some(topology.address(slot)))
            }
        };
        match address.filter(|_| is_of_server) {
            Some(address) => error.with_note(&format!("the server is {address}")),
            None => error,
        }
    }

    /// Waits until a call for this slot can be sent without waiting for a connection.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection to the server that has the slot can be opened.
    pub(super) async fn ready(&self, slot: u16) -> Result<(), Failure> {
        match self {
            Self::Server(pool) => pool.ready().await,
            Self::Cluster(cluster) => cluster.ready(slot).await,
        }
    }

    /// Runs a call of the script on the server that has the slot.
    pub(super) async fn run(&self, slot: u16, call: &ScriptCall<'_>) -> Result<CallReply, Failure> {
        match self {
            Self::Server(pool) => pool.run(call, false).await,
            Self::Cluster(cluster) => cluster.run(slot, call).await,
        }
    }
}
