//! The refunds of what is left of leases under a token bucket, beside a bucket that is only charged
//! the units that were used.

use std::time::Duration;

use super::{
    super::{grants::Leftover, stock::Stock},
    shared::{SentCharge, Shared},
};
use crate::{
    decision::{ChargeReply, Mark, Verdict},
    quota::{Algorithm, Quota},
    seed::{self, Random},
};

/// A bucket that is charged the used units alone, in multiples of `1 / window` units.
#[derive(Debug, Default)]
struct Oracle {
    /// The time of each charge, and its units, in the order of time.
    charges: Vec<(u64, u64)>,
}

impl Oracle {
    fn free(&self, limit: u64, window: u64, burst: u64, now: u64) -> u64 {
        let (mut debt, mut since) = (0_u64, 0);
        for (time, units) in &self.charges {
            debt = debt.saturating_sub((time - since) * limit) + units * window;
            since = *time;
        }
        burst.saturating_sub(debt.saturating_sub((now - since) * limit).div_ceil(window))
    }
}

/// An open lease, and the mark of its charge.
struct Outstanding {
    stock: Stock,
    whole: Mark,
}

/// The numbers of refunds that came back as a whole, in part, and not at all.
#[derive(Debug, Default)]
struct Reached {
    whole: u64,
    part: u64,
    none: u64,
}

/// Runs a random history. Returns an error if more units were free than without the leftovers.
fn run(seed: u64, is_mutant: bool, reached: &mut Reached) -> Result<(), String> {
    let mut random = Random(seed);
    let limit = 10 + random.below(200);
    let lease = 10 + random.below(90);
    let burst = (limit * lease).div_ceil(1000) + 1 + random.below(2 * limit);
    let quota = Quota::new(limit, Duration::from_secs(1), Algorithm::TokenBucket { burst });
    let quota = quota.and_then(|it| it.leased(Duration::from_millis(lease))).expect("valid");
    let counted = quota.counted();
    let (window, burst) = (counted.window_micros(), counted.capacity());
    let mut shared = Shared::new(&quota, Quota::counted);
    let (mut oracle, mut held) = (Oracle::default(), Vec::<Outstanding>::new());
    let mut now = 1_000_000_000;
    for step in 0..60 {
        now += random.one(&[0, 0, 1]) * random.below(lease * 1000);
        if held.is_empty() || held.len() < 5 && random.below(2) == 0 {
            let mut stock = Stock::new(quota, step, now);
            stock.set_debt_marks(true);
            let demand = 16 + random.below(burst);
            (0..demand).for_each(|_| stock.observe(now, 1));
            let cost = 1 + random.below(demand);
            let Some(ask) = stock.next_renewal(now, 1, cost) else { continue };
            let (cost, lease_up_to) = (ask.cost, ask.max);
            let reply = shared.acquire(now, &SentCharge { quota, cost, lease_up_to });
            if reply.units == 0 {
                continue;
            }
            let used = random.below(2) * random.below(reply.units + 1);
            let whole = reply.mark;
            let grant = ChargeReply {
                verdict: Verdict::Passed,
                units: reply.units,
                standing: reply.standing,
                mark: whole,
            };
            assert!(stock.granted(&ask, reply.time, &grant).is_empty());
            assert!(used == 0 || stock.take(used).is_some());
            oracle.charges.push((now, used));
            held.push(Outstanding { stock, whole });
        } else {
            let place = random.below(held.len() as u64) as usize;
            let Outstanding { mut stock, whole } = held.swap_remove(place);
            for Leftover { mark, units } in stock.take_all(u64::MAX, now) {
                let mark = if is_mutant { whole } else { mark };
                match shared.refund(now, &quota, units, mark) {
                    0 => reached.none += 1,
                    refunded if refunded == units => reached.whole += 1,
                    _ => reached.part += 1,
                }
            }
        }
        let probe = SentCharge { quota, cost: u64::MAX >> 16, lease_up_to: 0 };
        let free = shared.acquire(now, &probe).standing.remaining;
        let most = oracle.free(limit, window, burst, now);
        if free > most {
            return Err(format!("{free} units are free at {now} under {quota}, {most} without"));
        }
    }
    Ok(())
}

#[test]
fn leftovers_of_a_token_bucket_come_back_once() {
    let mut reached = Reached::default();
    for history in seed::histories("leftovers", 2_000) {
        if let Err(text) = run(history.seed, false, &mut reached) {
            panic!("seed {:#x}: {text}", history.seed);
        }
    }
    let Reached { whole, part, none } = reached;
    assert!(whole > 500 && part > 500 && none > 500, "{reached:?}");
}

#[test]
fn leftovers_with_the_debt_of_the_bucket_come_back_twice() {
    let first = seed::seed("leftovers with the whole debt");
    let mut reached = Reached::default();
    let found = (0..2_000).any(|it| run(first.wrapping_add(it), true, &mut reached).is_err());
    assert!(found, "no history finds it: {reached:?}");
}
