//! The wait of a request in a layer.

use std::{slice, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    Limiter,
    queue::{MAX_WITHIN, require_timer},
    trials::RepeatedCheck,
    until_ready::{MIN_POLL, wait_of},
};
use crate::{
    decision::Decision,
    error::Error,
    policy::{Charge, Charges},
};

/// The time by which a turn may come late because of timers and the way to the store, beside an eighth of the
/// longest delay. A request that waits is not denied for it.
const TOLERANCE: Duration = Duration::from_millis(10);

impl Limiter {
    /// Decides the charges of a request, which waits for at most `max` if it is over a limit.
    ///
    /// Unlike in [`until_ready`](Self::until_ready), a request within its limits does not queue
    /// unless others wait for one of its keys, and it waits in one queue at a time: that of the key with the
    /// longest wait. So a client over its own limit delays no other client with whom it shares a second key.
    /// The decision is not reported.
    pub(crate) async fn delayed<'p>(
        &self,
        charges: Charges<'p>,
        max: Duration,
    ) -> Result<Decision<'p>, Error> {
        charges.validate()?;
        let (max, ticket) = (max.min(MAX_WITHIN), self.0.queue.ticket());
        let deadline = Instant::now() + max;
        let check = RepeatedCheck::new(self, charges).await;
        let request = DelayedRequest { limiter: self, check };
        let (mut position, mut poll) = (request.first_awaited(), MIN_POLL);
        // 1. Unless other tasks wait for one of its keys, the request is decided at once.
        let mut resume_at = match position {
            Some(_) => Instant::now(),
            None => match request.decide(&mut poll, deadline).await? {
                Attempt::Final(decision) => return Ok(decision),
                Attempt::Refused(refused, resume_at) => {
                    position = Some(refused);
                    resume_at
                }
            },
        };
        let (mut queue, mut turn, mut end) = (None, None, deadline);
        loop {
            // 2. It enters the queue of that key, before those that arrived later, unless its turn would come too
            //    late.
            if queue != position {
                drop(turn.take());
                queue = position;
                let charge = &request.check.charges()[position.unwrap_or_default()];
                let queued = slice::from_ref(charge);
                // The place is taken before the store is asked. Otherwise later requests could get it.
                let Ok(place) = self.0.queue.enter(queued, ticket) else {
                    return Ok(request.check.denial(queued, ticket).await?.0);
                };
                if let Some(denial) = request.check.denial_if_late(queued, ticket, deadline).await?
                {
                    return Ok(denial);
                }
                let is_concurrent = charge.quota().is_concurrent();
                end = deadline + if is_concurrent { Duration::ZERO } else { max / 8 + TOLERANCE };
                turn = Some((place, queued));
            }
            // 3. As the first of those, it waits for its units.
            if let Some((turn, queued)) = &turn
                && turn.first(end).await.is_err()
            {
                return Ok(request.check.denial(queued, ticket).await?.0);
            }
            if resume_at > Instant::now() {
                sleep_until(resume_at).await;
            }
            match request.decide(&mut poll, end).await? {
                Attempt::Final(decision) => return Ok(decision),
                Attempt::Refused(refused, again_at) => {
                    position = Some(refused);
                    resume_at = again_at;
                }
            }
        }
    }
}

struct DelayedRequest<'l, 'p> {
    limiter: &'l Limiter,
    check: RepeatedCheck<'l, 'p>,
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
    /// need no turn, and neither does a check that can never pass.
    fn first_awaited(&self) -> Option<usize> {
        let can_bind = |charge: &Charge<'_>| charge.is_live() && charge.cost() > 0;
        let is_awaited =
            |charge: &Charge<'_>| can_bind(charge) && self.limiter.0.queue.is_awaited(charge);
        let never_passes =
            |charge: &Charge<'_>| charge.is_live() && charge.cost() > charge.quota().capacity();
        let charges = self.check.charges();
        let position = charges.iter().position(is_awaited)?;
        (!charges.iter().any(never_passes)).then_some(position)
    }

    /// Decides the check once. It is final if it can be repeated only after `end`. Under a concurrency limit,
    /// `poll` is the time after which the store is asked again.
    async fn decide(&self, poll: &mut Duration, end: Instant) -> Result<Attempt<'p>, Error> {
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
            && resume_at <= end
            && require_timer().is_ok()
        {
            return Ok(Attempt::Refused(position, resume_at));
        }
        Ok(Attempt::Final(decision))
    }
}
