//! What the script runs on: one server, or a cluster.

use redis::Value;
use smallvec::SmallVec;

use super::{
    cluster::Cluster,
    connection::Pool,
    error::Failure,
    key_name,
    script::{Invocation, Loading},
    wire::Asked,
};

#[derive(Debug)]
pub(super) enum Backend {
    One(Box<Pool>, Loading),
    Cluster(Box<Cluster>),
}

impl Backend {
    /// What can be decided by one call: the lines of one slot. A single server is one slot. In the
    /// order of the slots, so that checks that share several are less likely to undo each other.
    pub(super) fn by_slot(&self, asked: Vec<Asked>) -> SmallVec<[(u16, Vec<Asked>); 1]> {
        let mut slots: SmallVec<[(u16, Vec<Asked>); 1]> = SmallVec::new();
        match self {
            Self::One(..) if asked.is_empty() => {}
            Self::One(..) => slots.push((0, asked)),
            Self::Cluster(_) => {
                for line in asked {
                    let slot = key_name::slot(&line.key);
                    match slots.iter_mut().find(|(other, _)| *other == slot) {
                        Some((_, lines)) => lines.push(line),
                        None => slots.push((slot, vec![line])),
                    }
                }
                slots.sort_by_key(|(slot, _)| *slot);
            }
        }
        slots
    }

    pub(super) async fn send(&self, slot: u16, call: &Invocation) -> Result<Value, Failure> {
        match self {
            Self::One(pool, loading) => {
                let is_answer = |value: &Value| call.is_answer(value);
                loading.run(call, |command| pool.send(command, is_answer)).await
            }
            Self::Cluster(cluster) => cluster.run(slot, call).await,
        }
    }
}
