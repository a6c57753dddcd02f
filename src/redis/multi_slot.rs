//! Requests over several slots of a cluster, with one call of the script for each slot.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{task::JoinHandle, time::Instant};

use super::{
    batch::Batcher,
    error::{Failure, SentFlag},
    wire::{CheckReply, Operation, WireCharge, WireCheck},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    runtime::TimeLimit,
    telemetry,
};

/// The longest time that a denied check waits for the refunds of other slots, and for the standings
/// of their keys. Neither can change the denial.
const MAX_DENIAL_WAIT: Duration = Duration::from_millis(10);

/// The options that all calls of one request share.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOptions {
    pub(super) operation: Operation,
    pub(super) deadline: Option<TimeLimit>,
    /// The time that a test has set, in microseconds since the Unix epoch.
    pub(super) test_time: Option<u64>,
}

impl Batcher {
    /// Executes a request on each slot of its charges.
    ///
    /// # Errors
    ///
    /// Returns an error if a call fails. The error's [`effect`](Error::effect) is that of the whole request.
    pub(super) async fn execute(
        &self,
        check: &WireCheck,
        options: CallOptions,
    ) -> Result<StoreReply, Error> {
        let Some(slot) = self.backend().only_slot(check) else {
            return self.execute_in_task(check, options).await;
        };
        if check.charges().is_empty() {
            let charges = SmallVec::new();
            return Ok(StoreReply { time: Timestamp::default(), source: Source::Shared, charges });
        }
        let reply = self.run_by_deadline(slot, check, options).await;
        let reply = reply.map_err(|failure| self.error(slot, check, failure))?;
        Ok(reply.into_store_reply(check))
    }

    /// Returns the error of a call for the charges of one slot.
    fn error(&self, slot: u16, check: &WireCheck, failure: Failure) -> Error {
        let policies = failure.policies_of_foreign_key(check);
        let error = self.backend().place(slot).error(failure);
        match policies {
            Some(policies) => error.with_note(&format!("the policy of the key is {policies}")),
            None => error,
        }
    }

    /// Executes a request on several slots, in a task of its own that ends with its last call.
    /// Without the task, a request dropped between two slots would stay charged in part.
    async fn execute_in_task(
        &self,
        check: &WireCheck,
        options: CallOptions,
    ) -> Result<StoreReply, Error> {
        let (batcher, check) = (self.clone(), Box::new(check.clone()));
        let task = tokio::spawn(async move {
            SlotGroups::new(&batcher, &check, options).execute(check.charges().len()).await
        });
        task.await.unwrap_or_else(|error| {
            let message = "the task of the request has ended: part of it may stay charged";
            Err(Error::new(ErrorKind::Unavailable, message)
                .with_source(error)
                .with_effect(Effect::Unknown))
        })
    }

    /// Runs the script for the charges of one slot, or fails at the deadline.
    async fn run_by_deadline(
        &self,
        slot: u16,
        check: &WireCheck,
        CallOptions { operation, deadline, test_time }: CallOptions,
    ) -> Result<CheckReply, Failure> {
        let sent_flag = SentFlag::default();
        let in_time = {
            let mut call = pin!(self.run(slot, operation, check, test_time, &sent_flag));
            match deadline {
                None => Ok(call.await),
                Some(deadline) => deadline.wait(call.as_mut()).await,
            }
        };
        // The call has been dropped, so a request that has not been sent is never sent.
        in_time.unwrap_or_else(|_| Err(Failure::TimedOut(sent_flag.effect())))
    }
}

/// The charges of a request, by slot.
///
/// The groups are in the order of the slots, so that two requests over the same slots rarely refuse
/// each other.
struct SlotGroups<'b> {
    batcher: &'b Batcher,
    options: CallOptions,
    groups: Vec<SlotGroup>,
}

/// The charges of one slot, and the replies to them.
struct SlotGroup {
    slot: u16,
    check: WireCheck,
    replies: SmallVec<[ChargeReply; 1]>,
}

impl<'b> SlotGroups<'b> {
    fn new(batcher: &'b Batcher, check: &WireCheck, options: CallOptions) -> Self {
        let mut slots: Vec<(u16, SmallVec<[WireCharge; 3]>)> = Vec::new();
        for charge in check.charges() {
            let slot = batcher.backend().slot(charge);
            match slots.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, charges)) => charges.push(charge.clone()),
                None => slots.push((slot, SmallVec::from_iter([charge.clone()]))),
            }
        }
        slots.sort_by_key(|(slot, _)| *slot);
        let group = |(slot, charges)| SlotGroup {
            slot,
            check: WireCheck::new(charges),
            replies: SmallVec::new(),
        };
        Self { batcher, options, groups: slots.into_iter().map(group).collect() }
    }

    async fn execute(mut self, count: usize) -> Result<StoreReply, Error> {
        let is_acquire = self.options.operation == Operation::Acquire;
        let mut time = Timestamp::default();
        let mut slowest = (Duration::ZERO, 0);
        for index in 0..self.groups.len() {
            let start = Instant::now();
            let result = self.run(index, self.options).await;
            slowest = slowest.max((start.elapsed(), index));
            match result {
                Ok(group_time) => time = time.max(group_time),
                Err(failure) => {
                    // The deadline is for all slots, so the slowest one has missed it.
                    let is_late = matches!(failure, Failure::TimedOut(_));
                    let culprit = if is_late { slowest.1 } else { index };
                    let before = match self.options.operation {
                        // A check spends all or nothing, so the slots before this one refund.
                        Operation::Acquire => self.refund_before(index).await,
                        Operation::Peek | Operation::Trial => Effect::None,
                        _ if index == 0 => Effect::None,
                        Operation::Force
                        | Operation::Refund
                        | Operation::Reset
                        | Operation::Block
                        | Operation::Unblock => Effect::Applied,
                    };
                    let effect = combine(before, failure.effect());
                    let SlotGroup { slot, check, .. } = &self.groups[culprit];
                    let mut error = self.batcher.error(*slot, check, failure);
                    if effect != error.effect() {
                        error = error.with_note(
                            "this is about one slot of several: the charges in others may have \
                             been made",
                        );
                    }
                    return Err(error.with_effect(effect).with_node(self.node(culprit)));
                }
            }
            if is_acquire && self.groups[index].is_denied() {
                self.refund_before(index).await;
                time = time.max(self.peek_others(index).await);
                break;
            }
        }
        self.into_store_reply(time, count)
    }

    async fn run(&mut self, index: usize, options: CallOptions) -> Result<Timestamp, Failure> {
        let group = &mut self.groups[index];
        let reply = self.batcher.run_by_deadline(group.slot, &group.check, options).await?;
        group.replies = reply.charges;
        Ok(reply.time)
    }

    /// Returns the number of the node that has the slot of a group.
    fn node(&self, index: usize) -> u32 {
        self.batcher.backend().node(self.groups[index].slot).0
    }

    /// Refunds the units that the groups before `index` spent. Returns [`Effect::None`] if all of
    /// them were refunded.
    async fn refund_before(&self, index: usize) -> Effect {
        let deadline = self.denial_deadline();
        let refunds: Vec<_> =
            self.groups[..index].iter().filter_map(|group| self.refund(group)).collect();
        let mut effect = Effect::None;
        for mut refund in refunds {
            let refunded = deadline.wait(Pin::new(&mut refund)).await;
            effect = combine(
                effect,
                refunded.map_or(Effect::Unknown, |it| it.unwrap_or(Effect::Unknown)),
            );
        }
        effect
    }

    /// Refunds the units that a group spent, in a task of its own that ends with the call. Returns
    /// `None` if it spent none. A refund is tried once, because a second try might refund twice.
    fn refund(&self, group: &SlotGroup) -> Option<JoinHandle<Effect>> {
        let spent = group.check.charges().iter().zip(&group.replies);
        let spent = spent.filter(|(_, reply)| reply.units > 0);
        let charges: SmallVec<_> = spent.map(|(charge, reply)| charge.undo(reply)).collect();
        if charges.is_empty() {
            return None;
        }
        let (batcher, slot, check) = (self.batcher.clone(), group.slot, WireCheck::new(charges));
        let options = CallOptions { operation: Operation::Refund, deadline: None, ..self.options };
        Some(tokio::spawn(async move {
            let Err(failure) = batcher.run_by_deadline(slot, &check, options).await else {
                return Effect::None;
            };
            telemetry::undo_failed();
            match failure.effect() {
                Effect::None => Effect::Applied,
                _ => Effect::Unknown,
            }
        }))
    }

    /// Asks all slots but the one that denied for the standings of their keys. If a slot does not
    /// answer in time, its keys are reported as unused, which does not change the denial.
    async fn peek_others(&mut self, denied: usize) -> Timestamp {
        let deadline = Some(self.denial_deadline());
        let options = CallOptions { operation: Operation::Peek, deadline, ..self.options };
        let mut time = Timestamp::default();
        for index in (0..self.groups.len()).filter(|index| *index != denied) {
            match self.run(index, options).await {
                Ok(group_time) => time = time.max(group_time),
                Err(_) => self.groups[index].assume_unused(),
            }
        }
        time
    }

    fn denial_deadline(&self) -> TimeLimit {
        let until = TimeLimit::after(MAX_DENIAL_WAIT);
        self.options.deadline.map_or(until, |deadline| deadline.min(until))
    }

    /// Joins the replies, in the order of the charges in the caller's request.
    fn into_store_reply(self, time: Timestamp, count: usize) -> Result<StoreReply, Error> {
        let mut replies: SmallVec<[Option<ChargeReply>; 1]> = SmallVec::from_elem(None, count);
        for group in self.groups {
            for (charge, reply) in group.check.charges().iter().zip(group.replies) {
                replies[charge.position()] = Some(reply);
            }
        }
        let charges: Option<SmallVec<[ChargeReply; 1]>> = replies.into_iter().collect();
        let charges =
            charges.ok_or_else(|| Error::new(ErrorKind::Protocol, "a reply is missing"))?;
        Ok(StoreReply { time, source: Source::Shared, charges })
    }
}

impl SlotGroup {
    fn is_denied(&self) -> bool {
        let mut replies = self.check.charges().iter().zip(&self.replies);
        !replies.all(|(charge, reply)| charge.admits(reply))
    }

    fn assume_unused(&mut self) {
        let charges = self.check.charges().iter();
        self.replies = charges.map(WireCharge::reply_of_full_key).collect();
    }
}

/// Returns the effect of a request whose two parts had these effects.
fn combine(first: Effect, second: Effect) -> Effect {
    match (first, second) {
        (Effect::Applied, _) | (_, Effect::Applied) => Effect::Applied,
        (Effect::Unknown, _) | (_, Effect::Unknown) => Effect::Unknown,
        (Effect::None, Effect::None) => Effect::None,
    }
}
