//! Limits side by side: each under all algorithms, and with clients that retry.

use plimsoll::{Algorithm, Error, Policy, Quota};

use super::{requests::Request, retries::Retries, simulation::Simulation, tally::Tally};

/// The number of sliding buckets beside other algorithms.
const BUCKETS: u16 = 60;

/// The limits of a replay, each under all algorithms.
pub(super) struct Comparison {
    pub(super) limits: Vec<ComparedLimit>,
}

/// One limit under all algorithms.
pub(super) struct ComparedLimit {
    pub(super) quota: Quota,
    /// The algorithm of the limit is the first.
    pub(super) candidates: Vec<Candidate>,
    pub(super) retries: Retries,
}

/// A limit under one algorithm.
pub(super) struct Candidate {
    pub(super) policy: Policy,
    pub(super) tally: Tally,
}

impl Comparison {
    /// Compares these limits. A lease is left out: in one process it changes nothing.
    pub(super) fn new(quotas: &[Quota]) -> Result<Self, Error> {
        let limits = quotas.iter().enumerate().map(|(index, quota)| {
            let quota = Quota::new(quota.limit(), quota.window(), quota.algorithm())?;
            let candidates = each_algorithm(quota).map(|quota| {
                let name = format!("limit-{index}-{}", quota.algorithm().name());
                Ok(Candidate { policy: Policy::new(&name, quota)?, tally: Tally::default() })
            });
            let candidates = candidates.collect::<Result<_, Error>>()?;
            let retries = Retries::new(Policy::new(&format!("limit-{index}-retried"), quota)?);
            Ok(ComparedLimit { quota, candidates, retries })
        });
        Ok(Self { limits: limits.collect::<Result<_, Error>>()? })
    }

    pub(super) fn record(
        &mut self,
        simulation: &Simulation,
        request: &Request,
    ) -> Result<(), Error> {
        for limit in &mut self.limits {
            for Candidate { policy, tally } in &mut limit.candidates {
                tally.record(request, simulation.judge(policy, request)?.is_denied);
            }
            limit.retries.send(simulation, request)?;
        }
        Ok(())
    }

    /// Lets the clients that still wait get through.
    pub(super) fn end(&mut self, simulation: &Simulation) -> Result<(), Error> {
        self.limits.iter_mut().try_for_each(|limit| limit.retries.end(simulation))
    }
}

/// Returns the quota, and the same limit under each other algorithm that can count it.
fn each_algorithm(quota: Quota) -> impl Iterator<Item = Quota> {
    let others = [
        Algorithm::SlidingLog,
        Algorithm::SlidingBuckets(BUCKETS),
        Algorithm::SlidingCounter,
        Algorithm::TokenBucket { burst: quota.limit() },
        Algorithm::FixedWindow,
    ];
    let own = quota.algorithm().name();
    let others = others.into_iter().filter(move |algorithm| algorithm.name() != own);
    let quotas = others.filter_map(move |it| Quota::new(quota.limit(), quota.window(), it).ok());
    [quota].into_iter().chain(quotas)
}
