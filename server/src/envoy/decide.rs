//! The decision on the lines of a request.

use std::time::Duration;

use futures_util::future::join_all;
use plimsoll::{Allowed, Charge, Charges, Decision, Error, Limiter, OnFailure};
use plimsoll_control::admin::Activity;
use smallvec::SmallVec;

use super::{
    options::Decide,
    outcome::{LineOutcome, quota_of_look},
    request::{Hits, Limited, Line},
};

/// The decision on the lines of a request.
pub(super) struct Decider<'a> {
    pub(super) limiter: &'a Limiter,
    /// The decisions that the admin page shows.
    pub(super) activity: Option<&'a Activity>,
    pub(super) lines: &'a [Line<'a>],
    pub(super) how: Decide,
    pub(super) on_failure: OnFailure,
    /// True if lines without a limit count as lines in quota mode, which always pass.
    pub(super) is_quota_mode: bool,
    /// True if a look passes only while a unit is left.
    pub(super) has_strict_looks: bool,
}

/// Charges of some lines. Lines with the same budget are one charge, under the smallest of their limits.
struct Charged<'a> {
    charges: Charges<'a>,
    /// The line and the position of its charge. It is empty if there are no charges.
    positions: SmallVec<[(usize, usize); USUAL_LINES]>,
}

/// The longest wait of a charge for a store that has not answered a look of the same request.
const SECOND_WAIT: Duration = Duration::from_millis(5);

/// The number of lines for which the lists of a decision need no allocation.
const USUAL_LINES: usize = 4;

impl<'a> Decider<'a> {
    /// Decides all lines, and charges them.
    ///
    /// Once the lines are decided, an error of the store changes no decision. After the store has left a call
    /// without an answer, the steps behind the decision do not wait for it again.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot answer, and the lines are not decided.
    pub(super) async fn decide(&self) -> Result<Vec<LineOutcome>, Error> {
        let mut outcomes: Vec<_> = self.lines.iter().map(LineOutcome::initial).collect();
        match self.how {
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
        let (mut quotas, mut failed) = (0, 0);
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
                Line::Free => quotas += usize::from(self.is_quota_mode),
                Line::Unlimited => {}
            }
        }
        quotas > 0 && quotas == failed
    }

    /// Decides the lines that look.
    async fn look(&self, outcomes: &mut [LineOutcome]) -> Result<(), Error> {
        let looks = |limited: &Limited<'_>| (limited.hits == Hits::Look).then_some(1);
        let charged = self.charges(looks);
        if !charged.positions.is_empty() {
            let decision = self.limiter.peek(charged.charges).await?;
            self.record(&decision, &charged.positions, outcomes);
        }
        Ok(())
    }

    async fn spend_together(&self, outcomes: &mut [LineOutcome]) -> Result<(), Error> {
        let charged = self.charges(spends);
        if charged.positions.is_empty() {
            return Ok(());
        }
        let Charged { charges, positions } = charged;
        if self.is_over(outcomes) {
            // The lines without a store, or those that look, deny the request already. The standings of the
            // others are for the response only.
            if !has_fallen_back(outcomes) {
                match self.limiter.peek(charges).await {
                    Ok(decision) => self.record(&decision, &positions, outcomes),
                    Err(error) => left_out("no standings are shown", &error),
                }
            }
            positions.iter().for_each(|(line, _)| outcomes[*line].charged = 0);
            return Ok(());
        }
        let decision = self.check(charges, has_fallen_back(outcomes)).await?;
        self.record(&decision, &positions, outcomes);
        // The store does not know that one of the lines in quota mode has to pass.
        if let Decision::Allowed(allowed) = decision
            && self.is_over(outcomes)
        {
            let reservation = self.limiter.hold(allowed.into_receipt());
            let refunded = match reservation.receipt().lines() {
                [] => Ok(0),
                _ => reservation.refund().await,
            };
            for (line, _) in &positions {
                outcomes[*line].refund(refunded.is_ok());
            }
            if let Err(error) = refunded {
                left_out("charges of a denied request are not refunded", &error);
            }
        }
        Ok(())
    }

    /// Decides the lines that look or spend, at the same time.
    async fn decide_each(&self, outcomes: &mut [LineOutcome]) -> Result<(), Error> {
        let decisions = self.lines.iter().enumerate().filter_map(|(index, line)| {
            let Line::Limited(limited) = line else { return None };
            let (units, looks) = match limited.hits {
                Hits::Look => (1, true),
                Hits::Spend(units) => (units, false),
            };
            let charge = self.charge(limited, units)?;
            Some(async move {
                let decision = match looks {
                    true => self.limiter.peek(charge).await,
                    false => self.check(charge, false).await,
                };
                (index, decision)
            })
        });
        for (index, decision) in join_all(decisions).await {
            self.record(&decision?, &[(index, 0)], outcomes);
        }
        Ok(())
    }

    /// Charges all of `charges`, or none. Waits only briefly for the store if it has just left a look without an
    /// answer.
    async fn check<'c>(
        &self,
        charges: impl Into<Charges<'c>>,
        has_fallen_back: bool,
    ) -> Result<Decision<'c>, Error> {
        let decision = match has_fallen_back {
            false => self.limiter.check(charges).await?,
            true => self.limiter.check_within(charges, SECOND_WAIT).await?,
        };
        if let Some(activity) = self.activity {
            activity.record(&decision);
        }
        Ok(decision)
    }

    /// Charges the hits that count although they were denied.
    async fn count_denied(&self, outcomes: &mut [LineOutcome]) {
        let counts = |limited: &Limited<'_>, outcome: &LineOutcome| {
            // Without strict looks, a look is denied only once more hits than the limit count. So all hits that the
            // limit itself denies have to.
            let is_over = !self.has_strict_looks && !outcome.has_passed;
            let is_denied = outcome.charged == 0 && outcome.standing.is_some();
            is_denied && limited.denied_hits.count(limited.has_own_hits || is_over)
        };
        let is_denied = self.lines.iter().zip(&*outcomes).map(|(line, outcome)| match line {
            Line::Limited(limited) => counts(limited, outcome),
            _ => false,
        });
        let is_denied: SmallVec<[bool; USUAL_LINES]> = is_denied.collect();
        if !is_denied.contains(&true) {
            return;
        }
        let charged =
            self.charges_of(|index, limited| if is_denied[index] { spends(limited) } else { None });
        if charged.positions.is_empty() {
            return;
        }
        if has_fallen_back(outcomes) {
            let charges = charged.charges.into_owned();
            let limiter = self.limiter.clone();
            tokio::spawn(async move { penalize(&limiter, charges).await });
            return;
        }
        let Some(allowed) = penalize(self.limiter, charged.charges).await else { return };
        for (line, position) in &charged.positions {
            let standing = allowed.outcomes().get(*position).map(|outcome| *outcome.standing());
            outcomes[*line].standing = standing.or(outcomes[*line].standing);
        }
    }

    fn charges(&self, units: impl Fn(&Limited<'_>) -> Option<u64>) -> Charged<'a> {
        self.charges_of(|_, limited| units(limited))
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
        let charge = policy.charge(limited.key, units).with_on_failure(self.on_failure);
        let charge = if limited.rule.is_none() { charge.with_quota(quota) } else { charge };
        let charge = match quota_of_look(limited, self.has_strict_looks) {
            Some(quota) => charge.with_quota(quota),
            None => charge,
        };
        Some(match self.how {
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
                (&self.lines[*line], decision.outcomes().get(*position))
            {
                let (source, is_strict) = (decision.source(), self.has_strict_looks);
                outcomes[*line] = LineOutcome::of_charge(limited, outcome, source, is_strict);
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

/// Returns whether the limiter counts two lines together.
fn is_same_budget(one: &Limited<'_>, other: &Limited<'_>) -> bool {
    let name = |limited: &Limited<'_>| limited.counted.map(|(policy, _)| policy.name().as_ptr());
    one.key == other.key
        && name(one) == name(other)
        && (one.is_shadow, one.is_quota) == (other.is_shadow, other.is_quota)
}

/// Returns whether this process decided a line because the store did not answer.
fn has_fallen_back(outcomes: &[LineOutcome]) -> bool {
    outcomes.iter().any(|outcome| outcome.is_fallback)
}

/// Charges units beyond the limit. Returns `None` if the store cannot answer.
async fn penalize<'c>(limiter: &Limiter, charges: impl Into<Charges<'c>>) -> Option<Allowed<'c>> {
    let charged = limiter.penalize(charges).await;
    charged.inspect_err(|error| left_out("hits of a denied request are not counted", error)).ok()
}

/// Reports a step that the store did not answer, after the decision.
fn left_out(effect: &'static str, error: &Error) {
    tracing::debug!(kind = error.kind().name(), place = error.place(), "{effect}");
}
