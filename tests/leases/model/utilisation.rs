//! The utilisation of a limit by a fleet that leases, beside one whose checks all ask the store, in
//! virtual time.
//!
//! `PLIMSOLL_UTILISATION=1 cargo test --release --all-features --lib utilisation::tables -- --nocapture`
//! prints the tables.

use std::time::Duration;

use super::{
    fleet::{Fleet, Totals},
    plan::{Faults, Plan, Polling, ProcessPlan, Suspended, Workload},
};
use crate::{
    algorithms::{each, facts},
    quota::Quota,
};

/// One cell of the table.
#[derive(Debug, Clone)]
struct Setting {
    quota: Quota,
    /// The part of the demand of each process.
    shares: Vec<f64>,
    /// The demand of all processes in relation to the limit.
    load: f64,
    leases: bool,
    /// The number of instances that each process knows.
    instances: u32,
    /// The number of windows that are measured.
    windows: u64,
}

/// The figures of a run, each for one second.
#[derive(Debug, Clone)]
struct Figures {
    checks: f64,
    admitted: f64,
    calls: f64,
    /// The units that each process was admitted.
    units: Vec<f64>,
}

impl Figures {
    fn denied_percent(&self) -> f64 {
        100.0 * (self.checks - self.admitted) / self.checks
    }
}

/// Runs a setting for its windows after a warm-up. A call to the store takes 1 ms.
fn run(setting: &Setting) -> Figures {
    let quota = setting.quota;
    let (window, counted) = (quota.window_micros(), quota.counted().window_micros());
    let rate = quota.limit() as f64 / window as f64 * setting.load;
    let processes = setting.shares.iter().map(|share| ProcessPlan {
        skew_ppb: 0,
        leases: setting.leases,
        workload: Workload {
            mean_gap: 1.0 / (rate * share),
            delay: 0,
            active: u64::MAX / 2,
            idle: 0,
        },
        suspended: Suspended { per_mille: 0, pause: (0, 1) },
        polling: Polling::AtOnce,
    });
    let start = 1_000_000 * window;
    let measured = start + 2 * counted;
    let end = measured + setting.windows * counted;
    let plan = Plan {
        seed: 1,
        quota,
        change: None,
        start,
        end,
        processes: processes.collect(),
        instances: setting.instances,
        max_cost: 1,
        way: (450, 550),
        faults: Faults::default(),
        is_judged: false,
        mutant: None,
    };
    let mut fleet = Fleet::new(&plan);
    fleet.run_until(measured);
    let before = fleet.totals.clone();
    fleet.run_until(end);
    let per_second = |count: fn(&Totals) -> u64| {
        let more = count(&fleet.totals) - count(&before);
        more as f64 * 1e6 / (end - measured) as f64
    };
    let units = fleet.totals.units.iter().zip(&before.units);
    Figures {
        checks: per_second(|it| it.checks.iter().sum()),
        admitted: per_second(|it| it.admitted.iter().sum()),
        calls: per_second(|it| it.calls.iter().sum()),
        units: units.map(|(all, before)| (all - before) as f64).collect(),
    }
}

/// Returns the parts of the demand: equal, or by Zipf's law.
fn shares(holders: usize, is_zipf: bool) -> Vec<f64> {
    let weights = (1..=holders).map(|rank| if is_zipf { 1.0 / rank as f64 } else { 1.0 });
    let sum: f64 = weights.clone().sum();
    weights.map(|weight| weight / sum).collect()
}

fn quota(text: &str, lease: u64) -> Quota {
    let quota: Quota = text.parse().expect("a quota");
    quota.leased(Duration::from_millis(lease)).expect("a lease")
}

/// The quotas, each with a long and a short lease in milliseconds.
const QUOTAS: &[(&str, [u64; 2])] = &[
    ("100/s", [100, 20]),
    ("1000/s", [100, 20]),
    ("10000/s", [100, 20]),
    ("100000/s", [100, 20]),
    ("20000/min", [500, 100]),
];

#[derive(Debug)]
struct UtilisationRow {
    saturated: (Figures, Figures, Figures),
    steady: (Figures, Figures),
}

fn row(quota: Quota, holders: usize, is_zipf: bool) -> UtilisationRow {
    let without = quota.to_string();
    let without = without.split(" leased").next().expect("some").parse().expect("a quota");
    let windows = match quota.limit() {
        ..=1_000 => 100,
        1_001..=10_000 => 20,
        _ => 5,
    };
    let shares = shares(holders, is_zipf);
    let instances = holders as u32;
    let setting =
        |load, leases| Setting { quota, shares: shares.clone(), load, leases, instances, windows };
    let saturated = |leases| setting(1.5, leases);
    UtilisationRow {
        saturated: (
            run(&saturated(true)),
            run(&saturated(false)),
            run(&Setting { quota: without, ..saturated(false) }),
        ),
        steady: (run(&setting(0.9, true)), run(&setting(0.9, false))),
    }
}

fn print(name: &str, quota: Quota, holders: usize, is_zipf: bool) {
    let UtilisationRow { saturated: (ours, direct, unleased), steady: (steady, steady_direct) } =
        row(quota, holders, is_zipf);
    println!(
        "| `{name}` | {holders} | {} | {:.1}% | {:.1}% | {:.0} | {:.0} | {:.2}% | {:.2}% | {:.0} | {:.0} |",
        if is_zipf { "Zipf" } else { "even" },
        100.0 * ours.admitted / direct.admitted,
        100.0 * ours.admitted / unleased.admitted,
        ours.calls,
        direct.calls,
        steady.denied_percent(),
        steady_direct.denied_percent(),
        steady.calls,
        steady_direct.calls,
    );
}

fn heading() {
    println!(
        "| quota | processes | demand | of direct | of direct, no lease | calls/s | direct calls/s | denied at 0.9 | direct | calls/s at 0.9 | direct |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
}

/// Prints the tables, for some minutes, if `PLIMSOLL_UTILISATION` is set.
#[test]
fn tables() {
    if std::env::var_os("PLIMSOLL_UTILISATION").is_none() {
        return;
    }
    heading();
    for (text, leases) in QUOTAS {
        for lease in leases {
            for holders in [2, 10, 50] {
                for is_zipf in [false, true] {
                    print(
                        &format!("{text} leased({lease}ms)"),
                        quota(text, *lease),
                        holders,
                        is_zipf,
                    );
                }
            }
        }
    }
    println!();
    heading();
    for algorithm in each(60, 1_000) {
        let text = format!("1000/s {algorithm}");
        print(&text, quota(&text, 100), 10, false);
    }
    println!();
    fairness_table();
    println!("\n| processes of demand 1, 2, 4 and 8 | leased | direct |\n|---|---|---|");
    for load in [1.5, 4.0] {
        let shares: Vec<f64> = [1.0, 2.0, 4.0, 8.0].map(|weight| weight / 15.0).to_vec();
        let (quota, shares) = (quota("1000/s", 100), shares.clone());
        let setting = |leases| Setting {
            quota,
            shares: shares.clone(),
            load,
            leases,
            instances: 4,
            windows: 100,
        };
        let text = |figures: Figures| {
            let sum: f64 = figures.units.iter().sum();
            let parts = figures.units.iter().map(|units| format!("{:.1}%", 100.0 * units / sum));
            parts.collect::<Vec<_>>().join(", ")
        };
        println!(
            "| {load} times the limit | {} | {} |",
            text(run(&setting(true))),
            text(run(&setting(false)))
        );
    }
}

/// Returns the figures of ten processes that lease, and of ten that do not, under the same demand.
fn ten(quota: &Quota, is_zipf: bool, load: f64) -> (Figures, Figures) {
    let setting = |leases| Setting {
        quota: *quota,
        shares: shares(10, is_zipf),
        load,
        leases,
        instances: 10,
        windows: 10,
    };
    (run(&setting(true)), run(&setting(false)))
}

#[test]
fn a_saturated_limit_is_used_as_well_as_without_leases() {
    for algorithm in each(60, 1_000) {
        let quota = quota(&format!("1000/s {algorithm}"), 100);
        for is_zipf in [false, true] {
            let (ours, direct) = ten(&quota, is_zipf, 1.5);
            let part = ours.admitted / direct.admitted;
            let least = facts(algorithm).leased_use;
            assert!(part >= least, "{quota}: {part} of {direct:?}, at least {least}");
        }
    }
    // The tables also have 100,000 a second.
    for (text, leases) in QUOTAS.iter().filter(|(text, _)| *text != "100000/s") {
        for holders in [2, 50] {
            let quota = quota(text, leases[0]);
            let admitted = |leases| {
                let shares = shares(holders, false);
                let instances = holders as u32;
                run(&Setting { quota, shares, load: 1.5, leases, instances, windows: 2 }).admitted
            };
            let part = admitted(true) / admitted(false);
            assert!(part >= 0.95, "{quota}, {holders} processes: {part}");
        }
    }
}

#[test]
fn nine_tenths_of_a_limit_are_denied_no_more_than_without_leases() {
    // In the last two, a process makes less than 4 checks in half a lease. It does not lease the key.
    for (text, lease, holders) in
        [("10000/s", 20, 10), ("1000/s", 100, 10), ("1000/s", 100, 50), ("100/s", 100, 10)]
    {
        let quota = quota(text, lease);
        let denied = |leases| {
            let shares = shares(holders, false);
            let instances = holders as u32;
            run(&Setting { quota, shares, load: 0.9, leases, instances, windows: 30 })
                .denied_percent()
        };
        let (ours, direct) = (denied(true), denied(false));
        assert!(ours <= direct + 0.1, "{quota}, {holders} processes: {ours}% and {direct}%");
    }
}

/// The fairness of a run among processes with the same demand.
#[derive(Debug)]
struct Fairness {
    /// Jain's index: 1 if all have the same number of units, and `1 / n` if one of `n` has them all.
    jain: f64,
    /// The units of the luckiest and of the unluckiest process, in relation to an equal part.
    most: f64,
    least: f64,
    calls: f64,
}

/// Measures the fairness over four windows.
fn fairness(quota: &Quota, holders: usize, load: f64, leases: bool, instances: u32) -> Fairness {
    let shares = shares(holders, false);
    let figures = run(&Setting { quota: *quota, shares, load, leases, instances, windows: 4 });
    let units = figures.units;
    let sum: f64 = units.iter().sum();
    let squares: f64 = units.iter().map(|units| units * units).sum();
    let part = sum / holders as f64;
    Fairness {
        jain: sum * sum / (holders as f64 * squares),
        most: units.iter().copied().fold(0.0, f64::max) / part,
        least: units.iter().copied().fold(f64::MAX, f64::min) / part,
        calls: figures.calls,
    }
}

fn fairness_table() {
    println!("| quota | processes | demand | no bound | by the count of instances | no leases |");
    println!("|---|---|---|---|---|---|");
    for algorithm in each(60, 1_000) {
        let quota = quota(&format!("1000/s {algorithm}"), 100);
        for holders in [8, 50] {
            for load in [1.5, 20.0, 100.0] {
                let count = holders as u32;
                let figures = [(true, 1), (true, count), (false, 1)].map(|(leases, instances)| {
                    let Fairness { jain, most, least, calls } =
                        fairness(&quota, holders, load, leases, instances);
                    format!("{jain:.3}, {most:.2} to {least:.2}, {calls:.0} calls/s")
                });
                println!("| `{quota}` | {holders} | {load} | {} |", figures.join(" | "));
            }
        }
    }
}

/// A demand of a hundred times the limit. Without a bound, the first processes of a period take it as a whole.
#[test]
fn no_process_takes_a_whole_budget() {
    let quota = quota("100/s fixed-window", 100);
    let bounded = fairness(&quota, 8, 100.0, true, 8);
    assert!(bounded.jain > 0.95 && bounded.least > 0.6, "{bounded:?}");
    let unbounded = fairness(&quota, 8, 100.0, true, 1);
    assert!(unbounded.jain < 0.6, "the count has no effect: {unbounded:?}");
    for algorithm in each(60, 1_000) {
        let quota = self::quota(&format!("1000/s {algorithm}"), 100);
        for load in [1.5, 100.0] {
            let bounded = fairness(&quota, 8, load, true, 8);
            assert!(bounded.jain > 0.9, "{quota}, {load}: {bounded:?}");
        }
    }
}
