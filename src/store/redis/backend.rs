//! What the script runs on: one server, or a cluster.

use redis::Value;

use super::{
    cluster::Cluster,
    failure::Failure,
    link::Link,
    naming,
    script::{Invocation, Loading},
};

#[derive(Debug)]
pub(super) enum Backend {
    One(Box<Link>, Loading),
    Cluster(Box<Cluster>),
}

impl Backend {
    /// Which keys can be decided by one call: those of one slot. A single server is one slot.
    pub(super) fn slot(&self, key: &[u8]) -> u16 {
        match self {
            Self::One(..) => 0,
            Self::Cluster(_) => naming::slot(key),
        }
    }

    pub(super) async fn send(&self, slot: u16, call: &Invocation) -> Result<Value, Failure> {
        match self {
            Self::One(link, loading) => loading.run(call, |command| link.send(command)).await,
            Self::Cluster(cluster) => cluster.run(slot, call).await,
        }
    }
}
