//! The store of one region.
//!
//! # Why the sum is never over
//!
//! 1. [`shares`](crate::shares) divides each limit `L` into a share `g` for each of `n` regions and a pool `P`, with
//!    `n * g + P = L`. Each [charge](Charge) is paid by one part, under the quota of that part.
//! 2. A part is one key of one server, which holds its bound in every window by its own clock, for all
//!    callers and also when replies are lost. A refund goes to the part that has paid, by its mark.
//! 3. A leased unit is used within the lease from the part that granted it, and that part counts by
//!    [`Quota::counted`](plimsoll::Quota::counted), so its bound holds for the units that are used.
//! 4. So any window holds at most the sum of the bounds: `n * g + P = L` for logs and buckets, and
//!    likewise the sums of twice the limit, or of burst and limit, for the others.
//!
//! No step compares two clocks, or needs a message to arrive.
//!
//! # Stages
//!
//! Each of the two stores is [protected](plimsoll::resilience::Protected) by itself, with its own breaker, deny cache and
//! leases. Stages around both stores could have none of them:
//!
//! - Leases: units that the region leases from the pool, and a process from the region, would be used
//!   for twice the time of a lease.
//! - Deny cache: a charge that both parts together deny may pass in one of them.
//! - Breaker: a slow home would open the breaker for the regional store, too.
//! - Fallback: it would decide by the whole quota. The fallback of the regional store decides by the share, and charges that
//!   need the pool are denied while the home does not answer.
//!
//! | file | content |
//! |---|---|
//! | `shares` | the arithmetic |
//! | `divided_line` | one charge, and the replies of its parts |
//! | `stores` | the two protected stores, and the waits for them |
//! | `check` | a check over both parts |
//! | `force` | charges beyond the limit |
//! | `both` | peeks, resets, blocks and refunds |

use std::sync::Arc;

use plimsoll::{
    Error,
    error::ErrorKind,
    resilience::Protected,
    store::{Answer, Closing, Request, Status, Store, Traits},
};
use tokio::time::Instant;

use crate::{RegionsConfig, both::Both, check::DividedCheck, force::Force, stores::Stores};

/// The store of one region of a service, which shares its limits with the other regions.
///
/// It uses two stores: one that the instances of the region share, and a *home* store that all regions
/// share. Each limit is divided, and each [charge](plimsoll::Charge) is paid by one part:
///
/// | part | kept in | units of a limit `L`, with `n` regions and a share of `p`% |
/// |---|---|---|
/// | the share of the region | the store of the region | `g = floor(L * p / 100 / n)` |
/// | the pool | the home store | `P = L - n * g` |
///
/// A charge is paid by the share, or by the pool if the share refuses it. So all regions together never
/// admit more than the [bound](plimsoll#choosing-an-algorithm) of the whole limit, whether or not they can
/// reach the home store, and without it each region still has its share. While the store of a region
/// itself is down, its instances may admit its share once more.
/// The [page](crate) of the package describes waits, failures, leases and deployment.
///
/// # Examples
///
/// Two regions. This one has 35 of the 100 units for itself, and both can spend the 30 of the pool.
///
/// ```
/// use plimsoll::{Limiter, Policy, Quota};
/// use plimsoll_regions::{Regions, RegionsConfig};
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
    /// also the store of a region, give one of them a [prefix](plimsoll::RedisStore) of its
    /// own. If you pass a store of your own, the third number of each [`Mark`](plimsoll::store::Mark) that it
    /// creates must be below 2^63.
    ///
    /// # Errors
    ///
    /// Returns an error if a value of the configuration is out of range.
    pub fn new(local: impl Store, home: impl Store, config: RegionsConfig) -> Result<Self, Error> {
        let stores = Stores {
            shares: config.shares()?,
            region: Protected::new(local, config.of_region()),
            home: Protected::new(home, config.of_home()),
        };
        let RegionsConfig { regions, share_percent, .. } = config;
        let region = stores.region.description();
        let home = stores.home.description();
        let description =
            format!("{share_percent}% for {regions} regions, here: {region}; pool: {home}");
        Ok(Self { stores: Arc::new(stores), description: description.into() })
    }

    fn execute(&self, request: Request<'_>, limit: Option<Instant>) -> Answer {
        let stores = &self.stores;
        let both = match request {
            Request::Acquire(charges) => {
                return Answer::pending(DividedCheck::new(stores, charges, limit).decide());
            }
            Request::Force(charges) => {
                return Answer::pending(Force::new(stores, charges, limit).execute());
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
            _ => {
                let error = Error::new(ErrorKind::Unavailable, "regions do not know the request");
                return Answer::ready(Err(error));
            }
        };
        Answer::pending(both.wait())
    }
}

impl Store for Regions {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        self.execute(request, deadline.map(Instant::from_std))
    }

    fn status(&self) -> Status {
        let mut status = self.stores.region.status();
        status.home = Some(Box::new(self.stores.home.status()));
        status
    }

    fn description(&self) -> String {
        self.description.to_string()
    }

    // `counts_leases` stays false: each part is leased by itself, and not the two together.
    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.keeps_deadlines = true;
        traits.protects_itself = true;
        traits
    }

    fn close(&self) -> Closing<'_> {
        Box::pin(async {
            let region = self.stores.region.close().await;
            region.and(self.stores.home.close().await)
        })
    }
}
