//! Requests over several slots of a cluster, with one call of the script for each slot.

use std::{pin::pin, time::Duration};

use smallvec::SmallVec;
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

use super::{
    batch::{Batcher, CallOptions},
    error::Failure,
    wire::{Operation, WireCharge, WireCheck},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Source, StoreReply},
    error::{Effect, Error, ErrorKind},
    runtime::{TimeLimit, runtime_with_timer},
    telemetry,
};

/// The longest time that a denied check waits for the refunds of other slots, and then again for the
/// standings of their keys. Neither can change the denial.
const MAX_DENIAL_WAIT: Duration = Duration::from_millis(10);

/// Executes a request over several slots, to its end even if this future is dropped, so that no request stays
/// charged in part.
///
/// # Errors
///
/// Returns an error if a call fails. The error has the [`effect`](Error::effect) of the whole request.
pub(super) async fn execute(
    batcher: &Batcher,
    check: WireCheck,
    options: CallOptions,
) -> Result<StoreReply, Error> {
    let Some(runtime) = runtime_with_timer() else { return Err(Failure::NoRuntime.into()) };
    let groups = SlotGroups::new(batcher, check, options);
    let (caller, reply) = oneshot::channel();
    runtime.spawn(groups.run(caller));
    reply.await.unwrap_or_else(|_| Err(task_ended()))
}

/// The charges of a request, by slot.
struct SlotGroups {
    batcher: Batcher,
    options: CallOptions,
    /// In the order of the slots, so that two requests over the same slots rarely refuse each other. The groups
    /// of trials come last.
    groups: Vec<SlotGroup>,
    time: Timestamp,
}

/// The charges of one slot, and the replies to them.
struct SlotGroup {
    slot: u16,
    /// True for trials, which are spent also if the check is denied.
    is_trial: bool,
    check: WireCheck,
    /// Empty until the group has replied.
    replies: SmallVec<[ChargeReply; 1]>,
}

/// Calls in flight, each with the index of its group.
type Calls = JoinSet<(usize, Result<StoreReply, Failure>)>;

impl SlotGroups {
    fn new(batcher: &Batcher, check: WireCheck, options: CallOptions) -> Self {
        let mut groups: Vec<SlotGroup> = Vec::new();
        for charge in check.into_charges() {
            let slot = batcher.backend().slot(&charge);
            let is_trial = charge.is_trial();
            let mut known = groups.iter_mut();
            match known.find(|group| group.slot == slot && group.is_trial == is_trial) {
                Some(group) => group.check.push(charge),
                None => groups.push(SlotGroup {
                    slot,
                    is_trial,
                    check: WireCheck::new(vec![charge]),
                    replies: SmallVec::new(),
                }),
            }
        }
        groups.sort_by_key(|group| (group.is_trial, group.slot));
        Self { batcher: batcher.clone(), options, groups, time: Timestamp::default() }
    }

    /// Asks the groups, and sends the reply to the caller, who may have stopped waiting.
    ///
    /// A check spends all or nothing. So if a group denies it or fails, the groups before it refund what they
    /// have spent. Each refund is tried once, because a second try might refund twice.
    async fn run(mut self, caller: oneshot::Sender<Result<StoreReply, Error>>) {
        if self.options.operation != Operation::Acquire {
            let _ = caller.send(self.ask_all().await);
            return;
        }
        let outcome = self.ask_in_turn().await;
        if let Ok(true) = outcome {
            let _ = caller.send(Ok(self.reply()));
            return;
        }
        let mut refunds = self.start_refunds();
        let effect = self.keep_refunds(&mut refunds, Some(self.options.denial_limit())).await;
        let reply = match outcome {
            Ok(_) => {
                self.complete_denial().await;
                Ok(self.reply())
            }
            Err(error) => Err(of_a_part(error, effect)),
        };
        let _ = caller.send(reply);
        self.keep_refunds(&mut refunds, None).await;
    }

    /// Runs the script for all groups at the same time: none of them decides about another.
    async fn ask_all(&mut self) -> Result<StoreReply, Error> {
        let mut calls = Calls::new();
        for (index, group) in self.groups.iter().enumerate() {
            calls.spawn(self.call(index, group.check.clone(), self.options));
        }
        let mut effect = Effect::None;
        let mut first: Option<Error> = None;
        while let Some(ended) = calls.join_next().await {
            match ended {
                Ok((index, Ok(reply))) => {
                    self.keep(index, reply);
                    if self.options.operation != Operation::Peek {
                        effect = effect.max(Effect::Applied);
                    }
                }
                Ok((index, Err(failure))) => {
                    let error = self.error(index, failure);
                    effect = effect.max(error.effect());
                    first = first.or(Some(error));
                }
                Err(_) => return Err(task_ended()),
            }
        }
        match first {
            Some(error) => Err(of_a_part(error, effect)),
            None => Ok(self.reply()),
        }
    }

    /// Runs the script for one group after the other, and returns whether the check is admitted.
    async fn ask_in_turn(&mut self) -> Result<bool, Error> {
        let mut slowest = (Duration::ZERO, 0);
        for index in 0..self.groups.len() {
            let start = Instant::now();
            let result = self.ask(index, self.options).await;
            slowest = slowest.max((start.elapsed(), index));
            if let Err(failure) = result {
                // The deadline is for all slots, so the slowest one has missed it.
                let is_late = matches!(failure, Failure::TimedOut(_));
                return Err(self.error(if is_late { slowest.1 } else { index }, failure));
            }
            if self.groups[index].is_denied() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs the script for a group, and keeps its reply.
    async fn ask(&mut self, index: usize, options: CallOptions) -> Result<(), Failure> {
        // The charges are needed for the reply, and a queue may not give them back.
        let check = self.groups[index].check.clone();
        let reply = self.call(index, check, options).await.1?;
        self.keep(index, reply);
        Ok(())
    }

    /// Runs the script for charges in the slot of a group.
    fn call(
        &self,
        index: usize,
        mut check: WireCheck,
        options: CallOptions,
    ) -> impl Future<Output = (usize, Result<StoreReply, Failure>)> + Send + use<> {
        let batcher = self.batcher.clone();
        let slot = self.groups[index].slot;
        async move { (index, batcher.run_by_deadline(slot, &mut check, options).await) }
    }

    fn keep(&mut self, index: usize, reply: StoreReply) {
        self.groups[index].replies = reply.charges;
        self.time = self.time.max(reply.time);
    }

    fn start_refunds(&mut self) -> Calls {
        let options = CallOptions { operation: Operation::Refund, deadline: None };
        let mut refunds = Calls::new();
        for index in 0..self.groups.len() {
            if let Some(check) = self.groups[index].refund() {
                refunds.spawn(self.call(index, check, options));
            }
        }
        refunds
    }

    /// Waits until `limit` for all refunds together, and keeps the standings in their replies. Returns
    /// [`Effect::None`] if all units were refunded.
    async fn keep_refunds(&mut self, refunds: &mut Calls, limit: Option<TimeLimit>) -> Effect {
        let mut effect = Effect::None;
        loop {
            let next = pin!(refunds.join_next());
            let next = match limit {
                Some(limit) => limit.wait(next).await,
                None => Ok(next.await),
            };
            match next {
                Ok(None) => return effect,
                Ok(Some(Ok((index, Ok(refunded))))) => {
                    self.time = self.time.max(refunded.time);
                    // None, if the group has forgotten its replies.
                    let replies = self.groups[index].replies.iter_mut();
                    for (reply, refunded) in replies.zip(refunded.charges) {
                        reply.standing = refunded.standing;
                    }
                }
                Ok(Some(Ok((_, Err(failure))))) => {
                    telemetry::undo_failed();
                    let is_lost = failure.effect() == Effect::None;
                    effect = effect.max(if is_lost { Effect::Applied } else { Effect::Unknown });
                }
                Ok(Some(Err(_))) => effect = effect.max(Effect::Unknown),
                Err(_) => return effect.max(Effect::Unknown),
            }
        }
    }

    /// Asks the slots that have not been asked for the standings of their keys, and to spend their trials. If a
    /// slot does not answer in time, its keys are reported as unused, which does not change the denial.
    async fn complete_denial(&mut self) {
        let deadline = Some(self.options.denial_limit());
        let peek = CallOptions { operation: Operation::Peek, deadline };
        for index in 0..self.groups.len() {
            let options = if self.groups[index].is_trial { self.options } else { peek };
            if self.groups[index].replies.is_empty() && self.ask(index, options).await.is_err() {
                let group = &mut self.groups[index];
                let charges = group.check.charges().iter();
                group.replies = charges.map(WireCharge::reply_of_full_key).collect();
            }
        }
    }

    /// Joins the replies, in the order of the charges in the caller's request.
    fn reply(&self) -> StoreReply {
        let lines = self.groups.iter().flat_map(|it| it.check.charges().iter().zip(&it.replies));
        let mut replies: Vec<_> =
            lines.map(|(charge, reply)| (charge.position(), *reply)).collect();
        replies.sort_by_key(|(position, _)| *position);
        let replies = replies.into_iter().map(|(_, reply)| reply);
        StoreReply::new(self.time, Source::Shared, replies)
    }

    /// Returns the error of a group that has failed.
    fn error(&self, index: usize, failure: Failure) -> Error {
        let SlotGroup { slot, check, .. } = &self.groups[index];
        let node = self.batcher.backend().node(*slot).0;
        self.batcher.error(*slot, check, failure).with_node(node)
    }
}

impl CallOptions {
    /// Returns the end of a wait for something that cannot change a denial.
    fn denial_limit(&self) -> TimeLimit {
        let until = TimeLimit::after(MAX_DENIAL_WAIT);
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }
}

impl SlotGroup {
    fn is_denied(&self) -> bool {
        let mut replies = self.check.charges().iter().zip(&self.replies);
        !replies.all(|(charge, reply)| charge.admits(reply))
    }

    /// Returns the refund of the units that the group has spent, if it has spent any. The replies then
    /// have the standings without these units.
    ///
    /// If the group has charges that spent nothing, their replies are forgotten: the refund may change the
    /// standings of the same keys.
    fn refund(&mut self) -> Option<WireCheck> {
        let spent = self.check.charges().iter().zip(&self.replies);
        let spent = spent.filter(|(_, reply)| reply.units > 0);
        let charges: Vec<_> = spent.map(|(charge, reply)| charge.undo(reply)).collect();
        if charges.is_empty() {
            return None;
        }
        if charges.len() == self.replies.len() {
            self.replies.iter_mut().for_each(|reply| *reply = reply.unspent());
        } else {
            self.replies.clear();
        }
        Some(WireCheck::new(charges))
    }
}

/// Returns the error of one part of a request, whose parts together had this effect.
fn of_a_part(error: Error, effect: Effect) -> Error {
    let effect = effect.max(error.effect());
    if effect == error.effect() {
        return error;
    }
    let note = "this is about one part of several: the charges in others may have been made";
    error.with_note(note).with_effect(effect)
}

fn task_ended() -> Error {
    let message = "the task of the request has ended: part of it may stay charged";
    Error::new(ErrorKind::Unavailable, message).with_effect(Effect::Unknown)
}
