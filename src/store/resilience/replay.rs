//! The replay, which charges the backlog to the store.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::task::yield_now;

use super::{
    backlog::{Backlog, BacklogEntry},
    fallback::Fallback,
};
use crate::{
    error::{Effect, Error, ErrorKind},
    policy::Charge,
    store::Answer,
};

/// The maximum number of charges in flight. Each charge is a call of its own, so that each has the
/// whole deadline and the failure of one does not affect the others.
const MAX_IN_FLIGHT: usize = 16;

/// Charges the units of the backlog that still count, each entry at most once. An entry stays in
/// the backlog if the store has certainly not charged it. Returns whether the backlog is empty now.
///
/// If the store `has_nodes`, an open breaker is that of one node, so the entries of the other nodes
/// are still charged.
pub(super) async fn replay(
    fallback: &Fallback,
    has_nodes: bool,
    send: impl Fn(&[Charge<'_>]) -> Answer,
) -> bool {
    let mut round = Round::new(fallback.backlog(), has_nodes);
    let mut in_flight: Vec<(BacklogEntry, Answer)> = Vec::with_capacity(MAX_IN_FLIGHT);
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
    backlog: &'b Backlog,
    /// The entries that were certainly not charged. They return to the backlog at the end of the
    /// round, so that no entry is tried twice in it.
    refused: Vec<BacklogEntry>,
    consecutive_failures: usize,
    has_nodes: bool,
    continues: bool,
}

impl<'b> Round<'b> {
    fn new(backlog: &'b Backlog, has_nodes: bool) -> Self {
        let refused = Vec::new();
        Self { backlog, refused, consecutive_failures: 0, has_nodes, continues: true }
    }

    fn record(&mut self, entry: BacklogEntry, error: Option<Error>) {
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
        for entry in self.refused.drain(..) {
            self.backlog.add_again(entry);
        }
    }
}

/// Waits for the first answer. Returns its entry, and the error if the charge failed.
async fn first_answered(
    in_flight: &mut Vec<(BacklogEntry, Answer)>,
) -> (BacklogEntry, Option<Error>) {
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
