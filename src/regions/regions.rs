//! The store of one region.

use std::{sync::Arc, time::Instant};

use smallvec::SmallVec;

use super::{
    RegionsConfig,
    both::Both,
    check::DividedCheck,
    divided_line::Part,
    force::Force,
    stores::{Stores, combined, late},
};
use crate::{
    clock::Timestamp,
    decision::{ChargeReply, Mark, Source, Standing, StoreReply, Verdict},
    error::Error,
    policy::Charge,
    remote::Pipeline,
    runtime::TimeLimit,
    store::{Answer, Closing, Request, Status, Store, Traits, divided::wait_for_all},
};

/// The store of one region of a service, which shares its limits with the other regions.
///
/// It uses two stores: one that the instances of the region share, and a *home* store that all regions
/// share. Each limit is divided, and each [charge](Charge) is paid by one part:
///
/// | part | kept in | units of a limit `L`, with `n` regions and a share of `p`% |
/// |---|---|---|
/// | the share of the region | the store of the region | `g = floor(L * p / 100 / n)` |
/// | the pool | the home store | `P = L - n * g` |
///
/// A charge is paid by the share, or by the pool if the share refuses it. So all regions together never
/// admit more than the [bound](crate#choosing-an-algorithm) of the whole limit, whether or not they can
/// reach the home store, and without it each region still has its share. While the store of a region
/// itself is down, its instances may admit its share once more.
/// [`guide::regions`](crate::guide::regions) has the details: waits, failures, leases and deployment.
///
/// # Examples
///
/// Two regions. This one has 35 of the 100 units for itself, and both can spend the 30 of the pool.
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota, Regions, RegionsConfig};
/// # use plimsoll::{MemoryStore, memory::MemoryConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), plimsoll::Error> {
/// # let store = || MemoryStore::new(MemoryConfig::default());
/// # let (local, home) = (store(), store()); // instead of two `RedisStore`s
/// let limiter = Limiter::new(Regions::new(local, home, RegionsConfig::new(2))?);
///
/// let api = Policy::new("api", Quota::per_minute(100))?;
/// assert!(limiter.check(api.charge("alice", 35)).await?.is_allowed());
/// assert!(limiter.check(api.charge("alice", 30)).await?.is_allowed());
/// assert!(!limiter.check(api.charge("alice", 1)).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Regions {
    stores: Arc<Stores>,
    /// The text of [`Store::description`].
    description: Box<str>,
}

impl Regions {
    /// Creates the store of one region: over the store that all instances of this region share, and
    /// over the home store that all regions share.
    ///
    /// The two stores keep different units under the same policies and keys. If the home store is
    /// also the store of a region, give one of them a [prefix](crate::RedisStore) of its
    /// own. If you pass a store of your own, the third number of each [`Mark`] that it
    /// creates must be below 2^63.
    ///
    /// # Errors
    ///
    /// Returns an error if a value of the configuration is out of range.
    pub fn new(local: impl Store, home: impl Store, config: RegionsConfig) -> Result<Self, Error> {
        let stores = Stores {
            shares: config.shares()?,
            deadline: config.deadline(),
            region: Pipeline::new(local, config.of_region()),
            home: Pipeline::new(home, config.of_home()),
        };
        let RegionsConfig { regions, share_percent, .. } = config;
        let (region, home) = (stores.region.description(), stores.home.description());
        let description =
            format!("{share_percent}% for {regions} regions, here: {region}; pool: {home}");
        Ok(Self { stores: Arc::new(stores), description: description.into() })
    }

    fn execute(&self, request: Request<'_>, limit: Option<TimeLimit>) -> Answer {
        let stores = &self.stores;
        let both = match request {
            Request::Acquire(charges) => return self.check(charges, limit),
            Request::Force(charges) => {
                return answer(limit, Force::new(stores, charges, limit).execute());
            }
            Request::Refund(receipt) => Both::refund(stores, receipt, limit),
            Request::Peek(charges) => {
                Both::send(stores, charges, |charges| Request::Peek(charges), limit)
            }
            Request::Reset(charges) => {
                Both::send(stores, charges, |charges| Request::Reset(charges), limit)
            }
            Request::Block(charges, duration) => {
                Both::send(stores, charges, |charges| Request::Block(charges, duration), limit)
            }
            Request::Unblock(charges) => {
                Both::send(stores, charges, |charges| Request::Unblock(charges), limit)
            }
        };
        answer(limit, both.wait())
    }

    /// Checks the live charges and the shadows together, and each [trial](Charge::trial) by itself, all at
    /// the same time. So a trial is paid by the pool if the share refuses it, as a live charge would be.
    fn check(&self, charges: &[Charge<'_>], limit: Option<TimeLimit>) -> Answer {
        if !charges.iter().any(Charge::is_trial) {
            return self.acquire(charges, limit);
        }
        let trials: Vec<usize> =
            (0..charges.len()).filter(|index| charges[*index].is_trial()).collect();
        let others: Vec<_> = charges.iter().filter(|charge| !charge.is_trial()).cloned().collect();
        let untouched = |index: &usize| {
            let standing = Standing::full(charges[*index].quota().capacity());
            ChargeReply::new(Verdict::Passed, 0, standing, Mark::default())
        };
        let untouched: Vec<_> = trials.iter().map(untouched).collect();
        let decided = (!others.is_empty()).then(|| self.acquire(&others, limit));
        let mut answers: Vec<_> = decided.into_iter().collect();
        let first_trial = answers.len();
        answers.extend(trials.iter().map(|index| self.acquire(&charges[*index..=*index], limit)));
        answer(limit, async move {
            let mut replies = wait_for_all(answers).await.into_iter();
            let mut decided = match first_trial {
                0 => StoreReply::new(Timestamp::default(), Source::Shared, []),
                _ => replies.next().unwrap_or_else(|| Err(late()))?,
            };
            let mut source = (first_trial > 0).then_some(decided.source);
            for ((index, untouched), reply) in trials.into_iter().zip(untouched).zip(replies) {
                // A trial that no store has decided denies nothing.
                let mut line = untouched;
                if let Ok(reply) = reply {
                    decided.time = decided.time.max(reply.time);
                    source = Some(combined(source, reply.source));
                    line = reply.charges.first().copied().unwrap_or(untouched);
                }
                decided.charges.insert(index, line);
            }
            Ok(decided.with_source(source.unwrap_or(Source::Shared)))
        })
    }

    /// Checks with the share. If it admits all charges at once, the check needs no future.
    fn acquire(&self, charges: &[Charge<'_>], limit: Option<TimeLimit>) -> Answer {
        let parts = charges.iter().map(|charge| {
            let share = self.stores.shares.divide(charge.quota()).share?;
            Some(charge.clone().with_quota(share))
        });
        let shares: SmallVec<[Option<Charge<'_>>; 1]> = parts.collect();
        let is_shared = shares.iter().all(Option::is_some);
        let shares: SmallVec<[Charge<'_>; 1]> = shares.into_iter().flatten().collect();
        let mut first = None;
        if !shares.is_empty() {
            let request = Request::Acquire(&shares);
            match self.stores.call(Part::Share, request, limit).now() {
                Ok(Ok(reply)) if is_shared && admits(charges, &reply) => {
                    return Answer::ready(Ok(with_whole_limits(charges, reply)));
                }
                Ok(Err(error)) => return Answer::ready(Err(error)),
                Ok(reply) => first = Some(Answer::ready(reply)),
                Err(answer) => first = Some(answer),
            }
        }
        answer(limit, DividedCheck::new(&self.stores, charges, limit).decide(first))
    }
}

impl Store for Regions {
    fn call(&self, request: Request<'_>, deadline: Option<Instant>) -> Answer {
        let limit = deadline.map(|deadline| TimeLimit::at(deadline.into()));
        self.execute(request, limit.or_else(|| self.stores.limit()))
    }

    fn status(&self) -> Status {
        self.stores.region.status().with_home(self.stores.home.status())
    }

    fn description(&self) -> String {
        self.description.to_string()
    }

    // `counts_leases` stays false: each part is leased by itself, and not the two together.
    fn traits(&self) -> Traits {
        Traits::default().keeping_deadlines().protecting_itself()
    }

    fn close(&self) -> Closing<'_> {
        Box::pin(async {
            let region = self.stores.region.close().await;
            region.and(self.stores.home.close().await)
        })
    }
}

/// Returns the answer of a request that is ready by its deadline, if it has one.
fn answer(
    limit: Option<TimeLimit>,
    reply: impl Future<Output = Result<StoreReply, Error>> + Send + 'static,
) -> Answer {
    match limit {
        Some(_) => Answer::pending(reply),
        None => Answer::pending(reply),
    }
}

fn admits(charges: &[Charge<'_>], reply: &StoreReply) -> bool {
    let mut lines = charges.iter().zip(&reply.charges);
    reply.charges.len() == charges.len()
        && lines.all(|(charge, reply)| charge.is_shadow() || reply.verdict == Verdict::Passed)
}

/// Shows the limits of the whole quotas, and not those of the shares, unless the fallback has decided.
fn with_whole_limits(charges: &[Charge<'_>], mut reply: StoreReply) -> StoreReply {
    if reply.source == Source::Fallback {
        return reply;
    }
    for (charge, reply) in charges.iter().zip(&mut reply.charges) {
        reply.standing.limit = charge.quota().capacity();
    }
    reply
}
