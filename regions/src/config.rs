//! The configuration of the regions.

use std::time::Duration;

use plimsoll::{Error, Resilience, error::ErrorKind};

use crate::shares::Shares;

/// The configuration of [`Regions`](crate::Regions).
///
/// All processes of all regions use the same number of regions and the same percentage.
///
/// # Examples
///
/// Three regions, to which 60% of each limit is guaranteed: 20% to each of them.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_regions::RegionsConfig;
///
/// let config = RegionsConfig::new(3).share_percent(60).home_deadline(Duration::from_millis(500));
/// ```
#[derive(Debug, Clone)]
pub struct RegionsConfig {
    pub(super) regions: u32,
    pub(super) share_percent: u32,
    home_deadline: Duration,
    resilience: Resilience,
}

impl RegionsConfig {
    /// Creates the configuration of a number of regions: a share of 70%, a home that answers
    /// within 1 s, and the default [`Resilience`].
    #[must_use]
    pub fn new(regions: u32) -> Self {
        Self {
            regions,
            share_percent: 70,
            home_deadline: Duration::from_secs(1),
            resilience: Resilience::default(),
        }
    }

    /// Sets the part of each limit that is guaranteed to all regions together, in percent: 0 to 100.
    /// The default is 70. The rest is the pool, which any region may spend.
    #[must_use]
    pub fn share_percent(mut self, percent: u32) -> Self {
        self.share_percent = percent;
        self
    }

    /// Sets the time after which a request to the home store has failed. The default is 1 s.
    ///
    /// Set it to a few times the longest round trip to the home store. A check does not wait that
    /// long. At the deadline of the check, the region decides it without the home store. Units that
    /// the home store grants later are refunded.
    #[must_use]
    pub fn home_deadline(mut self, deadline: Duration) -> Self {
        self.home_deadline = deadline;
        self
    }

    /// Sets the stages around each of the two stores: the [deadline](Resilience::deadline) of checks,
    /// the [breaker](Resilience::breaker), the deny cache and the [clock](Resilience::clock).
    ///
    /// The [fallback](Resilience::fallback) decides in place of the store of the region, under the share
    /// of the region. [`Resilience::instances`] sets the number of instances in this region. By default, they count
    /// themselves in the store of the region. The home store has no fallback.
    ///
    /// The breaker of the home store counts a request as
    /// [slow](plimsoll::resilience::BreakerConfig::slow) only after the
    /// [`home_deadline`](Self::home_deadline). Of the resilience of the [`Limiter`](plimsoll::Limiter),
    /// only the deadline is used.
    #[must_use]
    pub fn resilience(mut self, resilience: Resilience) -> Self {
        self.resilience = resilience;
        self
    }

    pub(super) fn shares(&self) -> Result<Shares, Error> {
        if self.regions == 0 {
            return Err(invalid("RegionsConfig::new", self.regions, "1 region or more"));
        }
        if self.share_percent > 100 {
            return Err(invalid("RegionsConfig::share_percent", self.share_percent, "0 to 100"));
        }
        Ok(Shares::new(self.regions, self.share_percent))
    }

    /// Returns the stages around the store of the region.
    pub(super) fn of_region(&self) -> Resilience {
        self.resilience.clone()
    }

    /// Returns the stages around the home store.
    pub(super) fn of_home(&self) -> Resilience {
        self.resilience.clone().without_fallback().patient(self.home_deadline)
    }
}

fn invalid(field: &str, value: u32, allowed: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{field} is {value}, allowed is {allowed}"))
}
