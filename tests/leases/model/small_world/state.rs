//! A state of a small world, and what each action does to it.

use super::{
    super::{
        super::{
            grants::{Leftovers, Taken},
            stock::{RenewalRequest, Stock},
        },
        checker::{Bound, Use, judge},
        process::SkewedClock,
        shared::{Reply, SentCharge, Shared},
    },
    plan::{Mutant, TICK, World},
};
use crate::{
    algorithms::{most, most_around_change},
    clock::Timestamp,
    decision::{ChargeReply, Mark, Standing, Verdict},
    quota::Quota,
};

/// One step of the world, with the number of the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Time goes on: to the end of the tick, while units are held, or to the next tick.
    Advance,
    /// A check of this cost asks the store.
    Direct(usize, u64),
    /// A check of this cost is paid from stock.
    Uses(usize, u64),
    /// A check takes a unit from stock, and its task is stopped.
    Takes(usize),
    /// The stopped task reads the clock, and uses the unit if it may.
    Reads(usize),
    /// The holder sends a request for so many units.
    Asks(usize, u64),
    /// The request arrives at the store.
    AtStore(usize),
    /// The answer arrives.
    Answers(usize),
    /// The request or its answer is lost.
    Loses(usize),
    /// A request arrives at the store whose holder has given it up.
    Straggles,
    /// The caller of the last check refunds it.
    Refunds(usize),
    /// The holder refunds what it cannot use.
    Sweeps(usize),
    /// The holder gets the changed quota.
    Changes(usize),
    /// The holder begins anew, without its stock.
    Crashes(usize),
}

/// A time so far after the edge of every period that no number is negative.
const START: u64 = 60_000_000_000;

/// The distance of the last moment of a tick from the next tick, in microseconds. A lease is shortened by a
/// thousandth, which is less.
const LAST_MOMENT: u64 = 5;

/// Checks that make a key busy enough for a lease.
const BUSY: u64 = 16;

#[derive(Debug, Clone, Copy)]
struct Flight {
    request: RenewalRequest,
    quota: Quota,
    reply: Option<Reply>,
}

#[derive(Debug, Clone, Copy)]
enum PaidBy {
    Lease(Mark),
    Check(Mark),
}

/// The receipt of the last check of a holder.
#[derive(Debug, Clone, Copy)]
struct Receipt {
    used: usize,
    quota: Quota,
    units: u64,
    paid_by: PaidBy,
}

/// A unit that a stopped task has taken: under which quota, and its reading of the clock if a mutant has
/// read it before.
#[derive(Debug, Clone, Copy)]
struct Stopped {
    taken: Taken,
    quota: Quota,
    read: Option<u64>,
}

#[derive(Debug, Clone)]
struct Holder {
    clock: SkewedClock,
    quota: Quota,
    stock: Stock,
    generation: u64,
    flight: Option<Flight>,
    stopped: Option<Stopped>,
    receipt: Option<Receipt>,
    has_crashed: bool,
}

impl Holder {
    fn new(clock: SkewedClock, quota: Quota, now: u64) -> Self {
        let mut stock = Stock::new(quota, 0, clock.read(now));
        stock.set_debt_marks(quota.algorithm().has_debt_marks());
        let (generation, has_crashed) = (0, false);
        let (flight, stopped, receipt) = (None, None, None);
        Self { clock, quota, stock, generation, flight, stopped, receipt, has_crashed }
    }
}

#[derive(Clone)]
pub(super) struct State<'w> {
    world: &'w World,
    now: u64,
    shared: Shared,
    holders: [Holder; 2],
    uses: Vec<Use>,
    /// A request that its holder has given up, and that has not arrived.
    straggler: Option<Flight>,
    changed_at: u64,
}

/// `None` if the action is not possible, or an error if it breaks a promise.
type Acted = Option<Result<(), String>>;

const DONE: Acted = Some(Ok(()));

fn without_lease(quota: &Quota) -> Quota {
    quota.with_lease(0)
}

impl<'w> State<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let now = START - world.before_edge * TICK;
        let counted = match world.mutant {
            Some(Mutant::CountsWithoutLease) => without_lease,
            _ => Quota::counted,
        };
        let slow = if world.mutant == Some(Mutant::SlowClock) { -600_000_000 } else { -900_000 };
        let holder =
            |skew_ppb| Holder::new(SkewedClock { origin: START, skew_ppb }, world.quota, now);
        Self {
            world,
            now,
            shared: Shared::new(&world.quota, counted),
            holders: [holder(slow), holder(900_000)],
            uses: Vec::new(),
            straggler: None,
            changed_at: 0,
        }
    }

    /// Returns all that the future depends on, as text. Of the stock, the demand, the number of renewals
    /// and the standing at the last exchange do not matter: the world decides when a holder asks for how
    /// much.
    pub(super) fn text(&self) -> String {
        let Self { now, shared, holders, straggler, changed_at, .. } = self;
        let mut text =
            format!("{now} {changed_at} {shared:?} {:?}", straggler.map(|it| it.request.max));
        for Holder { quota, stock, generation, flight, stopped, receipt, has_crashed, .. } in
            holders
        {
            let stock = format!("{stock:?}");
            let (grants, rest) = stock.split_once(", exchange: ").expect("a field of a stock");
            let (_, rest) = rest.split_once(", renewal: ").expect("a field of a stock");
            let (renewal, rest) = rest.split_once(", renewals: ").expect("a field of a stock");
            let (_, rest) = rest.split_once(", next_renewal_at").expect("a field of a stock");
            let renewal = renewal.split_once("since").map_or("", |it| it.1);
            let flight = flight.map(|it| {
                let Flight { request: RenewalRequest { max, sent_at, .. }, quota, reply } = it;
                (max, sent_at, quota, reply.map(|it| (it.time, it.units, it.mark)))
            });
            let receipt =
                receipt.map(|it| (self.uses[it.used].time, it.quota, it.units, it.paid_by));
            text += &format!(
                "|{quota:?}{grants}{renewal}{rest}{generation}{flight:?}{stopped:?}{receipt:?}{has_crashed}"
            );
        }
        let counts = |it: &&Use| it.time + 8 * TICK > *now;
        let mut uses: Vec<_> =
            self.uses.iter().filter(counts).map(|it| (it.time, it.units)).collect();
        uses.sort_unstable();
        text + &format!("{uses:?}")
    }

    /// Does the action, and judges the state that it leads to.
    pub(super) fn act(&mut self, action: Action) -> Acted {
        match action {
            Action::Advance => self.advances(),
            Action::Direct(number, cost) => self.asks_store(number, cost),
            Action::Uses(number, cost) => self.takes(number, cost).and_then(|_| self.reads(number)),
            Action::Takes(number) => self.takes(number, 1),
            Action::Reads(number) => self.reads(number),
            Action::Asks(number, units) => self.asks(number, units),
            Action::AtStore(number) => self.at_store(number),
            Action::Answers(number) => self.answers(number),
            Action::Loses(number) => self.loses(number),
            Action::Straggles => {
                let Flight { request, quota, .. } = self.straggler.take()?;
                self.lends(&request, quota);
                DONE
            }
            Action::Refunds(number) => self.refunds(number),
            Action::Sweeps(number) => self.sweeps(number),
            Action::Changes(number) => self.changes(number),
            Action::Crashes(number) => self.crashes(number),
        }
    }

    fn advances(&mut self) -> Acted {
        let holds = |holder: &Holder| {
            let now = holder.clock.read(self.now);
            holder.stopped.is_some() || holder.stock.units_at(now) > 0
        };
        let next = (self.now / TICK + 1) * TICK;
        let last = next - LAST_MOMENT;
        self.now = if self.now < last && self.holders.iter().any(holds) { last } else { next };
        DONE
    }

    /// Records a use, and judges all windows that end now.
    fn used(&mut self, units: u64) -> Acted {
        self.uses.push(Use { time: self.now, units });
        let (old, from) = (&self.world.quota, 0);
        let always = |quota: &Quota, from| Bound {
            units: most(&quota.with_lease(0)),
            window: quota.window_micros(),
            from,
        };
        let bounds = match &self.world.changed {
            Some(new) if self.changed_at > 0 => {
                let (units, window) = most_around_change(old, new);
                let window = window.as_micros() as u64;
                let lease = old.lease().max(new.lease()).unwrap_or_default().as_micros() as u64;
                // By then, no lease of the old quota is under way.
                vec![Bound { units, window, from }, always(new, self.changed_at + 5 * lease)]
            }
            _ => vec![always(old, from)],
        };
        Some(judge(&self.uses, &bounds).map(|_| ()).map_err(|violation| format!("{violation:?}")))
    }

    fn asks_store(&mut self, number: usize, cost: u64) -> Acted {
        let quota = self.holders[number].quota;
        let reply = self.shared.acquire(self.now, &SentCharge { quota, cost, lease_up_to: 0 });
        if reply.units == 0 {
            // A denial changes nothing, so it is no step; but its wait must be exact.
            let mut wait = reply.standing.retry_after?.as_micros() as u64;
            if self.world.mutant == Some(Mutant::WaitsTooShort) {
                wait -= 1;
            }
            let mut free_at = |time| {
                let probe = SentCharge { quota, cost: u64::MAX >> 16, lease_up_to: 0 };
                self.shared.acquire(time, &probe).standing.remaining
            };
            let is_exact = free_at(self.now + wait) >= cost && free_at(self.now + wait - 1) < cost;
            return if is_exact {
                None
            } else {
                Some(Err(format!("a wait of {wait} is not exact")))
            };
        }
        let (used, units, paid_by) = (self.uses.len(), cost, PaidBy::Check(reply.mark));
        self.holders[number].receipt = Some(Receipt { used, quota, units, paid_by });
        self.used(cost)
    }

    fn takes(&mut self, number: usize, cost: u64) -> Acted {
        let Self { now, world, holders, .. } = self;
        let Holder { clock, stock, quota, stopped, .. } = &mut holders[number];
        if stopped.is_some() {
            return None;
        }
        let taken = stock.take(cost)?;
        if world.mutant == Some(Mutant::TakesNothing) {
            stock.undo(&taken);
        }
        let read = (world.mutant == Some(Mutant::ReadsClockFirst)).then(|| clock.read(*now));
        *stopped = Some(Stopped { taken, quota: *quota, read });
        DONE
    }

    fn reads(&mut self, number: usize) -> Acted {
        let Self { now, world, holders, .. } = self;
        let Holder { clock, stock, stopped, receipt, .. } = &mut holders[number];
        let Stopped { taken, quota, read } = stopped.take()?;
        let read = read.unwrap_or_else(|| clock.read(*now));
        if taken.is_usable(read) || world.mutant == Some(Mutant::IgnoresEnd) {
            let (used, units, paid_by) = (self.uses.len(), taken.units, PaidBy::Lease(taken.mark));
            *receipt = Some(Receipt { used, quota, units, paid_by });
            return self.used(taken.units);
        }
        if !stock.discard(&taken) {
            self.shared.refund(self.now, &quota, taken.units, taken.mark);
        }
        DONE
    }

    fn asks(&mut self, number: usize, units: u64) -> Acted {
        let Holder { clock, stock, quota, flight, .. } = &mut self.holders[number];
        if flight.is_some() {
            return None;
        }
        let now = clock.read(self.now);
        (0..BUSY).for_each(|_| stock.observe(now, 1));
        let mut request = stock.next_renewal(now, 1, 1)?;
        // The store grants all of them, or none.
        (request.cost, request.max) = (units, units);
        if !stock.send(&mut request, now) {
            return None;
        }
        *flight = Some(Flight { request, quota: *quota, reply: None });
        DONE
    }

    /// Grants units of a lease.
    fn lends(&mut self, request: &RenewalRequest, quota: Quota) -> Reply {
        let charge = SentCharge { quota, cost: request.cost, lease_up_to: request.max };
        self.shared.acquire(self.now, &charge)
    }

    fn at_store(&mut self, number: usize) -> Acted {
        let flight = self.holders[number].flight.filter(|it| it.reply.is_none())?;
        let reply = self.lends(&flight.request, flight.quota);
        self.holders[number].flight = Some(Flight { reply: Some(reply), ..flight });
        DONE
    }

    fn answers(&mut self, number: usize) -> Acted {
        let Self { now, world, holders, .. } = self;
        let Holder { clock, stock, flight, .. } = &mut holders[number];
        let Flight { mut request, quota, reply } = flight.filter(|it| it.reply.is_some())?;
        let Reply { mut time, units, mark, standing } = reply?;
        *flight = None;
        if units == 0 {
            stock.denied(&request, time, standing);
            return DONE;
        }
        match world.mutant {
            Some(Mutant::BeginsAtAnswer) => {
                stock.send(&mut request, clock.read(*now));
            }
            // At the start of a period its whole length is left.
            Some(Mutant::OutlivesPeriod) => {
                let micros = time.as_micros();
                time = Timestamp::from_micros(micros - micros % quota.window_micros());
            }
            _ => {}
        }
        let reply = ChargeReply { verdict: Verdict::Passed, units, standing, mark };
        let leftovers = stock.granted(&request, time, &reply);
        self.returns(leftovers, quota);
        DONE
    }

    fn loses(&mut self, number: usize) -> Acted {
        let Self { now, world, holders, straggler, .. } = self;
        let Holder { stock, flight, .. } = &mut holders[number];
        let lost = flight.take()?;
        if lost.reply.is_none() {
            *straggler = Some(lost);
        }
        if world.mutant == Some(Mutant::UsesLostAnswer) {
            let max = lost.request.max;
            let reply = ChargeReply {
                verdict: Verdict::Passed,
                units: max,
                standing: Standing::full(max),
                mark: Mark::default(),
            };
            let _ = stock.granted(&lost.request, Timestamp::from_micros(*now), &reply);
        } else {
            stock.lost(&lost.request);
        }
        DONE
    }

    fn refunds(&mut self, number: usize) -> Acted {
        let holder = &mut self.holders[number];
        let Receipt { used, quota, units, paid_by } = match self.world.mutant {
            Some(Mutant::RefundsTwice) => holder.receipt?,
            _ => holder.receipt.take()?,
        };
        let refunded = match paid_by {
            PaidBy::Lease(mark) if holder.stock.refund(mark, units) => units,
            PaidBy::Lease(mark) | PaidBy::Check(mark) => {
                self.shared.refund(self.now, &quota, units, mark)
            }
        };
        let used = &mut self.uses[used];
        used.units = used.units.saturating_sub(refunded);
        DONE
    }

    fn returns(&mut self, leftovers: Leftovers, quota: Quota) {
        for leftover in leftovers {
            self.shared.refund(self.now, &quota, leftover.units, leftover.mark);
        }
    }

    fn sweeps(&mut self, number: usize) -> Acted {
        let Holder { clock, stock, quota, .. } = &mut self.holders[number];
        let (leftovers, quota) = (stock.take_leftovers(clock.read(self.now)), *quota);
        if leftovers.is_empty() {
            return None;
        }
        self.returns(leftovers, quota);
        DONE
    }

    fn changes(&mut self, number: usize) -> Acted {
        let new = self.world.changed?;
        let Holder { clock, stock, quota, generation, .. } = &mut self.holders[number];
        let old = *quota;
        if old == new {
            return None;
        }
        *quota = new;
        self.changed_at = self.now;
        if self.world.mutant == Some(Mutant::KeepsOldUnits) {
            return DONE;
        }
        *generation += 1;
        let leftovers = stock.change_quota(new, *generation, clock.read(self.now));
        stock.set_debt_marks(new.algorithm().has_debt_marks());
        self.returns(leftovers, old);
        DONE
    }

    /// A request of the holder that has not arrived may still do so.
    fn crashes(&mut self, number: usize) -> Acted {
        let Holder { clock, quota, flight, has_crashed, .. } = &self.holders[number];
        if *has_crashed {
            return None;
        }
        if let Some(flight) = flight.filter(|it| it.reply.is_none()) {
            self.straggler = Some(flight);
        }
        self.holders[number] =
            Holder { has_crashed: true, ..Holder::new(*clock, *quota, self.now) };
        DONE
    }
}
