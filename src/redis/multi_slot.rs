//! Requests over several slots of a cluster, with one call of the script for each slot.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    batch::{Batcher, CallOptions},
    divided::{Divided, PartOutcome, Refunds, to_the_end, wait_for_all},
    error::Failure,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Source, StoreReply},
    error::{Effect, Error},
    runtime::TimeLimit,
    store::Answer,
};

/// The longest time that a denied check waits for the refunds of other slots, and for the standings
/// of their keys. Neither can change the denial.
const MAX_DENIAL_WAIT: Duration = Duration::from_millis(10);

/// Executes a request over several slots.
///
/// # Errors
///
/// Returns an error if a call fails. The error's [`effect`](Error::effect) is that of the whole request.
pub(super) async fn execute(
    batcher: &Batcher,
    check: WireCheck,
    options: CallOptions,
) -> Result<StoreReply, Error> {
    let groups = SlotGroups::new(batcher, check, options);
    to_the_end(|caller| groups.run(caller)).await
}

/// The charges of a request, by slot.
///
/// The groups are in the order of the slots, so that two requests over the same slots rarely refuse
/// each other.
struct SlotGroups {
    batcher: Batcher,
    options: CallOptions,
    groups: Vec<SlotGroup>,
    /// The number of groups that have been asked.
    asked: usize,
    time: Timestamp,
    /// The time that the slowest group has taken, and its index.
    slowest: (Duration, usize),
}

/// The charges of one slot, and the replies to them.
struct SlotGroup {
    slot: u16,
    check: WireCheck,
    /// Empty until the group has replied.
    replies: SmallVec<[ChargeReply; 1]>,
    /// True for the trials of a denied check, which stay spent.
    is_trial: bool,
}

impl SlotGroups {
    fn new(batcher: &Batcher, check: WireCheck, options: CallOptions) -> Self {
        let mut slots: Vec<(u16, SmallVec<[WireCharge; 3]>)> = Vec::new();
        for charge in check.into_charges() {
            let slot = batcher.backend().slot(&charge);
            match slots.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, charges)) => charges.push(charge),
                None => slots.push((slot, SmallVec::from_iter([charge]))),
            }
        }
        slots.sort_by_key(|(slot, _)| *slot);
        let group = |(slot, charges)| SlotGroup {
            slot,
            check: WireCheck::new(charges),
            replies: SmallVec::new(),
            is_trial: false,
        };
        let groups = slots.into_iter().map(group).collect();
        let (time, slowest) = (Timestamp::default(), (Duration::ZERO, 0));
        Self { batcher: batcher.clone(), options, groups, asked: 0, time, slowest }
    }

    /// Runs the script for a group, and keeps its reply.
    async fn call(&mut self, index: usize, options: CallOptions) -> Result<(), Failure> {
        let group = &mut self.groups[index];
        // A queue takes the check, and may not give it back. The charges of a denied check are needed for the reply.
        let mut check = group.check.clone();
        let reply = self.batcher.run_by_deadline(group.slot, &mut check, options).await?;
        group.replies = reply.charges;
        self.time = self.time.max(reply.time);
        Ok(())
    }

    /// Runs the script for all groups at the same time: none of them decides about another.
    async fn call_all(&mut self) -> PartOutcome {
        let call = |group: &SlotGroup| group.send(&self.batcher, group.check.clone(), self.options);
        let replies = wait_for_all(self.groups.iter().map(call).collect()).await;
        let mut failed: Option<Error> = None;
        for (group, reply) in self.groups.iter_mut().zip(replies) {
            match (reply, &failed) {
                (Ok(reply), _) => {
                    (group.replies, self.time) = (reply.charges, self.time.max(reply.time));
                    self.asked += 1;
                }
                (Err(error), Some(first)) => {
                    let effect = first.effect().and(error.effect());
                    failed = failed.map(|first| first.with_effect(effect));
                }
                (Err(error), None) => {
                    failed = Some(error.with_node(self.batcher.backend().node(group.slot).0));
                }
            }
        }
        failed.map_or(PartOutcome::Continue, |error| PartOutcome::Failed(error, None))
    }

    /// Moves the trials of a denied check into groups of their own: they stay spent, and those of the
    /// slots that have not been asked are still spent.
    fn split_off_trials(&mut self) {
        let trials: Vec<_> =
            self.groups.iter_mut().filter_map(SlotGroup::split_off_trials).collect();
        self.groups.retain(|group| !group.check.charges().is_empty());
        self.groups.extend(trials);
    }

    /// Returns the error of a group that has failed. The deadline is for all slots, so the slowest one
    /// has missed it.
    fn error(&self, index: usize, failure: Failure) -> Error {
        let is_late = matches!(failure, Failure::TimedOut(_));
        let culprit = if is_late { self.slowest.1 } else { index };
        let SlotGroup { slot, check, .. } = &self.groups[culprit];
        let node = self.batcher.backend().node(*slot).0;
        self.batcher.error(*slot, check, failure).with_node(node)
    }
}

impl Divided for SlotGroups {
    type Part = usize;

    fn next_part(&self) -> Option<usize> {
        (self.asked < self.groups.len()).then_some(self.asked)
    }

    async fn ask(&mut self, index: usize) -> PartOutcome {
        if self.options.operation != Operation::Acquire {
            return self.call_all().await;
        }
        let start = Instant::now();
        let result = self.call(index, self.options).await;
        self.slowest = self.slowest.max((start.elapsed(), index));
        if let Err(failure) = result {
            return PartOutcome::Failed(self.error(index, failure), None);
        }
        self.asked += 1;
        match self.groups[index].is_denied() {
            true => {
                self.split_off_trials();
                PartOutcome::Denied(None)
            }
            false => PartOutcome::Continue,
        }
    }

    /// Starts the refunds of the groups that have spent units, because a check spends all or nothing. The
    /// [trials](Self::split_off_trials) of a denied check stay charged.
    fn undo(&mut self) -> Refunds<usize> {
        let options = CallOptions { operation: Operation::Refund, deadline: None, ..self.options };
        match self.options.operation {
            Operation::Acquire => {
                let groups = self.groups.iter_mut().enumerate().filter(|(_, it)| !it.is_trial);
                let batcher = &self.batcher;
                let refunds =
                    groups.filter_map(|(at, it)| Some((at, it.refund(batcher, options)?)));
                Refunds::new(refunds, Effect::None)
            }
            Operation::Peek | Operation::SelfTest => Refunds::new([], Effect::None),
            Operation::Force
            | Operation::Refund
            | Operation::Reset
            | Operation::Block
            | Operation::Unblock => match self.asked {
                0 => Refunds::new([], Effect::None),
                _ => Refunds::new([], Effect::Applied),
            },
        }
    }

    /// Takes the standings from the refunds, and asks the other slots for those of their keys, and to spend
    /// their trials. If a slot does not answer in time, its keys are reported as unused, which does not
    /// change the denial.
    async fn complete_denial(&mut self, refunds: &mut Refunds<usize>) {
        let (groups, time) = (&mut self.groups, &mut self.time);
        let keep = |index: &usize, reply: StoreReply| {
            groups[*index].keep_refund(&reply);
            *time = (*time).max(reply.time);
        };
        refunds.wait(Some(self.options.denial_deadline()), keep).await;
        let deadline = Some(self.options.denial_deadline());
        let peek = CallOptions { operation: Operation::Peek, deadline, ..self.options };
        for index in 0..self.groups.len() {
            let options = if self.groups[index].is_trial { self.options } else { peek };
            if self.groups[index].replies.is_empty() && self.call(index, options).await.is_err() {
                self.groups[index].assume_unused();
            }
        }
    }

    fn refund_limit(&self) -> Option<TimeLimit> {
        Some(self.options.denial_deadline())
    }

    /// Joins the replies, in the order of the charges in the caller's request.
    fn reply(&mut self) -> Result<StoreReply, Error> {
        let lines = self.groups.iter().flat_map(|it| it.check.charges().iter().zip(&it.replies));
        let mut replies: Vec<_> =
            lines.map(|(charge, reply)| (charge.position(), *reply)).collect();
        replies.sort_by_key(|(position, _)| *position);
        let replies = replies.into_iter().map(|(_, reply)| reply);
        Ok(StoreReply::new(self.time, Source::Shared, replies))
    }
}

impl CallOptions {
    /// Returns the end of a wait for something that cannot change a denial.
    fn denial_deadline(&self) -> TimeLimit {
        let until = TimeLimit::after(MAX_DENIAL_WAIT);
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }
}

impl SlotGroup {
    fn is_denied(&self) -> bool {
        let mut replies = self.check.charges().iter().zip(&self.replies);
        !replies.all(|(charge, reply)| charge.admits(reply))
    }

    /// Removes the trials, with the replies to them. Returns them as a group, if there are any.
    fn split_off_trials(&mut self) -> Option<Self> {
        if !self.check.charges().iter().any(WireCharge::is_trial) {
            return None;
        }
        let of = |is_trial: bool| {
            let charges = self.check.charges().iter();
            let charges = charges.filter(|charge| charge.is_trial() == is_trial).cloned().collect();
            let lines = self.check.charges().iter().zip(&self.replies);
            let replies = lines.filter(|(charge, _)| charge.is_trial() == is_trial);
            let replies = replies.map(|(_, reply)| *reply).collect();
            Self { slot: self.slot, check: WireCheck::new(charges), replies, is_trial }
        };
        let trials = of(true);
        *self = of(false);
        Some(trials)
    }

    /// Returns the refund of the units that the group has spent, if it has spent any. The replies then
    /// have the standings without these units.
    ///
    /// If the group has charges that spent nothing, their replies are forgotten: the refund may change the
    /// standings of the same keys.
    fn refund(&mut self, batcher: &Batcher, options: CallOptions) -> Option<Answer> {
        let spent = self.check.charges().iter().zip(&self.replies);
        let spent = spent.filter(|(_, reply)| reply.units > 0);
        let charges: SmallVec<_> = spent.map(|(charge, reply)| charge.undo(reply)).collect();
        if charges.is_empty() {
            return None;
        }
        match charges.len() == self.replies.len() {
            true => self.replies.iter_mut().for_each(|reply| *reply = reply.unspent()),
            false => self.replies.clear(),
        }
        Some(self.send(batcher, WireCheck::new(charges), options))
    }

    /// Starts a call of the script for charges of this slot.
    fn send(&self, batcher: &Batcher, mut check: WireCheck, options: CallOptions) -> Answer {
        let (batcher, slot) = (batcher.clone(), self.slot);
        Answer::pending(async move {
            let reply = batcher.run_by_deadline(slot, &mut check, options).await;
            let reply = reply.map_err(|failure| batcher.error(slot, &check, failure))?;
            Ok(StoreReply { time: reply.time, source: Source::Shared, charges: reply.charges })
        })
    }

    /// Takes the standings from the reply of a refund.
    fn keep_refund(&mut self, refunded: &StoreReply) {
        for (reply, refunded) in self.replies.iter_mut().zip(&refunded.charges) {
            reply.standing = refunded.standing;
        }
    }

    fn assume_unused(&mut self) {
        let charges = self.check.charges().iter();
        self.replies = charges.map(WireCharge::reply_of_full_key).collect();
    }
}
