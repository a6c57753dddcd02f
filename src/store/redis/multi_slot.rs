//! How a request becomes calls of the script: one, or in a cluster one for each slot.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{
    batch::Calls,
    error::Failure,
    wire::{self, Asked, Check, Operation},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    telemetry,
};

/// How long a denial waits for what other slots have to say, which cannot change it.
const A_MOMENT: Duration = Duration::from_millis(10);

/// The lines of one slot, and the answers to them.
struct Group {
    slot: u16,
    check: Check,
    answers: SmallVec<[ChargeReply; 1]>,
}

impl Group {
    fn new((slot, asked): (u16, Vec<Asked>)) -> Self {
        Self { slot, check: wire::in_order(asked), answers: SmallVec::new() }
    }

    /// The answers if nothing was spent, which is the best that can be said of a slot that does not
    /// answer.
    fn assume_untouched(&mut self) {
        self.answers = self.check.iter().map(Asked::untouched).collect();
    }

    fn is_denied(&self) -> bool {
        !self.check.iter().zip(&self.answers).all(|(asked, line)| asked.passed(line))
    }
}

impl Calls {
    pub(super) async fn decide(
        &self,
        operation: Operation,
        asked: Vec<Asked>,
        now: Option<u64>,
    ) -> Result<StoreReply, Error> {
        let groups = self.backend().by_slot(asked);
        if groups.len() <= 1 {
            return self.decide_groups(operation, groups, now).await;
        }
        // In a task: one that was dropped between two slots would spend a part. It ends with its
        // last call, which has a deadline.
        let calls = self.clone();
        let all = tokio::spawn(async move { calls.decide_groups(operation, groups, now).await });
        all.await.unwrap_or_else(|error| {
            let message = "a check was not brought to its end: part of it may stay charged";
            Err(Error::new(ErrorKind::Unavailable, message)
                .with_source(error)
                .with_effect(Effect::Unknown))
        })
    }

    async fn decide_groups(
        &self,
        operation: Operation,
        groups: SmallVec<[(u16, Vec<Asked>); 1]>,
        now: Option<u64>,
    ) -> Result<StoreReply, Error> {
        let mut groups: SmallVec<[Group; 1]> = groups.into_iter().map(Group::new).collect();
        let mut time = Timestamp::default();
        // Whether something may stay charged though the whole fails.
        let mut kept = false;
        for index in 0..groups.len() {
            let result = self.run(operation, &mut groups[index], now).await;
            let denied =
                operation == Operation::Acquire && result.is_ok() && groups[index].is_denied();
            let soon = Instant::now() + A_MOMENT;
            if operation == Operation::Acquire && (denied || result.is_err()) {
                // All or nothing: what the groups before this one spent is given back.
                let undone: Vec<_> =
                    groups[..index].iter().filter_map(|it| self.undo(it, now)).collect();
                for undone in undone {
                    kept |= !matches!(timeout_at(soon, undone).await, Ok(Ok(true)));
                }
            }
            // What is not all or nothing has been done in the slots before this one.
            kept |= index > 0 && !matches!(operation, Operation::Acquire | Operation::Peek);
            time = time.max(result.map_err(|failure| match kept {
                true => Error::from(failure).with_effect(Effect::Unknown),
                false => Error::from(failure),
            })?);
            if denied {
                for other in (0..groups.len()).filter(|other| *other != index) {
                    let look = self.run(Operation::Peek, &mut groups[other], now);
                    match timeout_at(soon, look).await {
                        Ok(Ok(seen)) => time = time.max(seen),
                        // Denied all the same.
                        Ok(Err(_)) | Err(_) => groups[other].assume_untouched(),
                    }
                }
                break;
            }
        }
        let count = groups.iter().map(|group| group.check.len()).sum();
        let mut lines: SmallVec<[Option<ChargeReply>; 1]> = SmallVec::from_elem(None, count);
        for group in groups {
            for (asked, line) in group.check.iter().zip(group.answers) {
                lines[asked.position] = Some(line);
            }
        }
        let lines: Option<SmallVec<[ChargeReply; 1]>> = lines.into_iter().collect();
        let lines = lines.ok_or_else(|| Error::new(ErrorKind::Protocol, "an answer is missing"))?;
        Ok(StoreReply { time, source: Source::Shared, charges: lines })
    }

    async fn run(
        &self,
        operation: Operation,
        group: &mut Group,
        now: Option<u64>,
    ) -> Result<Timestamp, Failure> {
        let check = Arc::clone(&group.check);
        let reply = match operation {
            Operation::Acquire => self.acquire(group.slot, check, now).await?,
            _ => self.call(group.slot, operation, check, now).await?,
        };
        group.answers = reply.lines;
        Ok(reply.time)
    }

    /// Gives back what a group spent, in a task of its own that ends with the call, and says whether
    /// it could. It is tried once: a second try might give back twice. What cannot be given back stays
    /// charged until its window has passed.
    fn undo(&self, group: &Group, now: Option<u64>) -> Option<JoinHandle<bool>> {
        let spent = group.check.iter().zip(&group.answers).filter(|(_, line)| line.units > 0);
        let asked: Vec<_> = spent.map(|(asked, line)| asked.undo(line)).collect();
        if asked.is_empty() {
            return None;
        }
        let (calls, mut undo) = (self.clone(), Group::new((group.slot, asked)));
        Some(tokio::spawn(async move {
            let undone = calls.run(Operation::Refund, &mut undo, now).await.is_ok();
            if !undone {
                telemetry::undo_failed();
            }
            undone
        }))
    }
}
