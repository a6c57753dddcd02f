//! The replay, which charges the backlog to the store.

use std::{future::poll_fn, pin::Pin, slice, task::Poll};

use tokio::task::yield_now;

use super::{backlog::SHARDS, fallback::Fallback};
use crate::{
    algorithm::{Asked, At, KeyState, UnlimitedMemory},
    clock::Timestamp,
    error::ErrorKind,
    policy::Charge,
    store::Answer,
};

/// The maximum number of charges in flight. Each charge is a call of its own, so that each has the
/// whole deadline and the failure of one does not affect the others.
const MAX_IN_FLIGHT: usize = 16;

impl Fallback {
    /// Charges the units of the backlog that still count, with one forced charge for each key. A charge
    /// that fails is not repeated. If the store fails, the other keys stay in the backlog, and so do the keys
    /// whose charge `is_rejected`.
    ///
    /// Returns whether the store has answered to the end.
    pub(in crate::remote) async fn replay(
        &self,
        is_rejected: impl Fn(&Charge<'_>) -> bool,
        send: impl Fn(&[Charge<'_>]) -> Answer,
    ) -> bool {
        for shard in 0..SHARDS {
            loop {
                let taken = self.backlog.take(shard, MAX_IN_FLIGHT, &is_rejected);
                if taken.is_empty() {
                    break;
                }
                let charges =
                    taken.iter().filter_map(|(charge, last)| self.still_spent(charge, *last));
                let calls = charges.map(|charge| send(slice::from_ref(&charge)));
                if !all_answered(calls.collect()).await {
                    return false;
                }
                // A store may answer at once.
                yield_now().await;
            }
        }
        true
    }

    /// Returns a charge of the units that still count, or `None` if there are none.
    ///
    /// The local store says how many units of the key still count. It may know more units than the backlog, if
    /// the key was also charged in another way. If it was full and has forgotten the key, the units count as if all
    /// had been charged at the `last` time.
    fn still_spent(&self, charge: &Charge<'static>, last: Timestamp) -> Option<Charge<'static>> {
        let now = self.clock.now();
        let outstanding = self.local.outstanding(charge, now);
        let outstanding = outstanding.unwrap_or_else(|| outstanding_alone(charge, last, now));
        let units = outstanding.min(charge.cost());
        (units > 0).then(|| charge.clone().with_cost(units))
    }
}

/// Returns how many units of a charge at `last` count at `now`, if the key was not charged otherwise.
fn outstanding_alone(charge: &Charge<'_>, last: Timestamp, now: Timestamp) -> u64 {
    let quota = charge.quota_in_force();
    let mut state = KeyState::new(quota.algorithm());
    let at = At { now: last, budget: &UnlimitedMemory };
    state.spend(&quota, Asked::forced(charge.cost()), at);
    state.outstanding(now)
}

/// Waits for all replies. Returns `false` if one of them shows that the store fails. A store that refuses a
/// charge because of its key works.
async fn all_answered(mut calls: Vec<Answer>) -> bool {
    let mut has_failed = false;
    poll_fn(|cx| {
        calls.retain_mut(|call| {
            let Poll::Ready(reply) = Pin::new(call).poll(cx) else { return true };
            has_failed |= reply
                .is_err_and(|error| error.is_unavailable() && error.kind() != ErrorKind::WrongType);
            false
        });
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    !has_failed
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, sync::Arc};

    use super::{
        super::{super::instances::Instances, fallback::Cause},
        *,
    };
    use crate::{
        clock::Timestamp,
        decision::{Source, StoreReply},
        error::Error,
        key::Key,
        memory::MemoryConfig,
        policy::Policy,
        store::Request,
    };

    /// The keys of a node whose breaker is open stay, and so do the keys behind a failure.
    #[tokio::test]
    async fn keys_whose_charge_was_not_sent_stay() {
        let fallback =
            Fallback::new(MemoryConfig::default(), Arc::new(Instances::new(Some(1), false)));
        let policy = Policy::new("p", "10/h").unwrap();
        let keys = 0..200_u64;
        for key in keys.clone() {
            let charge = [policy.charge(key, 3)];
            fallback.execute(Request::Acquire(&charge), Cause::Rejected).unwrap();
        }
        let odd: Vec<Key> = keys.filter(|key| key % 2 == 1).map(Key::from).collect();
        let sent = RefCell::new(Vec::new());
        let replay = async |are_odd_rejected: bool, max: usize| {
            let is_rejected = |charge: &Charge<'_>| are_odd_rejected && odd.contains(charge.key());
            let answer = |charges: &[Charge<'_>]| {
                sent.borrow_mut().push(*charges[0].key());
                Answer::ready(match sent.borrow().len() <= max {
                    true => Ok(StoreReply::new(Timestamp::default(), Source::Shared, [])),
                    false => Err(Error::new(ErrorKind::Unavailable, "it is down")),
                })
            };
            fallback.replay(is_rejected, answer).await
        };
        assert!(replay(true, 200).await && !fallback.backlog().is_empty());
        assert_eq!(sent.borrow().len(), 100);
        assert!(!sent.borrow().iter().any(|key| odd.contains(key)));
        assert!(!replay(false, 110).await && !fallback.backlog().is_empty());
        let failed = sent.borrow().len() - 110;
        assert!((1..MAX_IN_FLIGHT).contains(&failed), "{failed}");
        assert!(replay(false, 200).await && fallback.backlog().is_empty());
        let mut keys = sent.into_inner();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 200, "each key once");
    }
}
