//! How a request becomes calls of the script: one, or in a cluster one for each slot.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    coalesce::Calls,
    wire::{self, Asked, Check, Operation},
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    store::{Line, Ruling, Source},
};

/// The lines of one slot, and the answers to them.
struct Group {
    slot: u16,
    check: Check,
    answers: SmallVec<[Line; 1]>,
}

impl Calls {
    pub(super) async fn decide(
        &self,
        operation: Operation,
        asked: Vec<Asked>,
        now: Option<u64>,
    ) -> Result<Ruling, Error> {
        let count = asked.len();
        let group =
            |(slot, asked)| Group { slot, check: wire::in_order(asked), answers: SmallVec::new() };
        let mut groups: SmallVec<[Group; 1]> =
            self.backend().by_slot(asked).into_iter().map(group).collect();
        let mut time = Timestamp::default();
        for index in 0..groups.len() {
            let result = self.run(operation, &mut groups[index], now).await;
            let denied = operation == Operation::Acquire && result.is_ok() && {
                let Group { check, answers, .. } = &groups[index];
                !check.iter().zip(answers).all(|(asked, line)| asked.passed(line))
            };
            if groups.len() > 1 && operation == Operation::Acquire && (denied || result.is_err()) {
                // All or nothing: what the groups before this one spent is given back.
                for group in &mut groups[..index] {
                    self.undo(group, now).await?;
                }
            }
            // What is not all or nothing has been done in the slots before this one.
            let partly = |error: Error| match operation {
                Operation::Acquire | Operation::Peek => error,
                _ if index > 0 => error.uncertain(),
                _ => error,
            };
            time = time.max(result.map_err(partly)?);
            if denied {
                for other in (0..groups.len()).filter(|other| *other != index) {
                    time = time.max(self.run(Operation::Peek, &mut groups[other], now).await?);
                }
                break;
            }
        }
        let mut lines: SmallVec<[Option<Line>; 1]> = SmallVec::from_elem(None, count);
        for group in groups {
            for (asked, line) in group.check.iter().zip(group.answers) {
                lines[asked.position] = Some(line);
            }
        }
        let lines: Option<SmallVec<[Line; 1]>> = lines.into_iter().collect();
        let lines = lines.ok_or_else(|| Error::new(ErrorKind::Protocol, "an answer is missing"))?;
        Ok(Ruling { time, source: Source::Shared, lines })
    }

    async fn run(
        &self,
        operation: Operation,
        group: &mut Group,
        now: Option<u64>,
    ) -> Result<Timestamp, Error> {
        let check = Arc::clone(&group.check);
        let reply = match operation {
            Operation::Acquire => self.acquire(group.slot, check, now).await?,
            _ => self.call(group.slot, operation, check, now).await?,
        };
        group.answers = reply.lines;
        Ok(reply.time)
    }

    /// Gives back what a group spent. It is tried once: a second try might give back twice.
    async fn undo(&self, group: &mut Group, now: Option<u64>) -> Result<(), Error> {
        let spent = group.check.iter().zip(&group.answers).filter(|(_, line)| line.units > 0);
        let asked: Vec<_> = spent.map(|(asked, line)| asked.undo(line)).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let check = wire::in_order(asked);
        let mut undo = Group { slot: group.slot, check, answers: SmallVec::new() };
        self.run(Operation::GiveBack, &mut undo, now).await.map(drop).map_err(|error| {
            let message = "part of a denied check could not be given back: it stays charged until \
                           its window has passed";
            Error::new(error.kind(), message).with_source(error).uncertain()
        })
    }
}
