//! How a request becomes calls of the script: one, or in a cluster one for each slot.

use smallvec::SmallVec;

use super::{
    coalesce::Calls,
    script::Invocation,
    wire::{self, Asked, Operation},
};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    store::{Line, Ruling, Source},
};

/// The lines of one slot, and the answers to them.
struct Group {
    slot: u16,
    asked: Vec<Asked>,
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
        let mut groups = self.by_slot(asked);
        let mut time = Timestamp::default();
        for index in 0..groups.len() {
            let result = self.run(operation, &mut groups[index], now).await;
            let denied = operation == Operation::Acquire && result.is_ok() && {
                let Group { asked, answers, .. } = &groups[index];
                !asked.iter().zip(answers).all(|(asked, line)| asked.passed(line))
            };
            if groups.len() > 1 && operation == Operation::Acquire && (denied || result.is_err()) {
                // All or nothing: what the groups before this one spent is given back.
                for group in &mut groups[..index] {
                    self.undo(group, now).await?;
                }
            }
            time = time.max(result?);
            if denied {
                for other in (0..groups.len()).filter(|other| *other != index) {
                    time = time.max(self.run(Operation::Peek, &mut groups[other], now).await?);
                }
                break;
            }
        }
        let mut lines: Vec<Option<Line>> = vec![None; count];
        for group in groups {
            for (asked, line) in group.asked.iter().zip(group.answers) {
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
        let check = wire::pack(&mut group.asked);
        let value = match operation {
            Operation::Acquire => self.acquire(group.slot, check, now).await?,
            _ => {
                let call = Invocation::new(operation, check, now);
                self.backend().send(group.slot, &call).await?
            }
        };
        let (time, answers) = wire::read(operation, &group.asked, value)?;
        group.answers = answers;
        Ok(time)
    }

    /// Gives back what a group spent. It is tried once: a second try might give back twice.
    async fn undo(&self, group: &mut Group, now: Option<u64>) -> Result<(), Error> {
        let spent = group.asked.iter().zip(&group.answers).filter(|(_, line)| line.units > 0);
        let asked: Vec<_> = spent.map(|(asked, line)| asked.undo(line)).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let mut undo = Group { slot: group.slot, asked, answers: SmallVec::new() };
        self.run(Operation::GiveBack, &mut undo, now).await.map(drop).map_err(|error| {
            let message = "part of a denied check could not be given back: it stays charged until \
                           its window has passed";
            Error::new(error.kind(), message).with_source(error)
        })
    }

    /// Groups in the order of their slots, so that checks that share several are less likely to
    /// undo each other.
    fn by_slot(&self, asked: Vec<Asked>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for line in asked {
            let slot = self.backend().slot(&line.key);
            match groups.iter_mut().find(|group| group.slot == slot) {
                Some(group) => group.asked.push(line),
                None => groups.push(Group { slot, asked: vec![line], answers: SmallVec::new() }),
            }
        }
        groups.sort_by_key(|group| group.slot);
        groups
    }
}
