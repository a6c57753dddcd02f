//! Random histories that reach the hard cases.

use std::time::Duration;

use plimsoll::{Algorithm, Quota};
use proptest::{collection::vec, prelude::*};

use crate::{
    algorithms::{Parameter, Returns, facts, returns, with_parameter},
    oracle::Enforcement,
};

/// Returns the algorithms of a mixed history, each as often as it is here: twice if it has a burst.
fn mixed() -> Vec<Algorithm> {
    let is_bucket = |algorithm: &Algorithm| returns(*algorithm) == Returns::AtRate;
    let (buckets, others): (Vec<_>, Vec<_>) = Algorithm::EACH.iter().copied().partition(is_bucket);
    [others, buckets.clone(), buckets].concat()
}

#[derive(Debug, Clone)]
pub struct History {
    pub start: u64,
    /// One quota for each policy.
    pub quotas: Vec<Quota>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub enum Step {
    Move(Move),
    Check {
        lines: Vec<PlannedCharge>,
        repeat: u8,
        keep: bool,
    },
    Peek {
        lines: Vec<PlannedCharge>,
    },
    Refund {
        which: usize,
    },
    Settle {
        which: usize,
        factor: Part,
    },
    Reset {
        line: PlannedCharge,
    },
    Penalize {
        line: PlannedCharge,
    },
    /// For a part of the window of the line's policy.
    Block {
        line: PlannedCharge,
        part: Part,
    },
    Unblock {
        line: PlannedCharge,
    },
    Change {
        policy: usize,
        change: Change,
    },
}

/// A change of the time.
#[derive(Debug, Clone, Copy)]
pub enum Move {
    Micros(u64),
    /// Part of the window of a policy.
    Window(usize, Part),
    /// To an edge of a policy's window, and by how much past it.
    Edge(usize, i64),
    /// As long as the last denial said, and by how much past it.
    Wait(i64),
    Back(usize, Part),
}

#[derive(Debug, Clone, Copy)]
pub struct PlannedCharge {
    pub policy: usize,
    pub key: usize,
    pub cost: Cost,
    pub most: Option<Cost>,
    pub lease: bool,
    pub enforcement: Enforcement,
}

#[derive(Debug, Clone, Copy)]
pub enum Cost {
    Units(u64),
    /// Part of the capacity.
    Part(Part),
    /// The free units, plus this number.
    Free(i64),
    Over(u64),
}

/// A fraction.
#[derive(Debug, Clone, Copy)]
pub struct Part(pub u64, pub u64);

#[derive(Debug, Clone, Copy)]
pub enum Change {
    Limit(Part),
    Window(Part),
    Burst(Part),
    Rate(Part, Part),
    /// A lease for a part of the longest lease, or none.
    Lease(Option<Part>),
    Back,
}

impl Change {
    /// A lease stays, unless this is a change of it.
    pub fn keeps_lease(self) -> bool {
        !matches!(self, Self::Lease(_) | Self::Back)
    }
}

/// The quota with such a lease, or without one if it allows none.
pub fn leased(quota: Quota, lease: Option<Part>) -> Quota {
    if quota.is_concurrent() {
        return quota;
    }
    let (window, algorithm) = (quota.window(), quota.algorithm());
    let plain = Quota::new(quota.limit(), window, algorithm).expect("in bounds");
    let longest = window.min(Duration::from_secs(36_000)) / 10;
    let millis = |part: Part| part.of(longest.as_millis() as u64).max(1);
    let lease = lease.map(|part| Duration::from_millis(millis(part)));
    lease.and_then(|lease| plain.leased(lease).ok()).unwrap_or(plain)
}

impl Part {
    pub fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.0) / u128::from(self.1)) as u64
    }
}

/// Returns random histories of one algorithm, or of several at once.
pub fn histories(algorithm: Option<Algorithm>) -> impl Strategy<Value = History> {
    // Late enough that no request is dated before the epoch when a window grows.
    let late = 100_000_000_000_000_u64;
    let start = prop_oneof![late..late + 20_000, Just(1_700_000_000_000_000), Just(1 << 52)];
    let steps = vec(step(), 4..40);
    (start, vec(quota(algorithm), 1..4), steps).prop_map(|(start, quotas, steps)| History {
        start,
        quotas,
        steps,
    })
}

fn quota(algorithm: Option<Algorithm>) -> BoxedStrategy<Quota> {
    let small = (1..12_u64, prop_oneof![Just(1_000), Just(10_000), 1_000..9_000_u64]);
    let human = prop_oneof![
        Just((3, 1_000_000)),
        Just((7, 60_000_000)),
        Just((1_000, 86_400_000_000)),
        Just((105_000, 86_400_000_000)),
        (1..5_000_u64, 1_000..100_000_000_u64)
    ];
    let huge = algorithm.map_or(Quota::MAX_LIMIT, |algorithm| facts(algorithm).max_limit);
    let mixed = algorithm.map_or_else(mixed, |algorithm| vec![algorithm]);
    let longest = 400 * 86_400_000_000;
    let large = (huge / 3..=huge, prop_oneof![Just(longest), longest / 7..=longest]);
    let rate = prop_oneof![4 => small, 3 => human, 1 => large];
    let lease = prop_oneof![Just(None), part(1).prop_map(Some)];
    (rate, 0..6_u8.max(mixed.len() as u8), 1..40_u16, 1..30_u64, any::<bool>(), lease)
        .prop_filter_map("out of bounds", move |((limit, window), pick, n, burst, large, lease)| {
            let algorithm = mixed[usize::from(pick) % mixed.len()];
            let algorithm = with_parameter(algorithm, |parameter| match parameter {
                Parameter::Buckets => u64::from(if large { n * 25 } else { n }),
                Parameter::Burst => {
                    if large {
                        (limit / 2).max(1)
                    } else {
                        burst
                    }
                }
            });
            let window = Duration::from_micros(window);
            let quota = Quota::new(limit, window, algorithm).ok()?;
            // Some logs count units in flight.
            if algorithm == Algorithm::SlidingLog && large && window >= Duration::from_secs(1) {
                return Quota::concurrent(limit).expires(window).ok();
            }
            Some(leased(quota, lease))
        })
        .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    let lines = || vec(line(), 1..4);
    prop_oneof![
        8 => (line(), 1..8_u8, any::<bool>())
            .prop_map(|(line, repeat, keep)| Step::Check { lines: vec![line], repeat, keep }),
        6 => (lines(), any::<bool>())
            .prop_map(|(lines, keep)| Step::Check { lines, repeat: 1, keep }),
        9 => moves().prop_map(Step::Move),
        1 => lines().prop_map(|lines| Step::Peek { lines }),
        2 => any::<usize>().prop_map(|which| Step::Refund { which }),
        2 => (any::<usize>(), part(3)).prop_map(|(which, factor)| Step::Settle { which, factor }),
        1 => line().prop_map(|line| Step::Reset { line }),
        1 => line().prop_map(|line| Step::Penalize { line }),
        2 => (line(), part(5)).prop_map(|(line, part)| Step::Block { line, part }),
        1 => line().prop_map(|line| Step::Unblock { line }),
        4 => (0..3_usize, change()).prop_map(|(policy, change)| Step::Change { policy, change }),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => (0..50_u64).prop_map(Move::Micros),
        5 => (0..3_usize, part(1)).prop_map(|(policy, part)| Move::Window(policy, part)),
        1 => (0..3_usize, part(3)).prop_map(|(policy, part)| Move::Window(policy, part)),
        2 => (0..3_usize, -1..2_i64).prop_map(|(policy, past)| Move::Edge(policy, past)),
        4 => (-1..2_i64).prop_map(Move::Wait),
        1 => (0..3_usize, part(1)).prop_map(|(policy, part)| Move::Back(policy, part)),
        1 => (0..3_usize, part(9)).prop_map(|(policy, part)| Move::Back(policy, part)),
    ]
}

fn line() -> impl Strategy<Value = PlannedCharge> {
    let most = prop_oneof![7 => Just(None), 1 => cost().prop_map(Some)];
    let key = prop_oneof![3 => Just(0), 1 => Just(1_usize)];
    let enforcement = prop_oneof![
        4 => Just(Enforcement::Live), 1 => Just(Enforcement::Shadow), 1 => Just(Enforcement::Trial)
    ];
    (0..3_usize, key, cost(), most, any::<bool>(), enforcement).prop_map(
        |(policy, key, cost, most, lease, enforcement)| PlannedCharge {
            policy,
            key,
            cost,
            most,
            lease,
            enforcement,
        },
    )
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => (0..4_u64).prop_map(Cost::Units),
        4 => part(1).prop_map(Cost::Part),
        4 => (-1..2_i64).prop_map(Cost::Free),
        1 => prop_oneof![Just(1), Just(u64::MAX)].prop_map(Cost::Over),
    ]
}

/// A fraction of up to `most`.
fn part(most: u64) -> impl Strategy<Value = Part> {
    prop_oneof![
        (0..=12 * most).prop_map(|of| Part(of, 12)),
        (0..=1_000 * most).prop_map(|of| Part(of, 997))
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => (1..40_u64).prop_map(|of| Change::Limit(Part(of, 12))),
        3 => (1..40_u64).prop_map(|of| Change::Window(Part(of, 12))),
        2 => (1..40_u64).prop_map(|of| Change::Burst(Part(of, 12))),
        2 => (1..40_u64, 1..40_u64)
            .prop_map(|(limit, window)| Change::Rate(Part(limit, 12), Part(window, 12))),
        2 => prop_oneof![Just(None), part(1).prop_map(Some)].prop_map(Change::Lease),
        2 => Just(Change::Back),
    ]
}
