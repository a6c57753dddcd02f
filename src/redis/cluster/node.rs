//! One node of a cluster.

use redis::{Cmd, RedisError};

use super::slots::{self, SlotRange};
use crate::{
    redis::{
        RedisConfig,
        connection::{Connector, Pool, ServerConnector},
        error::Failure,
        script::ScriptLoader,
        sent_flag::SentFlag,
    },
    store::NodeId,
};

/// One node of a cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) host: String,
    pub(super) pool: Pool,
    pub(super) script_loader: ScriptLoader,
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
        Self { id, host: host.to_owned(), pool, script_loader: ScriptLoader::default() }
    }

    /// Asks this node which node has which slots.
    ///
    /// # Errors
    ///
    /// Returns an error if the request fails or the reply is not valid.
    pub(super) async fn slot_ranges(&self) -> Result<Vec<SlotRange>, Failure> {
        let parse = |value| slots::is_slots_reply(&value).then_some(value);
        let reply = self.pool.send(&cluster_slots(), &SentFlag::default(), parse).await?;
        slots::parse(reply, &self.host).map_err(Failure::ServerError)
    }
}

/// Asks the server at a seed address which node has which slots, over a connection of its own.
///
/// # Errors
///
/// Returns an error if connecting fails, the request fails, or the reply is not valid.
pub(super) async fn slot_ranges_of_seed(
    seed: &ServerConnector,
) -> Result<Vec<SlotRange>, RedisError> {
    let mut redis = seed.connect().await?.redis;
    slots::parse(cluster_slots().query_async(&mut redis).await?, seed.host())
}

fn cluster_slots() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}
