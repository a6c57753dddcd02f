//! The self-test of a store.

use std::slice;

use smallvec::{SmallVec, smallvec};
use tokio::task::JoinSet;

use super::{
    backend::Backend,
    batch::Batcher,
    error::{Failure, SelfTestFailure, SentFlag},
    key_name::{self, KeyNames},
    script::ScriptCall,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::store::probe_charge;

/// The most scratch keys that are tried to find one for each node of a cluster.
const MAX_SCRATCH_KEYS: usize = 16_384;

type ScratchKeys = SmallVec<[WireCharge; 3]>;

/// The self-test of a store: it connects, and runs `lua/self_test.lua` on scratch keys.
///
/// The script runs each of its commands, so a missing right, a wrong key pattern, a server that
/// does not write, a server that is too old, and a node of a cluster that was addressed as a single
/// server fail the self-test. The scratch keys have the configured prefix. The script deletes them.
#[derive(Debug, Clone)]
pub(super) struct SelfTest {
    batcher: Batcher,
    key_names: KeyNames,
}

impl SelfTest {
    pub(super) fn new(batcher: Batcher, key_names: KeyNames) -> Self {
        Self { batcher, key_names }
    }

    /// Connects and runs the self-test.
    ///
    /// In a cluster it runs on each node. A node that cannot be reached, or cannot serve requests for
    /// the time being, fails the self-test only if all nodes do: the other nodes decide their keys.
    ///
    /// # Errors
    ///
    /// Returns an error if no server can be reached, or one of them refuses a command.
    pub(super) async fn run(&self) -> Result<(), SelfTestFailure> {
        let backend = self.batcher.backend();
        backend.connect().await.map_err(|failure| self.failure(0, failure))?;
        match backend {
            Backend::Server(..) => self.try_keys(0, self.keys_of_two_slots()).await,
            Backend::Cluster(_) => self.try_nodes().await,
        }
    }

    async fn try_nodes(&self) -> Result<(), SelfTestFailure> {
        let mut tests = JoinSet::new();
        for (slot, key) in self.key_of_each_node() {
            let self_test = self.clone();
            tests.spawn(async move { self_test.try_keys(slot, smallvec![key]).await });
        }
        let (mut has_passed, mut unreachable) = (false, None);
        while let Some(result) = tests.join_next().await {
            match result {
                Ok(Ok(())) => has_passed = true,
                Ok(Err(failed)) if failed.failure.is_refusal() => return Err(failed),
                Ok(Err(failed)) => unreachable = Some(failed),
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        match unreachable {
            Some(failed) if !has_passed => Err(failed),
            _ => Ok(()),
        }
    }

    /// Runs the script for these scratch keys, on the server that has the slot.
    async fn try_keys(&self, slot: u16, keys: ScratchKeys) -> Result<(), SelfTestFailure> {
        let (check, sent_flag) = (WireCheck::new(keys), SentFlag::default());
        let call = ScriptCall::new(Operation::SelfTest, slice::from_ref(&check), None, &sent_flag);
        let result = self.batcher.backend().run(slot, &call).await;
        result.map(drop).map_err(|failure| self.failure(slot, failure))
    }

    /// Returns two scratch keys of different slots. A single server takes them in one call, and a
    /// node of a cluster does not.
    fn keys_of_two_slots(&self) -> ScratchKeys {
        let mut keys = ScratchKeys::new();
        for (slot, key) in self.scratch_keys() {
            match keys.first() {
                None => keys.push(key),
                Some(first) if key_name::slot(first.key_name()) == slot => {}
                Some(_) => {
                    keys.push(key);
                    break;
                }
            }
        }
        keys
    }

    /// Returns a scratch key for each node that has slots, and the slot of the key.
    fn key_of_each_node(&self) -> Vec<(u16, WireCharge)> {
        let Backend::Cluster(cluster) = self.batcher.backend() else { return Vec::new() };
        let mut untried = cluster.topology().owners();
        let mut keys = Vec::new();
        for (slot, key) in self.scratch_keys() {
            if untried.is_empty() {
                break;
            }
            if untried.remove(&cluster.node(slot)) {
                keys.push((slot, key));
            }
        }
        keys
    }

    /// Returns random keys with their slots.
    fn scratch_keys(&self) -> impl Iterator<Item = (u16, WireCharge)> {
        let charges = (0..MAX_SCRATCH_KEYS).filter_map(|_| probe_charge());
        charges.map(|charge| {
            let key = WireCharge::new(&self.key_names, 0, &charge);
            (key_name::slot(key.key_name()), key)
        })
    }

    fn failure(&self, slot: u16, failure: Failure) -> SelfTestFailure {
        SelfTestFailure { failure, place: self.batcher.backend().place(slot) }
    }
}
