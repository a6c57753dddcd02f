//! The keys that a reset or a block has found in this process.

use smallvec::SmallVec;

use crate::{decision::StoreReply, store::Answer};

/// The keys of a request that the fallback has found. It may know units that the store does not know yet.
#[derive(Debug, Default)]
pub(super) struct FoundKeys(SmallVec<[bool; 8]>);

impl FoundKeys {
    pub(super) fn new(found: impl Iterator<Item = bool>) -> Self {
        Self(found.collect())
    }

    /// Adds these keys to those that the store has found.
    #[inline]
    pub(super) fn join(self, answer: Answer) -> Answer {
        if self.0.contains(&true) { self.join_found(answer) } else { answer }
    }

    fn join_found(self, answer: Answer) -> Answer {
        match answer.now() {
            Ok(reply) => Answer::ready(reply.map(|reply| self.join_reply(reply))),
            Err(answer) => Answer::pending(async { answer.await.map(|it| self.join_reply(it)) }),
        }
    }

    fn join_reply(self, mut reply: StoreReply) -> StoreReply {
        for (charge_reply, is_found) in reply.charges.iter_mut().zip(self.0) {
            charge_reply.units |= u64::from(is_found);
        }
        reply
    }
}
