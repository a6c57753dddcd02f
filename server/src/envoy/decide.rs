//! The [decision](Decision) on the lines of a request.

use futures_util::future::join_all;
use plimsoll::{Charge, Decision, Error, Limiter, policy::Charges};
use plimsoll_control::Offenders;
use smallvec::SmallVec;

use super::{
    options::{Decide, EnvoyOptions},
    outcome::{LineOutcome, quota_of_look},
    request::{Hits, Limited, Line},
};

/// The lines of a request, to be decided together or each by itself.
pub(super) struct EnvoyCheck<'a> {
    pub(super) limiter: &'a Limiter,
    /// The decisions that the admin page shows.
    pub(super) offenders: &'a Offenders,
    pub(super) lines: &'a [Line<'a>],
    pub(super) options: &'a EnvoyOptions,
}

/// Charges of some lines. Lines with the same budget are one [charge](Charge), under the smallest of their
/// limits.
struct Charged<'a> {
    charges: Charges<'a>,
    /// For each line that is charged, its index and the position of its [charge](Charge).
    positions: SmallVec<[(usize, usize); USUAL_LINES]>,
}

/// The number of lines for which the lists of a decision need no allocation.
const USUAL_LINES: usize = 4;

impl<'a> EnvoyCheck<'a> {
    /// Decides all lines, and charges them.
    ///
    /// Once the lines are decided, an error of the store changes no decision.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer, and the lines are not decided.
    pub(super) async fn decide(&self) -> Result<Vec<LineOutcome>, Error> {
        let mut outcomes: Vec<_> = self.lines.iter().map(LineOutcome::initial).collect();
        match self.options.decide {
            Decide::Together => {
                self.look(&mut outcomes).await?;
                self.spend_together(&mut outcomes).await?;
            }
            Decide::Each => self.decide_each(&mut outcomes).await?,
        }
        self.count_denied(&mut outcomes).await;
        Ok(outcomes)
    }

    /// Returns whether lines with these outcomes deny the request: one that must pass does not, or none of
    /// those in quota mode does.
    pub(super) fn is_over(&self, outcomes: &[LineOutcome]) -> bool {
        let mut quotas = 0;
        let mut failed = 0;
        for (line, outcome) in self.lines.iter().zip(outcomes) {
            match line {
                Line::Limited(limited) => {
                    let has_failed = !outcome.has_passed && !limited.is_shadow;
                    if has_failed && !limited.is_quota {
                        return true;
                    }
                    quotas += usize::from(limited.is_quota);
                    failed += usize::from(limited.is_quota && has_failed);
                }
                // A line without a limit is a quota that always passes.
                Line::Free => quotas += usize::from(self.options.quota_mode),
                Line::Unlimited => {}
            }
        }
        quotas > 0 && quotas == failed
    }

    /// Decides the lines that look.
    async fn look(&self, outcomes: &mut [LineOutcome]) -> Result<(), Error> {
        let charged = self.charges_of(|_, limited| (limited.hits == Hits::Look).then_some(1));
        if !charged.positions.is_empty() {
            let decision = self.limiter.peek(charged.charges).await?;
            self.record(&decision, &charged.positions, outcomes);
        }
        Ok(())
    }

    async fn spend_together(&self, outcomes: &mut [LineOutcome]) -> Result<(), Error> {
        let charged = self.charges_of(|_, limited| spends(limited));
        if charged.positions.is_empty() {
            return Ok(());
        }
        let Charged { charges, positions } = charged;
        if !self.is_over(outcomes) {
            let decision = self.check(charges).await?;
            self.record(&decision, &positions, outcomes);
            return Ok(());
        }
        // The lines without a store, or those that look, deny the request already. The standings of the others are
        // for the response only.
        match self.limiter.peek(charges).await {
            Ok(decision) => self.record(&decision, &positions, outcomes),
            Err(error) => left_out("no standings are shown", &error),
        }
        positions.iter().for_each(|(line, _)| outcomes[*line].charged = 0);
        Ok(())
    }

    /// Decides the lines that look or spend, at the same time.
    async fn decide_each(&self, outcomes: &mut [LineOutcome]) -> Result<(), Error> {
        let decisions = self.lines.iter().enumerate().filter_map(|(index, line)| {
            let Line::Limited(limited) = line else { return None };
            let charge = self.charge(limited, spends(limited).unwrap_or(1))?;
            Some(async move {
                let decision = match limited.hits {
                    Hits::Look => self.limiter.peek(charge).await,
                    Hits::Spend(_) => self.check(charge).await,
                };
                (index, decision)
            })
        });
        for (index, decision) in join_all(decisions).await {
            self.record(&decision?, &[(index, 0)], outcomes);
        }
        Ok(())
    }

    /// Charges all of `charges`, or none.
    async fn check<'c>(&self, charges: impl Into<Charges<'c>>) -> Result<Decision<'c>, Error> {
        let decision = self.limiter.check(charges).await?;
        self.offenders.record(&decision);
        Ok(decision)
    }

    /// Charges the hits that count although they were denied.
    async fn count_denied(&self, outcomes: &mut [LineOutcome]) {
        let counted = self.charges_of(|index, limited| {
            let outcome = &outcomes[index];
            let is_denied = outcome.charged == 0 && outcome.standing.is_some();
            // Without strict looks, a look is denied only once more hits than the limit count. So all hits that the
            // limit itself denies have to count.
            let is_over = !self.options.strict_looks && !outcome.has_passed;
            let is_report = limited.has_own_hits || is_over;
            if is_denied && limited.denied_hits.count(is_report) { spends(limited) } else { None }
        });
        if counted.positions.is_empty() {
            return;
        }
        let charged = match self.limiter.penalize(counted.charges).await {
            Ok(charged) => charged,
            Err(error) => return left_out("hits of a denied request are not counted", &error),
        };
        for (line, position) in &counted.positions {
            let standing = charged.outcomes().nth(*position).map(|outcome| *outcome.standing());
            outcomes[*line].standing = standing.or(outcomes[*line].standing);
        }
    }

    /// Returns the charges of the lines with units.
    fn charges_of(&self, units: impl Fn(usize, &Limited<'_>) -> Option<u64>) -> Charged<'a> {
        let mut budgets: SmallVec<[(&'a Limited<'a>, u64); USUAL_LINES]> = SmallVec::new();
        let mut positions = SmallVec::new();
        for (index, line) in self.lines.iter().enumerate() {
            let Line::Limited(limited) = line else { continue };
            let Some(units) = units(index, limited) else { continue };
            if limited.counted.is_none() {
                continue;
            }
            let position = budgets.iter().position(|(other, _)| is_same_budget(other, limited));
            if let Some(position) = position {
                let budget = &mut budgets[position];
                // Looks at one budget need no more than one of them.
                if limited.hits != Hits::Look {
                    budget.1 = budget.1.saturating_add(units);
                }
                // Limits that a request brings along can differ. If the smallest admits all units, each does.
                if limit_of(limited) < limit_of(budget.0) {
                    budget.0 = limited;
                }
            } else {
                budgets.push((limited, units));
            }
            positions.push((index, position.unwrap_or(budgets.len() - 1)));
        }
        let charges =
            budgets.iter().filter_map(|(limited, units)| self.charge(limited, *units)).collect();
        Charged { charges, positions }
    }

    /// Returns the charge of a line, unless its limit is 0.
    fn charge(&self, limited: &Limited<'a>, units: u64) -> Option<Charge<'a>> {
        let (policy, quota) = limited.counted?;
        let charge = policy.charge(limited.key, units).with_on_failure(self.options.on_failure);
        let own = limited.rule.is_none().then_some(quota);
        let looked = quota_of_look(limited, self.options.strict_looks);
        let charge = match looked.or(own) {
            Some(quota) => charge.with_quota(quota),
            None => charge,
        };
        Some(match self.options.decide {
            // Each check has one charge, and this service makes the decision.
            Decide::Each => charge,
            // A request that others deny counts too.
            Decide::Together if limited.is_shadow => charge.trial(),
            Decide::Together if limited.is_quota => charge.shadow(),
            Decide::Together => charge,
        })
    }

    /// Records the outcomes of the charges of a decision.
    fn record(
        &self,
        decision: &Decision<'_>,
        positions: &[(usize, usize)],
        outcomes: &mut [LineOutcome],
    ) {
        for (line, position) in positions {
            if let (Line::Limited(limited), Some(outcome)) =
                (&self.lines[*line], decision.outcomes().nth(*position))
            {
                outcomes[*line] =
                    LineOutcome::of_charge(limited, outcome, self.options.strict_looks);
            }
        }
    }
}

fn spends(limited: &Limited<'_>) -> Option<u64> {
    if let Hits::Spend(units) = limited.hits { Some(units) } else { None }
}

fn limit_of(limited: &Limited<'_>) -> u64 {
    limited.counted.map_or(0, |(_, quota)| quota.limit())
}

/// Returns whether the [limiter](Limiter) counts two lines together.
fn is_same_budget(one: &Limited<'_>, other: &Limited<'_>) -> bool {
    let policies = one.counted.zip(other.counted);
    policies.is_some_and(|((one, _), (other, _))| one.is_clone_of(other))
        && one.key == other.key
        && (one.is_shadow, one.is_quota) == (other.is_shadow, other.is_quota)
}

/// Reports a step that the store did not answer, after the decision.
fn left_out(effect: &'static str, error: &Error) {
    tracing::debug!(kind = error.kind().name(), place = error.place(), "{effect}");
}
