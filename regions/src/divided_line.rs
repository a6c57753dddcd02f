//! One [charge](Charge) of a request, and what its two parts have replied.

use std::time::Duration;

use plimsoll::{
    Charge, Quota,
    decision::Standing,
    store::{ChargeReply, Mark, Source, Verdict},
};

use crate::shares::Parts;

/// The wait of a denial whose end is not known.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// One of the two stores that may pay a [charge](Charge).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The share of the region, in the regional store.
    Share,
    /// The pool, in the home store.
    Pool,
}

/// The bit of a mark that says that the pool has paid. The numbers of a store's own marks are lower.
const PAID_BY_POOL: u64 = 1 << 63;

/// One charge, its parts, and their latest replies.
#[derive(Debug)]
pub(super) struct DividedLine {
    pub(super) charge: Charge<'static>,
    parts: Parts,
    /// The part that is asked next.
    turn: Part,
    /// The part that has decided the charge. Its units are in the reply of this part.
    paid_by: Option<Part>,
    share: Option<ChargeReply>,
    pool: Option<ChargeReply>,
    /// True if the fallback has replied in place of the share.
    has_fallen_back: bool,
}

impl Part {
    /// Marks the reply of this part, so that a refund finds the store.
    pub(super) fn tag(self, mark: Mark) -> Mark {
        match self {
            Self::Share => mark,
            Self::Pool => {
                let [first, second, third] = mark.0;
                Mark([first, second, third | PAID_BY_POOL])
            }
        }
    }

    /// Returns the part that has paid, and the mark of its store.
    pub(super) fn of(mark: Mark) -> (Self, Mark) {
        let [first, second, third] = mark.0;
        let part = if third & PAID_BY_POOL == 0 { Self::Share } else { Self::Pool };
        (part, Mark([first, second, third & !PAID_BY_POOL]))
    }
}

impl DividedLine {
    pub(super) fn new(charge: &Charge<'_>, parts: Parts) -> Self {
        let turn = if parts.share.is_some() { Part::Share } else { Part::Pool };
        Self {
            charge: charge.clone().into_owned(),
            parts,
            turn,
            paid_by: None,
            share: None,
            pool: None,
            has_fallen_back: false,
        }
    }

    /// Returns the [quota](Quota) of a part.
    pub(super) fn quota(&self, part: Part) -> Option<Quota> {
        match part {
            Part::Share => self.parts.share,
            Part::Pool => self.parts.pool,
        }
    }

    /// Returns whether the charge may be made to this part beyond its limit. A unit in flight is renewed by
    /// the part that has it: if another renewed it, its part would admit one more.
    pub(super) fn may_exceed(&self, part: Part) -> bool {
        let renewed = self.charge.renews();
        let renewed = renewed.map(|is_pool| if is_pool { Part::Pool } else { Part::Share });
        self.quota(part).is_some()
            && renewed.is_none_or(|renewed| renewed == part || self.quota(renewed).is_none())
    }

    /// Returns whether this part may pay a charge that no part has paid, `beyond` its limit or within it.
    pub(super) fn may_pay(&self, part: Part, beyond: bool) -> bool {
        let may_pay = if beyond {
            self.may_exceed(part)
        } else {
            self.quota(part).is_some() && self.charge.renews().is_none()
        };
        may_pay && !self.is_decided()
    }

    /// Returns the charge against the [quota](Quota) of a part, if it has one.
    pub(super) fn charge_on(&self, part: Part) -> Option<Charge<'static>> {
        Some(self.charge.clone().with_part(self.quota(part)?))
    }

    /// Returns whether the check waits for this part to decide the charge.
    pub(super) fn waits_for(&self, part: Part) -> bool {
        self.paid_by.is_none() && self.turn == part
    }

    /// Keeps the reply of a part, and whether the fallback has decided in place of the region's store.
    pub(super) fn record(&mut self, part: Part, reply: ChargeReply, source: Source) {
        match part {
            Part::Share => {
                self.share = Some(reply);
                self.has_fallen_back = source == Source::Fallback;
            }
            Part::Pool => self.pool = Some(reply),
        }
    }

    /// Ends the charge: this part has decided it.
    pub(super) fn decide(&mut self, part: Part) {
        self.paid_by = Some(part);
    }

    /// Ends a trial, unless the share has refused it and the pool may pay it.
    pub(super) fn decide_trial(&mut self, part: Part) {
        let is_refused = self.share.is_some_and(|it| it.verdict != Verdict::Passed);
        let may_move = part == Part::Share && is_refused && !self.has_fallen_back;
        if !(may_move && self.move_to_pool()) {
            self.decide(part);
        }
    }

    /// Returns whether a part has decided the charge.
    pub(super) fn is_decided(&self) -> bool {
        self.paid_by.is_some()
    }

    /// Returns whether this part can deny the check because of the charge.
    pub(super) fn binds(&self, part: Part) -> bool {
        self.waits_for(part) && self.charge.is_live()
    }

    /// Returns whether the share has just refused the charge.
    pub(super) fn is_refused_by_share(&self) -> bool {
        self.binds(Part::Share) && self.share.is_some_and(|it| it.verdict != Verdict::Passed)
    }

    /// Refuses the charge, because the home store has not answered. The wait follows the share, if the share
    /// has replied. Without a share, a cost above the pool can never pass.
    pub(super) fn refuse(&mut self) {
        if self.share.is_none() {
            let verdict = if self.can_ever_pay(Part::Pool) {
                Verdict::Refused
            } else {
                Verdict::OverCapacity
            };
            let standing = Standing {
                limit: self.charge.quota().capacity(),
                remaining: 0,
                next_after: UNKNOWN_WAIT,
                reset_after: UNKNOWN_WAIT,
                retry_after: Some(UNKNOWN_WAIT),
            };
            self.pool = Some(ChargeReply { verdict, units: 0, standing, mark: Mark::default() });
        }
    }

    /// Admits the charge without a charge to a part, because the home store has not answered.
    pub(super) fn admit(&mut self) {
        self.share = None;
        self.pool = None;
        self.decide(Part::Pool);
    }

    /// Passes a charge that the share has refused on to the pool. Returns false if the pool cannot pay
    /// it either.
    pub(super) fn move_to_pool(&mut self) -> bool {
        self.turn = Part::Pool;
        self.can_ever_pay(Part::Pool)
    }

    /// Returns whether the quota of a part is large enough for the charge.
    fn can_ever_pay(&self, part: Part) -> bool {
        self.quota(part).is_some_and(|quota| self.charge.cost() <= quota.capacity())
    }

    /// Removes the units of a check that is not admitted from the reply. Returns the part that has spent
    /// them, and its reply, for their refund.
    pub(super) fn undo(&mut self) -> Option<(Part, ChargeReply)> {
        // A trial counts as if it were the only charge.
        if self.charge.is_trial() {
            return None;
        }
        let part = self.paid_by.take()?;
        let reply = match part {
            Part::Share => self.share.as_mut()?,
            Part::Pool => self.pool.as_mut()?,
        };
        let spent = *reply;
        *reply = unspent(spent);
        (spent.units > 0).then_some((part, spent))
    }

    /// Returns the reply to the charge, which combines the replies of its parts.
    pub(super) fn reply(&self) -> ChargeReply {
        let verdict = self.verdict();
        let paid = match self.paid_by {
            Some(Part::Share) => self.share.map(|reply| (reply.units, reply.mark)),
            Some(Part::Pool) => self.pool.map(|reply| (reply.units, Part::Pool.tag(reply.mark))),
            None => None,
        };
        let (units, mark) = paid.unwrap_or_default();
        ChargeReply { verdict, units, standing: self.standing(verdict), mark }
    }

    /// Returns the best verdict of a part. A part that has not replied is as good as its quota.
    fn verdict(&self) -> Verdict {
        let may_pass = (self.share.is_none() && self.can_ever_pay(Part::Share))
            || (self.pool.is_none() && self.can_ever_pay(Part::Pool));
        let verdicts = [self.share, self.pool].map(|reply| reply.map(|reply| reply.verdict));
        if verdicts.contains(&Some(Verdict::Passed)) || (verdicts == [None, None] && may_pass) {
            Verdict::Passed
        } else if verdicts.contains(&Some(Verdict::Refused)) || may_pass {
            Verdict::Refused
        } else {
            Verdict::OverCapacity
        }
    }

    /// Returns the [standing](Standing) of the key, as far as the parts have replied. The limit is the limit of
    /// the whole quota, or of the share of the fallback if it alone has decided.
    fn standing(&self, verdict: Verdict) -> Standing {
        let limit = match (self.share, self.pool) {
            (Some(share), None) if self.has_fallen_back => share.standing.limit,
            _ => self.charge.quota().capacity(),
        };
        let replies = [self.share, self.pool].into_iter().flatten();
        let standings = replies.map(|reply| reply.standing);
        let waits = standings.clone().filter_map(|standing| standing.retry_after);
        let growth = standings.clone().map(|it| it.next_after).filter(|it| !it.is_zero());
        let resets = standings.clone().map(|standing| standing.reset_after);
        let remaining = standings.map(|standing| standing.remaining);
        Standing {
            limit,
            remaining: remaining.reduce(u64::saturating_add).unwrap_or(limit),
            next_after: growth.min().unwrap_or_default(),
            reset_after: resets.max().unwrap_or_default(),
            retry_after: (verdict == Verdict::Refused).then(|| waits.min().unwrap_or(UNKNOWN_WAIT)),
        }
    }
}

/// Returns the reply to the same charge in a check that spends nothing.
fn unspent(spent: ChargeReply) -> ChargeReply {
    let mut standing = spent.standing;
    standing.remaining = standing.remaining.saturating_add(spent.units).min(standing.limit);
    ChargeReply { units: 0, standing, mark: Mark::default(), ..spent }
}
