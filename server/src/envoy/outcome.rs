//! The outcome of a line, its metrics, and the quota under which a look is decided.

use plimsoll::{
    Algorithm, Quota,
    decision::{Outcome, Standing},
    store::Verdict,
};

use super::{
    request::{Hits, Limited, Line},
    stats::RuleStats,
};

/// The percentage of a limit behind which hits are near it.
const NEAR_PERCENT: u64 = 80;

/// The [outcome](Outcome) of a line.
#[derive(Debug, Clone, Default)]
pub(super) struct LineOutcome {
    /// True if the limit admits the line by itself.
    pub(super) has_passed: bool,
    /// The hits that were charged. Lines with the same budget have the hits of all of them.
    pub(super) charged: u64,
    /// The [quota](Quota) by which the budget is counted, unless the line has none. An operator can set it.
    pub(super) quota: Option<Quota>,
    /// The [standing](Standing) of the budget after the decision, unless the line has none.
    pub(super) standing: Option<Standing>,
}

impl LineOutcome {
    /// Returns the outcome of a line that no store decides.
    pub(super) fn initial(line: &Line<'_>) -> Self {
        let has_passed = match line {
            Line::Limited(limited) => limited.counted.is_some(),
            Line::Free | Line::Unlimited => true,
        };
        Self { has_passed, ..Self::default() }
    }

    /// Returns the outcome of a line by the outcome of its charge.
    pub(super) fn of_charge(
        limited: &Limited<'_>,
        outcome: Outcome<'_>,
        has_strict_looks: bool,
    ) -> Self {
        let mut quota = *outcome.charge().quota();
        let mut standing = *outcome.standing();
        // A quota that an operator has set for the key replaces the quota of a look.
        if quota_of_look(limited, has_strict_looks) == Some(quota) {
            quota = limited.counted.map_or(quota, |(_, quota)| quota);
            standing = without_one(&standing);
        }
        Self {
            has_passed: outcome.verdict() == Verdict::Passed,
            charged: outcome.granted(),
            quota: Some(quota),
            standing: Some(standing),
        }
    }

    /// Counts the hits of the line. Those behind [`NEAR_PERCENT`] of the limit are near it.
    pub(super) fn count(&self, hits: u64, is_shadow: bool, stats: &RuleStats) {
        stats.total_hits.increment(hits);
        if !self.has_passed {
            stats.over_limit.increment(hits);
            if is_shadow {
                stats.shadow_mode.increment(hits);
            }
            return;
        }
        if self.charged == 0 {
            // Another limit has denied the request.
            return;
        }
        stats.within_limit.increment(hits);
        let limit = self.quota.map_or(0, |quota| quota.limit());
        let remaining = self.standing.map_or(0, |standing| standing.remaining);
        let near = limit.saturating_sub(remaining).saturating_sub(limit * NEAR_PERCENT / 100);
        if near > 0 {
            stats.near_limit.increment(near.min(hits));
        }
    }
}

/// Returns the [quota](Quota) under which a look is decided, if it is not the quota of the limit.
///
/// A look passes while no more hits than the limit count. Under a limit that is larger by one, this is so while one
/// unit is left. If denied hits never count, the count never exceeds the limit. A look then asks for a unit of the limit
/// itself.
pub(super) fn quota_of_look(limited: &Limited<'_>, has_strict_looks: bool) -> Option<Quota> {
    let is_strict = has_strict_looks || limited.denied_hits.never_count();
    let (_, quota) = limited.counted.filter(|_| limited.hits == Hits::Look && !is_strict)?;
    let (limit, algorithm) = match quota.algorithm() {
        Algorithm::TokenBucket { burst } => {
            (quota.limit(), Algorithm::TokenBucket { burst: burst + 1 })
        }
        other => (quota.limit() + 1, other),
    };
    // There is none beyond the largest limit, at which no look differs.
    let larger = Quota::new(limit, quota.window(), algorithm).ok()?;
    match quota.lease() {
        Some(lease) => larger.leased(lease).ok(),
        None => Some(larger),
    }
}

/// Returns the [standing](Standing) under a limit that is smaller by one.
fn without_one(standing: &Standing) -> Standing {
    Standing {
        limit: standing.limit.saturating_sub(1),
        remaining: standing.remaining.saturating_sub(1),
        ..*standing
    }
}
