//! The wait of a request in a layer.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    queue::require_timer,
    state::LimiterState,
    trials::RepeatedCheck,
    until_ready::{MAX_WITHIN, MIN_POLL, wait_of},
};
use crate::{
    decision::{Decision, StoreReply, Verdict},
    error::Error,
    policy::{Charge, Charges},
    store::Request,
};

/// Decides the charges of a request, which waits for at most `max` if it is over a limit.
///
/// Unlike in [`until_ready`](super::until_ready::until_ready), a request within its limits does not queue
/// unless others wait for one of its keys, and it waits in one queue at a time: that of the key with the
/// longest wait. So a client over its own limit delays no other client with whom it shares a second key.
/// The decision is not reported.
pub(super) async fn delayed<'p>(
    state: &Arc<LimiterState>,
    charges: Charges<'p>,
    max: Duration,
) -> Result<Decision<'p>, Error> {
    charges.validate()?;
    let deadline = Instant::now() + max.min(MAX_WITHIN);
    let check = RepeatedCheck::new(state, charges).await;
    let request = DelayedRequest { state, check, deadline };
    let (mut position, mut poll) = (request.first_waited_for(), MIN_POLL);
    // 1. Unless other tasks wait for one of its keys, the request is decided at once.
    let mut resume_at = match position {
        Some(_) => Instant::now(),
        None => match request.decide(&mut poll).await? {
            Attempt::Final(decision) => return Ok(decision),
            Attempt::Refused(refused, resume_at) => {
                position = Some(refused);
                resume_at
            }
        },
    };
    let (mut queue, mut turn) = (None, None);
    loop {
        // 2. It enters the queue of that key, unless its turn would come too late.
        if queue != position {
            drop(turn.take());
            queue = position;
            let charge = &request.check.charges()[position.unwrap_or_default()];
            if let Some(denial) = request.denial_behind_others(charge).await? {
                return Ok(denial);
            }
            turn = match state.queue.turn(std::slice::from_ref(charge), request.deadline).await {
                Ok(turn) => Some(turn),
                // The queue is full, or others waited until the deadline.
                Err(_) => return request.denial(charge).await,
            };
        }
        // 3. As the first of those, it waits for its units.
        if resume_at > Instant::now() {
            sleep_until(resume_at).await;
        }
        match request.decide(&mut poll).await? {
            Attempt::Final(decision) => return Ok(decision),
            Attempt::Refused(refused, again_at) => {
                position = Some(refused);
                resume_at = again_at;
            }
        }
    }
}

struct DelayedRequest<'l, 'p> {
    state: &'l Arc<LimiterState>,
    check: RepeatedCheck<'l, 'p>,
    deadline: Instant,
}

#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Attempt<'p> {
    /// The request is admitted, or waiting does not help.
    Final(Decision<'p>),
    /// The position of the charge with the longest wait, and the end of this wait.
    Refused(usize, Instant),
}

impl<'p> DelayedRequest<'_, 'p> {
    /// Returns the position of the first charge for whose key others wait. Charges that are never refused
    /// need no turn.
    fn first_waited_for(&self) -> Option<usize> {
        let can_bind = |charge: &Charge<'_>| charge.is_live() && charge.cost() > 0;
        let others_wait = |charge: &Charge<'_>| self.state.queue.waiting_for(charge) > 0;
        self.check.charges().iter().position(|charge| can_bind(charge) && others_wait(charge))
    }

    /// Decides the check once. Under a concurrency limit, `poll` is the time after which the store is asked again.
    async fn decide(&self, poll: &mut Duration) -> Result<Attempt<'p>, Error> {
        let reply = self.check.acquire().await?;
        let charges = self.check.charges();
        let decision = Decision::new(&mut charges.clone(), reply)?;
        let refused = match &decision {
            Decision::Allowed(_) => None,
            Decision::Denied(denied) => denied.binding().zip(wait_of(denied, poll)),
        };
        if let Some((binding, wait)) = refused
            && let Some(position) =
                charges.iter().position(|charge| charge.is_same_line(binding.charge()))
            && let resume_at = Instant::now() + wait.min(MAX_WITHIN)
            && resume_at <= self.deadline
            && require_timer().is_ok()
        {
            return Ok(Attempt::Refused(position, resume_at));
        }
        Ok(Attempt::Final(decision))
    }

    /// Returns the denial of the request if its turn in the queue of `charge` would come after the
    /// deadline, because of the units for which others wait.
    async fn denial_behind_others(
        &self,
        charge: &Charge<'p>,
    ) -> Result<Option<Decision<'p>>, Error> {
        // Those that wait for a unit in flight may get one at any time.
        if self.state.queue.waiting_for(charge) == 0 || charge.quota().is_concurrent() {
            return Ok(None);
        }
        let denial = self.denial(charge).await?;
        let wait = denial.binding().and_then(|binding| binding.standing().retry_after());
        let is_late = wait.is_none_or(|wait| Instant::now() + wait.min(MAX_WITHIN) > self.deadline);
        Ok(is_late.then_some(denial))
    }

    /// Returns the denial of the request. Its wait is that for the units of `charge` and one unit for each
    /// task that waits for the same key.
    async fn denial(&self, charge: &Charge<'p>) -> Result<Decision<'p>, Error> {
        let quota = charge.quota();
        let units = charge.cost().saturating_add(self.state.queue.waiting_for(charge));
        // At most the limit comes back in each window.
        let windows = units.saturating_sub(quota.capacity()) / quota.limit();
        let total = charge.clone().with_cost(units.min(quota.capacity()));
        let charges: Vec<_> = self
            .check
            .charges()
            .iter()
            .map(|other| if other.is_same_line(charge) { total.clone() } else { other.clone() })
            .collect();
        let mut reply: StoreReply = self.state.store.call(Request::Peek(&charges)).await?;
        for (reply, other) in reply.charges.iter_mut().zip(&charges) {
            if other.is_same_line(charge) && reply.verdict != Verdict::OverCapacity {
                reply.verdict = Verdict::Refused;
                let wait = reply.standing.retry_after.unwrap_or(reply.standing.next_after);
                let later = windows.saturating_mul(quota.window_micros());
                reply.standing.retry_after = Some(wait.saturating_add(later).max(1));
            }
        }
        Decision::new(&mut self.check.charges().clone(), self.check.with_trials(reply))
    }
}
