//! The units that all regions admit together, in random histories of checks, refunds and faults.

use std::time::Duration;

use futures_util::future::join_all;
use plimsoll::{
    Algorithm, Decision, Limiter, MemoryStore, Policy, Quota,
    clock::{Clock, ManualClock},
    decision::Receipt,
    error::Effect,
    memory::MemoryConfig,
    store::Source,
};
use plimsoll_regions::RegionsConfig;
use plimsoll_testing::{
    algorithms::{Parameter, most, with_burst, with_parameter},
    most_in_any_window, policy, seed,
};
use tokio::time::sleep;

use super::world::{Mood, World};

const WINDOW: Duration = Duration::from_secs(10);

/// The units that were admitted and not refunded, with their times.
#[derive(Default)]
struct Admitted(Vec<(u64, u64)>);

impl Admitted {
    fn most(&self) -> u128 {
        most_in_any_window(&self.0, WINDOW.as_micros() as u64)
    }
}

/// Returns the bound of the share of one region, as the guide states it.
fn share_bound(quota: &Quota, regions: u32, percent: u32) -> u128 {
    let share = |units: u64| units * u64::from(percent) / 100 / u64::from(regions);
    let algorithm = with_burst(quota, share);
    let share = Quota::new(share(quota.limit()), quota.window(), algorithm);
    share.map_or(0, |share| most(&share).into())
}

fn quota(random: &mut seed::Random, algorithm: Algorithm) -> Quota {
    let limit = 1 + random.below(60);
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => 1 + random.below(8),
        Parameter::Burst => 1 + random.below(30),
    });
    Quota::new(limit, WINDOW, algorithm).expect("valid")
}

/// The stores that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// The home. The regions have no fallback.
    Home,
    /// The home. The regions have a fallback, as is the default.
    HomeWithFallback,
    /// The home, and the stores of the regions, with a fallback.
    All,
}

/// A history: the quota, the units that were admitted, and the most units in a window.
struct History {
    quota: Quota,
    admitted: Admitted,
    bound: u128,
    /// The number of checks that a fallback admitted.
    fell_back: u64,
}

/// Runs one history.
async fn history(random: &mut seed::Random, algorithm: Algorithm, failing: Failing) -> History {
    let regions = 1 + random.below(4) as u32;
    let percent = random.below(101) as u32;
    let config = RegionsConfig::new(regions).share_percent(percent);
    let world = World::with(regions, config, |it| match failing {
        Failing::Home => it.without_fallback(),
        Failing::HomeWithFallback | Failing::All => it,
    });
    let quota = quota(random, algorithm);
    let shares = match failing {
        Failing::Home | Failing::HomeWithFallback => 0,
        // Each region may admit its share once more.
        Failing::All => u128::from(regions) * share_bound(&quota, regions, percent),
    };
    let bound = u128::from(most(&quota)) + shares;
    let mut fell_back = 0;
    let api = Policy::new("api", quota).expect("valid");
    let mut admitted = Admitted::default();
    let mut receipts: Vec<(usize, usize, Receipt)> = Vec::new();
    for _ in 0..100 {
        match random.below(10) {
            0 => world.home.set(random.one(&[
                Mood::Well,
                Mood::Well,
                Mood::Down,
                Mood::Gone,
                Mood::Mute,
            ])),
            9 if failing == Failing::All => {
                let region = world.region(random.below(u64::from(regions)) as usize);
                let mood = random.one(&[Mood::Well, Mood::Down, Mood::Gone, Mood::Mute]);
                region.store.set(mood);
            }
            1 => world.home.delay(Duration::from_millis(random.one(&[0, 0, 20, 200]))),
            2 => sleep(Duration::from_millis(random.below(2_000))).await,
            3 if !receipts.is_empty() => {
                let at = random.below(receipts.len() as u64) as usize;
                let (region, entry, receipt) = receipts.swap_remove(at);
                match world.region(region).limiter.hold(receipt).refund().await {
                    Ok(units) => admitted.0[entry].1 -= units,
                    Err(error) if error.effect() == Effect::None => {}
                    // The units may have been refunded.
                    Err(_) => admitted.0[entry].1 = 0,
                }
            }
            _ => {
                let step = random.one(&[0, 1, 1_000, 100_000, 500_000, 2_000_000]);
                world.clock.advance(Duration::from_micros(step));
            }
        }
        let now = world.clock.now().as_micros();
        let checks = join_all((0..1 + random.below(3)).map(|_| {
            let region = random.below(u64::from(regions)) as usize;
            let charge = api.charge("alice", 1 + random.below(3) * random.below(5));
            let charge = if random.below(4) == 0 { charge.up_to(10) } else { charge };
            let limiter = &world.region(region).limiter;
            async move {
                match limiter.check(charge).await.ok()? {
                    Decision::Allowed(allowed) => Some((region, allowed.into_receipt())),
                    Decision::Denied(_) => None,
                }
            }
        }))
        .await;
        for (region, receipt) in checks.into_iter().flatten() {
            fell_back += u64::from(receipt.source == Source::Fallback);
            let units = receipt.lines().iter().map(|line| line.units).sum();
            admitted.0.push((now, units));
            receipts.push((region, admitted.0.len() - 1, receipt));
        }
    }
    History { quota, admitted, bound, fell_back }
}

#[tokio::test(start_paused = true)]
async fn all_regions_together_never_admit_more_than_the_bound() {
    for (number, algorithm) in Algorithm::EACH.iter().enumerate() {
        let name = format!("union of regions, {}", algorithm.name());
        let mut fullest = 0.0_f64;
        let mut fell_back = 0;
        for case in seed::histories(&name, 60) {
            let mut random = seed::Random(case.seed.wrapping_add(number as u64));
            let failing = random.one(&[Failing::Home, Failing::HomeWithFallback, Failing::All]);
            let history = history(&mut random, *algorithm, failing).await;
            let (quota, bound, most) = (history.quota, history.bound, history.admitted.most());
            assert!(most <= bound, "{quota}, {failing:?}: {most} units, at most {bound}");
            if failing == Failing::All {
                fell_back += history.fell_back;
            } else {
                assert_eq!(history.fell_back, 0, "{quota}: the regions decide");
                fullest = fullest.max(most as f64 / quota.limit() as f64);
            }
        }
        assert!(fell_back > 20, "{algorithm:?}: {fell_back} checks fell back");
        assert!(fullest >= 1.0, "{algorithm:?}: the whole limit is used, not only {fullest}");
    }
}

/// The recipe that is found in many places: a limiter of 70% of the limit in each region, and the whole
/// limit in one that all regions share.
#[tokio::test]
async fn the_judge_finds_the_excess_of_local_limits_before_a_global_one() {
    let clock = ManualClock::at(1_700_000_000_000_000);
    let limiter = || Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
    let (global, locals) = (limiter(), [limiter(), limiter()]);
    let (whole, part) = (policy("whole", "100/10s"), policy("part", "70/10s"));
    let (mut random, mut admitted) = (seed::Random::new("recipe"), Admitted::default());
    for _ in 0..2_000 {
        clock.advance(Duration::from_millis(random.below(10)));
        let local = &locals[random.below(2) as usize];
        let checks = [(local, &part), (&global, &whole)];
        for (limiter, policy) in checks {
            if limiter.check(policy.charge("alice", 1)).await.expect("embedded").is_allowed() {
                admitted.0.push((clock.now().as_micros(), 1));
                break;
            }
        }
    }
    assert_eq!(admitted.most(), 240, "of 100");
}
