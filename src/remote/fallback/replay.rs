//! The replay, which charges the backlog to the store.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use tokio::task::yield_now;

use super::{backlog::TakenEntry, fallback::Fallback};
use crate::{
    error::{Effect, Error, ErrorKind},
    policy::Charge,
    store::Answer,
};

/// The maximum number of charges in flight. Each charge is a call of its own, so that each has the
/// whole deadline and the failure of one does not affect the others.
const MAX_IN_FLIGHT: usize = 16;

/// The time between two rounds of a replay while the store refuses entries of the backlog. The
/// rounds end, because an entry is dropped when its units no longer count.
pub(in crate::remote) const REPLAY_INTERVAL: Duration = Duration::from_secs(1);

/// Charges the units of the backlog that still count, each entry at most once. An entry stays in
/// the backlog if the store has certainly not charged it. Returns whether the backlog is empty now.
///
/// If the store `has_nodes`, an open breaker is that of one node, so the entries of the other nodes
/// are still charged.
pub(in crate::remote) async fn replay(
    fallback: &Fallback,
    has_nodes: bool,
    send: impl Fn(&[Charge<'_>]) -> Answer,
) -> bool {
    let mut round = Round::new(has_nodes);
    let mut in_flight: Vec<(TakenEntry<'_>, Answer)> = Vec::with_capacity(MAX_IN_FLIGHT);
    loop {
        while round.continues && in_flight.len() < MAX_IN_FLIGHT {
            let Some((entry, charge)) = fallback.next_to_replay() else { break };
            if let Some(charge) = charge {
                in_flight.push((entry, send(&[charge])));
            }
        }
        if in_flight.is_empty() {
            return round.continues && round.refused.is_empty();
        }
        let (entry, error) = first_answered(&mut in_flight).await;
        round.record(entry, error);
        // Rejected calls are answered at once, so without this the task would never yield.
        if round.refused.len() % MAX_IN_FLIGHT == MAX_IN_FLIGHT - 1 {
            yield_now().await;
        }
    }
}

/// One pass over the backlog.
struct Round<'b> {
    /// The entries that were certainly not charged. They return to the backlog at the end of the
    /// round, so that no entry is tried twice in it.
    refused: Vec<TakenEntry<'b>>,
    consecutive_failures: usize,
    has_nodes: bool,
    continues: bool,
}

impl<'b> Round<'b> {
    fn new(has_nodes: bool) -> Self {
        Self { refused: Vec::new(), consecutive_failures: 0, has_nodes, continues: true }
    }

    fn record(&mut self, entry: TakenEntry<'b>, error: Option<Error>) {
        let Some(error) = error else {
            self.consecutive_failures = 0;
            return;
        };
        let is_rejected = error.kind() == ErrorKind::BreakerOpen;
        if is_rejected && self.has_nodes {
            self.refused.push(entry);
            return;
        }
        self.consecutive_failures += 1;
        // The store may refuse one entry because of its key. A store that refuses many is down.
        let is_down = error.effect() != Effect::None || is_rejected;
        self.continues &= !is_down && self.consecutive_failures < MAX_IN_FLIGHT;
        if error.effect() == Effect::None {
            self.refused.push(entry);
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.refused.drain(..).for_each(TakenEntry::add_again);
    }
}

/// Waits for the first answer. Returns its entry, and the error if the charge failed.
async fn first_answered<'b>(
    in_flight: &mut Vec<(TakenEntry<'b>, Answer)>,
) -> (TakenEntry<'b>, Option<Error>) {
    poll_fn(|cx| {
        for index in 0..in_flight.len() {
            if let Poll::Ready(reply) = Pin::new(&mut in_flight[index].1).poll(cx) {
                let (entry, _) = in_flight.swap_remove(index);
                return Poll::Ready((entry, reply.err()));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use futures_util::poll;

    use super::{super::fallback::Cause, *};
    use crate::{
        clock::Timestamp,
        decision::{Source, StoreReply},
        key::Key,
        memory::MemoryConfig,
        policy::Policy,
        store::Request,
    };

    /// A reset that succeeds stays in force, whether the store refuses the units of the key before it
    /// or after it.
    #[tokio::test]
    async fn a_reset_during_a_replay_is_not_undone() {
        for is_refused_first in [true, false] {
            let fallback = Fallback::new(MemoryConfig::default(), 1);
            let policy = Policy::new("p", "10/h").unwrap();
            for key in ["alice", "bob", "carol"] {
                let charge = [policy.charge(key, 3)];
                fallback.execute(Request::Acquire(&charge), Cause::Rejected).unwrap();
            }
            let refuse = || Err(Error::new(ErrorKind::WrongType, "something else"));
            let answers = Arc::new(AtomicBool::new(false));
            let send = |charges: &[Charge<'_>]| {
                let is_alice = *charges[0].key() == Key::from("alice");
                let is_refused = is_alice || *charges[0].key() == Key::from("carol");
                if is_alice && is_refused_first {
                    return Answer::ready(refuse());
                }
                let answers = Arc::clone(&answers);
                Answer::pending(poll_fn(move |_| match answers.load(Ordering::Relaxed) {
                    false => Poll::Pending,
                    true if is_refused => Poll::Ready(refuse()),
                    true => {
                        Poll::Ready(Ok(StoreReply::new(Timestamp::default(), Source::Shared, [])))
                    }
                }))
            };
            let mut round = Box::pin(replay(&fallback, false, send));
            assert!(poll!(&mut round).is_pending());
            fallback.reset(&[policy.charge("alice", 1)]);
            answers.store(true, Ordering::Relaxed);
            assert!(!round.await, "an entry was refused");
            let (left, _) = fallback.next_to_replay().expect("the entry of carol");
            assert_eq!(*left.entry().charge().key(), Key::from("carol"));
            assert!(fallback.next_to_replay().is_none(), "alice was reset");
        }
    }
}
