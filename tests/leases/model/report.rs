//! 4,000 processes on one hot key, in virtual time: the figures of `docs/report.md`.
//!
//! `PLIMSOLL_FLEET=4000 cargo test --release --no-default-features --lib model::report -- --nocapture`
//! prints them. Without the variable, a small fleet is judged.

use std::time::Duration;

use super::{
    checker::{Bound, fullest_window},
    fleet::Fleet,
    plan::{Faults, Plan, Polling, ProcessPlan, Suspended, Workload},
};
use crate::{
    algorithms::most,
    quota::{Algorithm, Quota},
};

/// The limit of each process in 10 s, and the lease.
const SHARE: u64 = 100;
const WINDOW: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(1);

/// A fleet whose processes all have the same demand.
#[derive(Debug, Clone, Copy)]
struct Setting {
    processes: u64,
    /// The demand in relation to the limit.
    load: f64,
    leases: bool,
    faults: Faults,
}

#[derive(Debug)]
struct Figures {
    /// The checks, the admitted checks and the calls to the store, each in a second.
    checks: f64,
    admitted: f64,
    calls: f64,
    /// The units of the process that was admitted least, of that in the middle, and of that which was
    /// admitted most, in relation to the mean.
    least: f64,
    middle: f64,
    most: f64,
    /// The units of the fullest window, and its bound.
    fullest: u64,
    bound: u64,
}

fn run(setting: Setting) -> Figures {
    let Setting { processes, load, leases, faults } = setting;
    let limit = processes * SHARE;
    let plain = Quota::new(limit, WINDOW, Algorithm::SlidingLog).expect("a valid quota");
    let leased = plain.leased(LEASE).expect("a valid quota");
    // A quota with a lease counts over a longer window. Both kinds of fleet run for the same time.
    let counted = leased.counted().window_micros();
    let quota = if leases { leased } else { plain };
    let process = ProcessPlan {
        skew_ppb: 0,
        leases,
        workload: Workload {
            mean_gap: quota.window_micros() as f64 / (SHARE as f64 * load),
            delay: 0,
            active: u64::MAX / 2,
            idle: 0,
        },
        suspended: Suspended { per_mille: 0, pause: (0, 1) },
        polling: Polling::AtOnce,
    };
    let start = 1_000_000 * quota.window_micros();
    let (measured, end) = (start + counted, start + 3 * counted);
    let plan = Plan {
        seed: 1,
        quota,
        change: None,
        start,
        end,
        processes: vec![process; processes as usize],
        instances: processes as u32,
        max_cost: 1,
        way: (450, 550),
        faults,
        is_judged: true,
        mutant: None,
    };
    let mut fleet = Fleet::new(&plan);
    // In the first window, all units are free.
    fleet.run_until(measured);
    let before = fleet.totals.clone();
    fleet.run_until(end);
    let per_second = |after: &[u64], before: &[u64]| {
        let more = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        more as f64 * 1e6 / (end - measured) as f64
    };
    let totals = &fleet.totals;
    let units = totals.units.iter().zip(&before.units).map(|(after, before)| after - before);
    let mut units: Vec<_> = units.map(|it| it as f64).collect();
    units.sort_unstable_by(f64::total_cmp);
    let mean = units.iter().sum::<f64>() / units.len() as f64;
    let bound = Bound { units: most(&quota), window: quota.window_micros(), from: 0 };
    Figures {
        checks: per_second(&totals.checks, &before.checks),
        admitted: per_second(&totals.admitted, &before.admitted),
        calls: per_second(&totals.calls, &before.calls),
        least: units[0] / mean,
        middle: units[units.len() / 2] / mean,
        most: units[units.len() - 1] / mean,
        fullest: fullest_window(&fleet.uses, bound),
        bound: bound.units,
    }
}

/// Returns the settings, each with its name: three loads, with and without leases, and one with faults.
fn settings(processes: u64) -> Vec<(&'static str, Setting)> {
    let setting = |load, leases| Setting { processes, load, leases, faults: Faults::default() };
    let faults = Faults { lost: 5, delayed: 5, crashed: 1, frozen: 1, ..Faults::default() };
    let mut settings = Vec::new();
    for load in [0.5, 0.9, 1.5] {
        settings.push(("leased", setting(load, true)));
        settings.push(("direct", setting(load, false)));
    }
    settings.push(("leased, with faults", Setting { faults, ..setting(1.5, true) }));
    settings
}

#[test]
fn a_large_fleet_keeps_to_the_limit() {
    let given = std::env::var("PLIMSOLL_FLEET").ok().and_then(|text| text.parse().ok());
    if given.is_some() {
        println!(
            "\nfleet,name,processes,load,checks,admitted,calls,least,middle,most,fullest,bound"
        );
    }
    for (name, setting) in settings(given.unwrap_or(40)) {
        let figures = run(setting);
        assert!(figures.fullest <= figures.bound, "{name}, {setting:?}: {figures:?}");
        let is_saturated = setting.load > 1.0 && name != "leased, with faults";
        let part = figures.fullest as f64 / figures.bound as f64;
        assert!(!is_saturated || part > 0.8, "{name}, {setting:?} are far from the bound: {part}");
        if given.is_some() {
            let Setting { processes, load, .. } = setting;
            let Figures { checks, admitted, calls, least, middle, most, fullest, bound } = figures;
            println!(
                "fleet,\"{name}\",{processes},{load},{checks:.0},{admitted:.0},{calls:.0},\
                 {least:.3},{middle:.3},{most:.3},{fullest},{bound}"
            );
        }
    }
}
