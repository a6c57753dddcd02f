//! The queue of the checks of one slot, the choice of the checks that form a batch, and the
//! distribution of its reply to them.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    error::Failure,
    wire::{CallReply, CheckReply, WireCheck},
};

/// The maximum number of charges in a batch, so that one call does not keep the server busy for long.
const MAX_BATCH_CHARGES: usize = 64;
/// The number of queued charges for which a second call is sent beside one in flight, so that the server does
/// not wait while the reply to the first one is handled. More calls would make batches smaller
/// (`benches/redis/hand_written.rs`).
const SECOND_CALL_CHARGES: usize = 24;
/// The longest time that a queued check waits for a call in flight. After it, the queue is sent
/// without waiting for the reply to that call.
const MAX_BATCH_WAIT: Duration = Duration::from_millis(5);
/// If no call has begun for this long, batches that wait are ignored: their runtime may stand still, as a
/// current-thread runtime does outside of `block_on`.
const STANDS_STILL_AFTER: Duration = Duration::from_millis(20);

/// The calls in flight and the queued checks of one slot.
///
/// Checks are queued only while a call is in flight. As long as there are checks, a batch waits for its
/// turn or has its turn.
pub(super) struct SlotQueue {
    pub(super) calls_in_flight: usize,
    /// The batches among them that have not taken their checks from the queue yet.
    unsent_batches: usize,
    /// Tells the batch that waits for its turn.
    waiting: Option<oneshot::Sender<()>>,
    last_call: Instant,
    /// In the order of their ids.
    checks: VecDeque<PendingCheck>,
    charges: usize,
}

/// The place of a new batch, which waits for its turn.
pub(super) struct BatchPlace {
    /// Ready when the batch has its turn, and an error when the batch is not needed.
    pub(super) turn: oneshot::Receiver<()>,
    /// The time from which on the batch does not wait for the calls in flight.
    pub(super) until: Instant,
}

/// A check in the queue.
pub(super) struct PendingCheck {
    id: u64,
    pub(super) check: Box<WireCheck>,
    pub(super) test_time: Option<u64>,
    pub(super) outcome: oneshot::Sender<BatchOutcome>,
}

/// The outcome of a check that was part of a batch.
pub(super) enum BatchOutcome {
    Decided(Result<CheckReply, Failure>),
    /// The batch could not decide the check together with the others, and spent nothing for it.
    Undecided,
}

impl SlotQueue {
    /// Creates the queue of a slot with one call in flight.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            calls_in_flight: 1,
            unsent_batches: 0,
            waiting: None,
            last_call: now,
            checks: VecDeque::new(),
            charges: 0,
        }
    }

    /// Appends a check, whose id is larger than those before it. If the checks fill the batch that waits for
    /// its turn, or a second call, that batch has its turn. Returns the place of a new batch if one is needed.
    pub(super) fn push(
        &mut self,
        id: u64,
        check: &WireCheck,
        test_time: Option<u64>,
        outcome: oneshot::Sender<BatchOutcome>,
    ) -> Option<BatchPlace> {
        self.charges += check.charges().len();
        let check = Box::new(check.clone());
        self.checks.push_back(PendingCheck { id, check, test_time, outcome });
        if self.last_call.elapsed() >= STANDS_STILL_AFTER {
            (self.waiting, self.unsent_batches) = (None, 0);
        }
        let place = self.place();
        if self.charges >= MAX_BATCH_CHARGES * (self.unsent_batches + 1)
            || self.may_have_second_call()
        {
            self.give_turn();
        }
        place
    }

    /// Ends a call. The batch that waits has its turn if no other call is in flight, or if its checks fill a
    /// second one. Returns `false` if no call is in flight any more.
    pub(super) fn end_call(&mut self) -> bool {
        self.calls_in_flight -= 1;
        if self.calls_in_flight == 0 || self.may_have_second_call() {
            self.give_turn();
        }
        self.calls_in_flight > 0
    }

    /// Returns whether one call is in flight, and the queued charges are enough for a second one.
    fn may_have_second_call(&self) -> bool {
        let charges = MAX_BATCH_CHARGES * self.unsent_batches + SECOND_CALL_CHARGES;
        self.calls_in_flight == 1 && self.charges >= charges
    }

    /// Gives the batch that waits its turn, with which its call is in flight. Returns `false` if none
    /// waits.
    pub(super) fn give_turn(&mut self) -> bool {
        let Some(waiting) = self.waiting.take() else { return false };
        self.calls_in_flight += 1;
        self.unsent_batches += 1;
        self.last_call = Instant::now();
        // A batch that takes its turn itself does not wait for this.
        let _ = waiting.send(());
        true
    }

    /// Takes the first checks that fit into a call, for a batch that has its turn. All of them have the
    /// same time.
    pub(super) fn take_batch(&mut self) -> (Vec<PendingCheck>, Option<BatchPlace>) {
        self.unsent_batches = self.unsent_batches.saturating_sub(1);
        let test_time = self.checks.front().and_then(|first| first.test_time);
        let mut charges = 0;
        let mut count = 0;
        for pending in &self.checks {
            let with_this = charges + pending.check.charges().len();
            let fits = with_this <= MAX_BATCH_CHARGES || count == 0;
            if !fits || pending.test_time != test_time {
                break;
            }
            charges = with_this;
            count += 1;
        }
        self.charges -= charges;
        (self.checks.drain(..count).collect(), self.place())
    }

    /// Returns the place of a new batch if the batches that wait cannot take all queued checks.
    fn place(&mut self) -> Option<BatchPlace> {
        if self.waiting.is_some() || self.charges <= MAX_BATCH_CHARGES * self.unsent_batches {
            return None;
        }
        let (waiting, turn) = oneshot::channel();
        self.waiting = Some(waiting);
        Some(BatchPlace { turn, until: self.last_call + MAX_BATCH_WAIT })
    }

    /// Removes a check. Returns `false` if it is not in the queue.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let Ok(index) = self.checks.binary_search_by_key(&id, |pending| pending.id) else {
            return false;
        };
        if let Some(removed) = self.checks.remove(index) {
            self.charges -= removed.check.charges().len();
        }
        if self.checks.is_empty() {
            // Its runtime may stand still, so the next check starts a batch of its own.
            self.waiting = None;
        }
        true
    }
}

/// Sends each check of a batch its part of the reply.
pub(super) fn send_outcomes(
    outcomes: Vec<oneshot::Sender<BatchOutcome>>,
    result: Result<CallReply, Failure>,
) {
    match result {
        Ok(replies) => {
            let mut replies = replies.into_iter();
            send_all(outcomes, || match replies.next().flatten() {
                Some(reply) => BatchOutcome::Decided(Ok(reply)),
                None => BatchOutcome::Undecided,
            });
        }
        Err(failure) if failure.may_spare_single_checks() => {
            send_all(outcomes, || BatchOutcome::Undecided);
        }
        Err(failure) => send_all(outcomes, || BatchOutcome::Decided(Err(failure.clone()))),
    }
}

pub(super) fn send_all(
    outcomes: Vec<oneshot::Sender<BatchOutcome>>,
    mut outcome: impl FnMut() -> BatchOutcome,
) {
    for sender in outcomes {
        // A check that was dropped does not need its outcome.
        let _ = sender.send(outcome());
    }
}

/// A future of a call that ends early when all of its checks were dropped.
pub(super) struct WhileAwaited<'f, F> {
    pub(super) call: Pin<&'f mut F>,
    pub(super) outcomes: Vec<oneshot::Sender<BatchOutcome>>,
}

impl<F: Future> Future for WhileAwaited<'_, F> {
    /// The result, or `None` if all checks were dropped, and the senders of the outcomes.
    type Output = (Option<F::Output>, Vec<oneshot::Sender<BatchOutcome>>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(result) = this.call.as_mut().poll(cx) {
            return Poll::Ready((Some(result), mem::take(&mut this.outcomes)));
        }
        // The call continues while any check waits, so only the last one is polled. Its drop wakes
        // this task.
        while let Some(last) = this.outcomes.last_mut() {
            if last.poll_closed(cx).is_pending() {
                return Poll::Pending;
            }
            this.outcomes.pop();
        }
        Poll::Ready((None, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Policy, RedisConfig,
        redis::{key_name::KeyNames, wire::WireCharge},
    };

    /// Appends checks of one charge, and returns the places of the batches that they start. Their ids are all 0,
    /// because none is removed.
    fn push(queue: &mut SlotQueue, checks: usize) -> Vec<BatchPlace> {
        let policy = Policy::new("hot", "10/s").expect("valid");
        let charge =
            WireCharge::new(&KeyNames::new(&RedisConfig::default()), 0, &policy.charge("a", 1));
        let check = WireCheck::new([charge].into_iter().collect());
        (0..checks).filter_map(|_| queue.push(0, &check, None, oneshot::channel().0)).collect()
    }

    fn has_turn(place: &mut BatchPlace) -> bool {
        place.turn.try_recv().is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_waits_for_the_call_in_flight() {
        let mut queue = SlotQueue::new(Instant::now());
        let mut places = push(&mut queue, SECOND_CALL_CHARGES - 1);
        assert!(!has_turn(&mut places[0]));
        assert!(queue.end_call());
        assert!(has_turn(&mut places[0]));
        assert_eq!(queue.take_batch().0.len(), SECOND_CALL_CHARGES - 1);
        assert!(!queue.end_call());
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_is_sent_beside_the_one_in_flight_and_no_third_one() {
        let mut queue = SlotQueue::new(Instant::now());
        let mut first = push(&mut queue, SECOND_CALL_CHARGES);
        assert!(has_turn(&mut first[0]));
        assert_eq!(queue.take_batch().0.len(), SECOND_CALL_CHARGES);

        let mut second = push(&mut queue, MAX_BATCH_CHARGES - 1);
        assert!(!has_turn(&mut second[0]));
        assert!(queue.end_call());
        assert!(has_turn(&mut second[0]), "one call has ended, and another one is in flight");
        assert_eq!(queue.calls_in_flight, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn checks_that_fill_a_call_do_not_wait() {
        let mut queue = SlotQueue::new(Instant::now());
        let _second_call = push(&mut queue, SECOND_CALL_CHARGES);
        queue.take_batch();
        let mut full = push(&mut queue, MAX_BATCH_CHARGES);
        assert!(has_turn(&mut full[0]));
        assert_eq!(queue.calls_in_flight, 3);
    }

    /// The charges of a batch that has its turn and is not sent yet are no reason for another one.
    #[tokio::test(start_paused = true)]
    async fn the_checks_of_an_unsent_batch_start_no_second_call() {
        let mut queue = SlotQueue::new(Instant::now());
        let mut first = push(&mut queue, SECOND_CALL_CHARGES - 1);
        assert!(queue.end_call());
        assert!(has_turn(&mut first[0]));
        assert!(push(&mut queue, SECOND_CALL_CHARGES).is_empty());
        assert_eq!(queue.calls_in_flight, 1);
    }
}
