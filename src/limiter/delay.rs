//! The wait of a request in a layer.

use std::{slice, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    Limiter,
    queue::{MAX_WITHIN, require_timer},
    repeated_check::RepeatedCheck,
    until_ready::{MIN_POLL, wait_of},
};
use crate::{decision::Decision, error::Error, policy::Charges};

/// The time by which a turn may come late because of timers and the way to the store, beside an eighth of the
/// longest delay. A request that waits is not denied for it.
const TOLERANCE: Duration = Duration::from_millis(10);

impl Limiter {
    /// Decides the charges of a request, which waits for at most `max` if it is over a limit.
    ///
    /// Unlike in [`until_ready`](Self::until_ready), a request within its limits does not queue
    /// unless others wait for one of its keys, and it waits in one queue at a time: the queue of the key with
    /// the longest wait. So a client over its own limit delays no other client with whom it shares a second
    /// key. The decision is not reported.
    pub(crate) async fn delayed<'p>(
        &self,
        charges: Charges<'p>,
        max: Duration,
    ) -> Result<Decision<'p>, Error> {
        charges.validate()?;
        let max = max.min(MAX_WITHIN);
        let ticket = self.0.queue.ticket();
        let deadline = Instant::now() + max;
        let check = RepeatedCheck::new(self, charges).await;
        let mut poll = MIN_POLL;
        // 1. Unless other tasks wait for one of its keys, the request is decided at once.
        let mut next = match check.first_awaited() {
            Some(position) => Refusal { position, again_at: Instant::now() },
            None => match check.decide(&mut poll, deadline).await? {
                Attempt::Final(decision) => return Ok(decision),
                Attempt::Refused(refusal) => refusal,
            },
        };
        loop {
            // 2. It enters the queue of the key with the longest wait, before those that arrived later, unless its turn
            //    would come too late. The place is taken before the store is asked. Otherwise later requests could
            //    get it.
            let position = next.position;
            let queued = slice::from_ref(&check.charges()[position]);
            let Ok(turn) = self.0.queue.enter(queued, ticket) else {
                return Ok(check.denial(queued, ticket).await?.0);
            };
            if let Some(denial) = check.denial_if_late(queued, ticket, deadline).await? {
                return Ok(denial);
            }
            let is_concurrent = queued[0].quota().is_concurrent();
            let end = if is_concurrent { deadline } else { deadline + max / 8 + TOLERANCE };
            // 3. As the first of those, it waits for its units.
            while next.position == position {
                if turn.first(end).await.is_err() {
                    return Ok(check.denial(queued, ticket).await?.0);
                }
                if next.again_at > Instant::now() {
                    sleep_until(next.again_at).await;
                }
                match check.decide(&mut poll, end).await? {
                    Attempt::Final(decision) => return Ok(decision),
                    Attempt::Refused(refusal) => next = refusal,
                }
            }
        }
    }
}

enum Attempt<'p> {
    /// The request is admitted, or waiting does not help.
    Final(Decision<'p>),
    Refused(Refusal),
}

/// The position of the charge with the longest wait, and the end of this wait.
struct Refusal {
    position: usize,
    again_at: Instant,
}

impl<'p> RepeatedCheck<'_, 'p> {
    /// Returns the position of the first charge for whose key others wait. Charges that are never refused
    /// need no turn, and neither does a check that can never pass.
    fn first_awaited(&self) -> Option<usize> {
        let position = self.charges().iter().position(|charge| {
            charge.is_live() && charge.cost() > 0 && self.limiter.0.queue.is_awaited(charge)
        })?;
        let mut live = self.charges().iter().filter(|charge| charge.is_live());
        live.all(|charge| charge.cost() <= charge.quota().capacity()).then_some(position)
    }

    /// Decides the check once. It is final if it can be repeated only after `end`. Under a concurrency limit,
    /// `poll` is the time after which the store is asked again.
    async fn decide(&self, poll: &mut Duration, end: Instant) -> Result<Attempt<'p>, Error> {
        let reply = self.acquire().await?;
        let charges = self.charges();
        let decision = self.decision(reply)?;
        let refused = match &decision {
            Decision::Allowed(_) => None,
            Decision::Denied(denied) => denied.binding().zip(wait_of(denied, poll)),
        };
        if let Some((binding, wait)) = refused
            && let Some(position) =
                charges.iter().position(|charge| charge.is_same_line(binding.charge()))
            && let again_at = Instant::now() + wait.min(MAX_WITHIN)
            && again_at <= end
            && require_timer().is_ok()
        {
            return Ok(Attempt::Refused(Refusal { position, again_at }));
        }
        Ok(Attempt::Final(decision))
    }
}
