//! Trials beside live charges: each decides as if its quota were the only limit.

use std::time::Duration;

use plimsoll::{Algorithm, Charge, Decision, Policy, Quota};

use crate::{
    CaseCounts, Fixture,
    algorithms::with_parameters,
    now,
    oracle::{Ask, Enforcement, Oracle, Paid, counted},
    seed::Random,
};

use super::judge::finding;

/// The situations that the histories must reach.
pub const CASES: &[&str] = &[
    "both allow",
    "live alone allows",
    "trial alone allows",
    "both deny",
    "no live charge",
    "trial refunded",
    "trial over capacity",
];

/// Plays checks of live charges, shadows and one trial. The oracle sees only the charges of the trial,
/// as if they were live and alone, and the refunds of admitted checks.
pub fn run(fixture: &Fixture, algorithm: Algorithm, seed: u64, tally: &CaseCounts) {
    let random = &mut Random(seed);
    let trial = Policy::new("trial", quota(random, algorithm)).expect("valid");
    let others = ["first", "second"].map(|name| {
        let algorithm = random.one(Algorithm::EACH);
        Policy::new(name, quota(random, algorithm)).expect("valid")
    });
    let mut oracle = Oracle::default();
    let mut counts = [0; 4];
    let mut held = Vec::new();
    let mut time = 1_700_000_000_000_000 + random.below(1_000_000_000);
    for _ in 0..10 + random.below(20) {
        time += random.one(&[0, 0, 300, 1_000, 2_500]) + random.below(3) * random.below(2_000);
        fixture.set(time);
        if random.below(8) == 0 && !held.is_empty() {
            let (reservation, paid): (plimsoll::limiter::Reservation, Paid) =
                held.swap_remove(random.below(held.len() as u64) as usize);
            now(reservation.refund()).expect("the store answers");
            oracle.refund(time, &counted(&trial.quota(), fixture.is_shared()), &paid);
            tally.count_if(paid.units > 0, "trial refunded");
        }
        let key = random.below(2) as usize;
        let large = 1 + random.below(20);
        let cost = random.one(&[0, 1, 1, 2, trial.quota().capacity(), large]);
        let mut charges: Vec<Charge<'_>> = (0..random.one(&[0, 1, 1, 2]))
            .map(|index| {
                let charge = others[index].charge(["alice", "bob"][key], random.one(&[0, 1, 1, 3]));
                if random.below(4) == 0 { charge.shadow() } else { charge }
            })
            .collect();
        let at = random.below(charges.len() as u64 + 1) as usize;
        charges.insert(at, trial.charge(["alice", "bob"][key], cost).trial());
        let has_live = charges.iter().any(Charge::is_live);
        let quota = counted(&trial.quota(), fixture.is_shared());
        let enforcement = Enforcement::Live;
        let alone = Ask { entry: (0, key), quota, cost, most: cost, lease: false, enforcement };
        let mut expected = oracle.check(time, &[alone]);
        let decision = now(fixture.limiter.check(charges)).expect("the store answers");
        let outcome = decision.outcomes().nth(at).expect("the trial");
        assert_eq!(
            finding(&outcome),
            expected.findings[0],
            "{seed:#x} at {time} (right: the trial alone)"
        );
        tally.count_if(cost > quota.capacity(), "trial over capacity");
        tally.count_if(!has_live, "no live charge");
        if has_live {
            let (live, trial) = (decision.is_allowed(), expected.admitted);
            counts[2 * usize::from(live) + usize::from(trial)] += 1;
        }
        if let Decision::Allowed(allowed) = decision
            && let Some(paid) = expected.paid.pop()
        {
            held.push((fixture.limiter.hold(allowed.into_receipt()), paid));
        }
    }
    let found = trial.trial_counts();
    let found = [
        found.denied_by_both,
        found.allowed_by_trial_only,
        found.allowed_by_live_only,
        found.allowed_by_both,
    ];
    assert_eq!(found, counts, "{seed:#x}");
    let cases = ["both deny", "trial alone allows", "live alone allows", "both allow"];
    for (case, count) in cases.into_iter().zip(counts) {
        tally.count_if(count > 0, case);
    }
}

fn quota(random: &mut Random, algorithm: Algorithm) -> Quota {
    let limit = random.one(&[1, 2, 5, 12]);
    let window = Duration::from_micros(random.one(&[2_000, 3_000, 7_000, 60_000]));
    let algorithm = with_parameters(algorithm, random.one(&[1, 4, 10]), random.one(&[1, 3, 8]));
    Quota::new(limit, window, algorithm).expect("in bounds")
}
