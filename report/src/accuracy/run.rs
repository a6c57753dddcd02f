//! Each algorithm against the exact log, under each kind of traffic.

use plimsoll::{Algorithm, Quota};
use plimsoll_testing::algorithms::{most, with_parameters};

use super::{
    judge::Judge,
    limits::{Limit, Real, Textbook},
    traffic::Traffic,
};

/// The quota of all runs, without its algorithm.
const QUOTA: &str = "100/min";
const BUCKETS: u16 = 60;
const BURST: u64 = 20;

/// The counts of an algorithm under one kind of traffic, over all clients.
#[derive(Debug, Default)]
struct Row {
    requests: u64,
    admitted: u64,
    /// The fullest window of any client.
    fullest: u64,
    /// Requests that were admitted although the units that this algorithm had admitted filled the window.
    wrongly_admitted: u64,
    /// Requests that were denied although the units that this algorithm had admitted left room.
    wrongly_denied: u64,
    /// Decisions that an exact log with a history of its own makes otherwise.
    differ: u64,
}

/// Runs the traffic of all clients, each against a fresh limit.
fn run(traffic: Traffic, clients: u64, quota: &Quota, limit: impl Fn() -> Box<dyn Limit>) -> Row {
    let (units, window) = (quota.limit(), quota.window().as_micros() as u64);
    let mut row = Row::default();
    for client in 0..clients {
        let (mut judge, mut exact) = (Judge::default(), Judge::default());
        traffic.run(client, units, window, &mut *limit(), &mut |now, admitted| {
            row.requests += 1;
            let has_room = judge.has_room(now, units, window);
            row.wrongly_admitted += u64::from(admitted && !has_room);
            row.wrongly_denied += u64::from(!admitted && has_room);
            if admitted {
                judge.admit(now, window);
            }
            let exact_admits = exact.has_room(now, units, window);
            row.differ += u64::from(admitted != exact_admits);
            if exact_admits {
                exact.admit(now, window);
            }
        });
        row.admitted += judge.total();
        row.fullest = row.fullest.max(judge.fullest());
    }
    row
}

/// Returns the quota of each algorithm, the default first.
fn quotas() -> Vec<Quota> {
    let quota: Quota = QUOTA.parse().expect("a quota");
    let algorithms =
        Algorithm::EACH.iter().map(|algorithm| with_parameters(*algorithm, BUCKETS, BURST));
    algorithms.map(|algorithm| quota.with_algorithm(algorithm).expect("it fits")).collect()
}

/// Prints a line for each kind of traffic and each algorithm.
pub(crate) fn print() {
    println!(
        "traffic,algorithm,limit,bound,requests,admitted,fullest,wrongly_admitted,wrongly_denied,differ"
    );
    for traffic in Traffic::EACH {
        for quota in quotas() {
            let row = run(traffic, traffic.clients(), &quota, || Box::new(Real::new(quota)));
            print_row(traffic, &quota.algorithm().to_string(), &quota, most(&quota), &row);
        }
        let quota: Quota = QUOTA.parse().expect("a quota");
        let row = run(traffic, traffic.clients(), &quota, || {
            Box::new(Textbook::new(quota.limit(), quota.window()))
        });
        print_row(traffic, "textbook counter", &quota, 2 * quota.limit(), &row);
    }
}

fn print_row(traffic: Traffic, algorithm: &str, quota: &Quota, bound: u64, row: &Row) {
    let Row { requests, admitted, fullest, wrongly_admitted, wrongly_denied, differ } = row;
    println!(
        "{},{algorithm},{},{bound},{requests},{admitted},{fullest},{wrongly_admitted},{wrongly_denied},{differ}",
        traffic.name(),
        quota.limit(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_traffic_exceeds_a_bound_and_the_adversary_almost_reaches_it() {
        for quota in quotas() {
            for traffic in Traffic::EACH {
                let row = run(traffic, 1, &quota, || Box::new(Real::new(quota)));
                let bound = most(&quota);
                assert!(row.fullest <= bound, "{quota}, {traffic:?}: {row:?}");
                // A bucket that is full to the unit at the edge has a part of a unit less at the end.
                let reached = traffic != Traffic::Adversary || row.fullest + 1 >= bound;
                assert!(reached, "{quota}: {row:?} is far from {bound}");
            }
        }
    }

    #[test]
    fn the_default_is_the_exact_log() {
        let quota: Quota = QUOTA.parse().expect("a quota");
        for traffic in Traffic::EACH {
            let row = run(traffic, 1, &quota, || Box::new(Real::new(quota)));
            assert_eq!((row.wrongly_admitted, row.wrongly_denied, row.differ), (0, 0, 0));
            assert!(row.admitted > 0 && row.requests > row.admitted, "{traffic:?}: {row:?}");
        }
    }

    /// A limit that admits everything, which the judge must find.
    struct Open;

    impl Limit for Open {
        fn ask(&mut self, _: u64) -> Result<(), u64> {
            Ok(())
        }
    }

    #[test]
    fn the_judge_finds_a_limit_that_admits_too_much() {
        let quota: Quota = QUOTA.parse().expect("a quota");
        let row = run(Traffic::Poisson, 1, &quota, || Box::new(Open));
        assert!(row.fullest > quota.limit() && row.wrongly_admitted > 0, "{row:?}");
    }
}
