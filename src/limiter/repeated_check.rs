//! The charges of a request that may wait and is checked several times.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::{task::yield_now, time::Instant};

use super::{
    Limiter,
    queue::{MAX_WITHIN, Ticket},
};
use crate::{
    algorithm::Ahead,
    decision::{ChargeReply, Checked, Decision, StoreReply, Verdict},
    error::Error,
    policy::{Charge, Charges},
    quota::Quota,
    store::Request,
};

/// The charges of a request that is checked until it is admitted. Its trials are decided once, when it
/// arrives, because a wait for the live limits is not one for the limit on trial.
pub(super) struct RepeatedCheck<'l, 'p> {
    pub(super) limiter: &'l Limiter,
    charges: Charges<'p>,
    /// The same charges, in which each trial costs 0 units.
    repeated: Charges<'p>,
    /// The positions of the trials, and the replies to them.
    trials: Vec<(usize, ChargeReply)>,
}

/// The most peeks for one denial, if others are admitted meanwhile.
const MAX_LOOKS: u32 = 3;

impl<'l, 'p> RepeatedCheck<'l, 'p> {
    /// Decides the trials. If the store fails, they spend nothing.
    pub(super) async fn new(limiter: &'l Limiter, charges: Charges<'p>) -> Self {
        if !charges.iter().any(Charge::is_trial) {
            return Self { limiter, repeated: charges.clone(), charges, trials: Vec::new() };
        }
        let positions = (0..charges.len()).filter(|position| charges[*position].is_trial());
        let trials = charges.iter().filter(|charge| charge.is_trial()).cloned().collect();
        let reply = limiter.acquire(&trials).await;
        let replies = reply.map_or_else(|_| Vec::new(), |reply| reply.charges.to_vec());
        let trials = positions.zip(replies).collect();
        let free =
            |charge: Charge<'p>| if charge.is_trial() { charge.with_cost(0) } else { charge };
        Self { limiter, repeated: charges.clone().into_iter().map(free).collect(), charges, trials }
    }

    pub(super) fn charges(&self) -> &Charges<'p> {
        &self.charges
    }

    /// Checks the charges once more.
    pub(super) async fn acquire(&self) -> Result<StoreReply, Error> {
        let reply = self.limiter.acquire(&self.repeated).await?;
        Ok(self.with_trials(reply))
    }

    /// Returns the decision on the charges.
    pub(super) fn decision(&self, reply: StoreReply) -> Result<Decision<'p>, Error> {
        Decision::new(Checked::with_reply(self.charges.clone(), reply))
    }

    /// Returns the denial of the check if its turn in the queues of these charges comes after `deadline`,
    /// because of the units for which others wait.
    pub(super) async fn denial_if_late(
        &self,
        queued: &[Charge<'p>],
        ticket: Ticket,
        deadline: Instant,
    ) -> Result<Option<Decision<'p>>, Error> {
        let mut before = self.ahead_of_all(queued, ticket);
        for is_last in (1..=MAX_LOOKS).map(|look| look == MAX_LOOKS) {
            let mut late = None;
            if before.iter().any(Option::is_some) {
                let (denial, wait) = self.denial(queued, ticket).await?;
                let turn = wait.map(|wait| Instant::now() + wait.min(MAX_WITHIN));
                late = turn.is_some_and(|turn| turn > deadline).then_some(denial);
            }
            // Beside a remote store, the queue may have changed meanwhile. Units of a task that was admitted are counted
            // twice, until it has read its reply and leaves the queue. Units of a task that arrived earlier are
            // counted once its check is refused and it enters the queue.
            if is_last || self.limiter.0.store.is_embedded() {
                return Ok(late);
            }
            yield_now().await;
            let after = self.ahead_of_all(queued, ticket);
            if after == before {
                return Ok(late);
            }
            before = after;
        }
        Ok(None)
    }

    /// Returns the denial of the check, with the wait for its turn in the queues of these charges. Also returns
    /// this wait, if it is known. It is not if the fallback decides under a share of the limit.
    pub(super) async fn denial(
        &self,
        queued: &[Charge<'p>],
        ticket: Ticket,
    ) -> Result<(Decision<'p>, Option<Duration>), Error> {
        let turns = self.repeated.iter().map(|charge| {
            let is_queued = charge.is_live() && queued.iter().any(|it| it.is_same_line(charge));
            is_queued.then(|| {
                let (quota, ahead) = self.ahead(charge, ticket);
                let units = charge.cost();
                (quota, ahead.unwrap_or_else(|| Ahead::new(&quota, units, 0, |units| units)))
            })
        });
        let turns: Vec<_> = turns.collect();
        let asked = self.repeated.iter().zip(&turns).map(|(charge, turn)| match turn {
            Some((quota, ahead)) if charge.cost() <= quota.capacity() => {
                charge.clone().with_cost(ahead.units_to_ask(quota))
            }
            _ => charge.clone(),
        });
        let asked: Vec<_> = asked.collect();
        let mut reply = self.limiter.0.store.call(Request::Peek(&asked)).await?;
        let mut longest = None;
        for (line, turn) in reply.charges.iter_mut().zip(&turns) {
            let Some((quota, ahead)) = turn.as_ref() else { continue };
            if line.verdict == Verdict::OverCapacity {
                longest = Some(Duration::MAX);
                continue;
            }
            let is_known = line.standing.limit == quota.capacity() && !quota.is_concurrent();
            let wait = if is_known {
                Duration::from_micros(ahead.wait(quota, reply.time, &line.standing))
            } else {
                line.standing.retry_after.unwrap_or(line.standing.next_after)
            };
            line.verdict = Verdict::Refused;
            line.standing.retry_after = Some(wait.max(Duration::from_micros(1)));
            longest = longest.max(is_known.then_some(wait));
        }
        let denial = self.decision(self.with_trials(reply))?;
        Ok((denial, longest))
    }

    /// Returns the units ahead of each of these charges. Those that wait for a unit in flight may get one at any time.
    fn ahead_of_all(&self, queued: &[Charge<'p>], ticket: Ticket) -> SmallVec<[Option<Ahead>; 1]> {
        let rates = queued.iter().filter(|charge| !charge.quota().is_concurrent());
        rates.map(|charge| self.ahead(charge, ticket).1).collect()
    }

    /// Returns the quota by which the store counts a charge, and the units ahead of it in its queue, if there
    /// are any.
    fn ahead(&self, charge: &Charge<'_>, ticket: Ticket) -> (Quota, Option<Ahead>) {
        let is_embedded = self.limiter.0.store.is_embedded();
        let quota = if is_embedded { *charge.quota() } else { charge.quota().counted() };
        (quota, self.limiter.0.queue.ahead(charge, &quota, ticket))
    }

    /// Puts the replies to the trials into the reply to all charges.
    pub(super) fn with_trials(&self, mut reply: StoreReply) -> StoreReply {
        for (position, trial) in &self.trials {
            if let Some(line) = reply.charges.get_mut(*position) {
                *line = *trial;
            }
        }
        reply
    }
}
