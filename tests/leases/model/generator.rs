//! Random plans. They keep the key saturated, because a bound is in danger only then.

use std::time::Duration;

use super::{
    checker::Bound,
    fleet::lease_micros,
    plan::{Faults, Mutant, Plan, Polling, ProcessPlan, Suspended, Workload},
};
use crate::{
    algorithms::{Parameter, Returns, most, most_around_change, returns, with_parameter},
    quota::{Algorithm, Quota},
    seed::Random,
};

/// Returns a quota of the algorithm with a random parameter.
fn quota(random: &mut Random, algorithm: Algorithm, limit: u64, window: u64, lease: u64) -> Quota {
    let in_lease = (limit * lease).div_ceil(window);
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => 1 + random.below(12),
        Parameter::Burst => {
            let more = random.one(&[limit, limit / 8]);
            in_lease + 1 + random.below(1 + more)
        }
    });
    let window = Duration::from_millis(window);
    let quota = Quota::new(limit, window, algorithm).expect("a valid quota");
    quota.leased(Duration::from_millis(lease)).expect("a valid lease")
}

fn lease_of(random: &mut Random, window: u64) -> u64 {
    (window / random.one(&[10, 10, 10, 12, 20])).max(1)
}

/// The largest number of processes, unless it is an ambush.
const MAX_PROCESSES: u64 = 5;

/// Returns the plan of a seed.
pub(super) fn plan(seed: u64, algorithm: Algorithm, mutant: Option<Mutant>) -> Plan {
    let random = &mut Random(seed ^ 0x5851_f42d_4c95_7f2d);
    let window = 500 + 10 * random.below(60);
    let lease = lease_of(random, window);
    // A lease gives up little of a bucket, so an ambush on a bucket has no faults, and much demand.
    let (is_bucket, is_log) = match returns(algorithm) {
        Returns::AtRate => (true, false),
        Returns::AfterWindow => (false, true),
        Returns::ByPeriod => (false, false),
    };
    let is_clean = is_bucket && mutant == Some(Mutant::CountsWithoutLease);
    // In an ambush the first process takes units and uses them late. Then the others use all they get.
    let is_ambush = random.below(3) == 0 || mutant.is_some();
    let (count, checks) = match is_ambush {
        true => (3 + random.below(3), 64),
        false => (1 + random.below(MAX_PROCESSES), random.one(&[6, 8, 16, 32])),
    };
    let limit = match is_ambush {
        true if is_clean => 1_000 + random.below(2_000),
        true if is_bucket => 80 + random.below(160 * count),
        true => 8 + random.below(16 * count),
        // A part of the checks that arrive in a window.
        false => count * checks * window / lease * random.one(&[4, 8, 15, 30, 90]) / 50,
    };
    let limit = limit.max(4);
    let first = quota(random, algorithm, limit, window, lease);

    let micros = window * 1000;
    let edge = 1_000_000 * micros;
    // Much happens at the edges of periods.
    let before = [0, random.below(lease * 1000), random.below(micros)];
    let start = edge - random.one(&before);
    let end = match is_ambush {
        true => start + micros + 3000 * lease,
        false => start + micros * random.one(&[3, 3, 4]),
    };
    let change = (!is_ambush && random.below(3) == 0).then(|| {
        let limit = (limit * random.one(&[50, 80, 100, 150, 300]) / 100).max(1);
        let window = window * random.one(&[100, 100, 100, 200, 130]) / 100;
        let lease = [lease.min(window / 10), lease_of(random, window)][random.below(2) as usize];
        (quota(random, algorithm, limit, window, lease), start + random.below(micros))
    });
    let suspended = random.one(&[0, 30, 300]);
    let ambush_at = lease * 500 + random.below(lease * if is_clean { 100 } else { 700 });
    let direct_percent = if is_ambush { random.one(&[0, 50, 100]) } else { 10 };
    let processes = (0..count).map(|number| {
        let skew_ppb = match random.below(4) {
            0 => -900_000,
            1 => 900_000,
            _ => random.below(1_800_000) as i64 - 900_000,
        };
        let is_slow = number == 0 && mutant == Some(Mutant::SlowClock);
        let (lease, is_late) = (lease * 1000, is_ambush && number == 0);
        let cycle = micros - lease / 2 + random.below(lease);
        let short = lease / 2 + random.below(lease);
        let often = lease as f64 / 2.0 / checks as f64;
        let mut workload = Workload {
            mean_gap: random.one(&[often, often, lease as f64 / 2.0, lease as f64]),
            delay: 0,
            active: random.one(&[cycle, cycle / 2, cycle / 4, short]),
            idle: 0,
        };
        workload.idle = cycle - workload.active;
        if is_ambush {
            let delay = if is_late { 0 } else { ambush_at };
            let (active, often) = match is_clean {
                true if is_late => (lease / 8, often / 16.0),
                _ if is_late => (2 * short, often),
                _ => (10 * micros, often),
            };
            workload = Workload { mean_gap: often, delay, active, idle: 10 * micros };
        }
        ProcessPlan {
            skew_ppb: if is_slow { -200_000_000 } else { skew_ppb },
            leases: is_late || random.below(100) >= direct_percent,
            workload,
            polling: match (mutant, random.below(8)) {
                (None, 0..2) => Polling::WhileWaiting,
                (None, 2) => Polling::Late,
                _ => Polling::AtOnce,
            },
            suspended: match is_ambush {
                true if is_clean => {
                    Suspended { per_mille: 1000 * u64::from(is_late), pause: (600, 850) }
                }
                true => Suspended { per_mille: 950 * u64::from(is_late), pause: (500, 1300) },
                false => Suspended { per_mille: suspended, pause: (0, 2000) },
            },
        }
    });
    let processes: Vec<_> = processes.collect();
    let slow = lease * 1000 / 8;
    let faults = Faults {
        lost: random.one(&[0, 5, 100]),
        delayed: random.one(&[0, 20, 200]),
        refunded: random.one(&[0, 50, 300]),
        undo: random.one(&[0, 0, 50]),
        crashed: random.one(&[0, 0, 8]),
        frozen: random.one(&[0, 0, 8]),
    };
    Plan {
        seed,
        quota: first,
        change,
        start,
        end,
        instances: [1, processes.len() as u32][seed as usize % 2],
        processes,
        max_cost: if is_ambush { 1 } else { random.one(&[1, 1, 3]) },
        way: random.one(&[(100, 1_000), (100, 1_000), (slow / 4, slow)]),
        faults: if is_clean { Faults::default() } else { faults },
        is_judged: true,
        mutant: mutant.filter(|it| *it != Mutant::CountsWithoutLease || is_log || is_bucket),
    }
}

/// Returns the bounds of a history in which the last process changed its quota at `changed_at`.
pub(super) fn bounds(plan: &Plan, changed_at: u64) -> Vec<Bound> {
    let (old, from) = (&plan.quota, 0);
    let always =
        |quota: &Quota, from| Bound { units: most(quota), window: quota.window_micros(), from };
    let Some((new, _)) = plan.change.as_ref().filter(|_| changed_at > 0) else {
        return vec![always(old, from)];
    };
    let (units, window) = most_around_change(old, new);
    let around = Bound { units, window: window.as_micros() as u64, from };
    // By then, no call and no lease of the old quota is under way.
    let lease = lease_micros(old).max(lease_micros(new));
    vec![around, always(new, changed_at + 5 * lease)]
}
