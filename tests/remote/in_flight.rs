//! A fleet under a concurrency limit, in virtual time: no more requests in flight than units, and no unit is
//! lost. Mutants of the store do what other limiters do wrong, and the model must find them.
//!
//! The store is a list of tokens, written from the description of the limit alone. The limiters are real.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::{
    Limiter, MemoryStore, Policy, Quota, Resilience,
    clock::{ManualClock, Timestamp, TokioClock},
    decision::Standing,
    limiter::Reserved,
    memory::MemoryConfig,
    store::{Answer, ChargeReply, Mark, Request, Source, Store, StoreReply, Verdict},
};
use plimsoll_testing::seed::{self, Random};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::remote::{Mood, Remote};

const UNITS: u64 = 4;
const EXPIRY: Duration = Duration::from_secs(2);
const PROCESSES: usize = 3;
const TASKS: usize = 4;
const LENGTH: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// A release frees the oldest unit, which another request may have.
    ReleaseWithoutToken,
    /// The key expires as a whole, at a time that the first unit has set.
    ExpiryOfTheFirst,
    /// A renewal frees the old unit and then takes the new one.
    RefundBeforeCharge,
}

#[derive(Debug)]
struct Shared {
    mutant: Mutant,
    /// The tokens of the units in flight, with the times at which they were taken.
    units: Mutex<Vec<(u64, Instant)>>,
    first: Mutex<Option<Instant>>,
    next: Mutex<u64>,
}

#[derive(Debug, Clone)]
enum Action {
    Take,
    Peek,
    /// Units that have the same token.
    Force(u64),
    Release(Vec<u64>),
}

impl Shared {
    fn apply(&self, action: &Action) -> Vec<ChargeReply> {
        let now = Instant::now();
        let mut units = self.units.lock().expect("no panic");
        let mut first = self.first.lock().expect("no panic");
        if self.mutant != Mutant::ExpiryOfTheFirst {
            units.retain(|(_, taken)| *taken + EXPIRY > now);
        } else if first.is_some_and(|first| first + EXPIRY <= now) {
            units.clear();
            *first = None;
        }
        let lines = match action {
            Action::Release(tokens) => tokens.clone(),
            _ => vec![0],
        };
        let reply = |token: u64| {
            let is_full = units.len() as u64 >= UNITS;
            let takes = match action {
                Action::Force(count) => *count,
                Action::Take => u64::from(!is_full),
                Action::Peek | Action::Release(_) => 0,
            };
            let mut mark = 0;
            if takes > 0 {
                let mut next = self.next.lock().expect("no panic");
                *next += 1;
                mark = *next;
                units.extend((0..takes).map(|_| (mark, now)));
                first.get_or_insert(now);
            }
            if let Action::Release(_) = action {
                let index = match self.mutant {
                    Mutant::ReleaseWithoutToken => (!units.is_empty()).then_some(0),
                    _ => units.iter().position(|(held, _)| *held == token),
                };
                index.map(|index| units.remove(index));
            }
            let remaining = UNITS.saturating_sub(units.len() as u64);
            let refused = matches!(action, Action::Take) && takes == 0;
            let wait = if remaining < UNITS { EXPIRY } else { Duration::ZERO };
            let standing = Standing {
                limit: UNITS,
                remaining,
                next_after: wait,
                reset_after: wait,
                retry_after: refused.then_some(wait),
            };
            let verdict = if refused { Verdict::Refused } else { Verdict::Passed };
            ChargeReply { verdict, units: takes, standing, mark: Mark([mark, 0, 0]) }
        };
        lines.into_iter().map(reply).collect()
    }

    /// Begins a renewal, of which the mutant refunds the old unit first.
    fn begin_renewal(&self) {
        if self.mutant == Mutant::RefundBeforeCharge {
            let mut units = self.units.lock().expect("no panic");
            let old = units.iter().position(|(_, taken)| taken.elapsed() > EXPIRY / 4);
            old.map(|old| units.remove(old));
        }
    }
}

/// The store as one process reaches it: after some time, and not while it is cut off.
#[derive(Debug)]
struct Instance {
    shared: Arc<Shared>,
    cut_until: Arc<Mutex<Instant>>,
    random: Mutex<u64>,
}

impl Store for Instance {
    fn call(&self, request: Request<'_>, _: Option<std::time::Instant>) -> Answer {
        let action = match request {
            Request::Acquire(_) => Action::Take,
            Request::Peek(_) => Action::Peek,
            Request::Force(charges) => Action::Force(charges[0].cost()),
            Request::Refund(receipt) => {
                Action::Release(receipt.lines().iter().map(|it| it.mark.0[0]).collect())
            }
            other => panic!("{other:?}"),
        };
        let (shared, cut_until) = (Arc::clone(&self.shared), Arc::clone(&self.cut_until));
        let ways = {
            let mut seed = self.random.lock().expect("no panic");
            let mut random = Random(*seed);
            *seed = random.number();
            [(); 3].map(|()| random.below(5_000))
        };
        Answer::pending(async move {
            let travel = async |micros| {
                sleep(Duration::from_micros(micros)).await;
                let until = *cut_until.lock().expect("no panic");
                sleep_until(until).await;
            };
            travel(ways[0]).await;
            if let Action::Force(_) = action {
                shared.begin_renewal();
                travel(ways[2]).await;
            }
            let replies = shared.apply(&action);
            travel(ways[1]).await;
            Ok(StoreReply::new(Timestamp::from_micros(1), Source::Shared, replies))
        })
    }
}

/// An independent count of the requests in flight.
#[derive(Debug, Default)]
struct Watch {
    /// The process of each request in flight that counts. One whose process was cut off for longer than its
    /// unit may last does not.
    holders: Mutex<HashMap<u64, usize>>,
    /// The most requests at the same time, all of them, and those that outlasted the expiry.
    most: Mutex<(u64, u64, u64)>,
}

impl Watch {
    fn begin(&self, id: u64, process: usize) {
        let mut holders = self.holders.lock().expect("no panic");
        holders.insert(id, process);
        let mut most = self.most.lock().expect("no panic");
        *most = (most.0.max(holders.len() as u64), most.1 + 1, most.2);
    }
}

/// Plays a history. Returns the most requests in flight, their number, the number of those that outlasted
/// the expiry, and the units that are left after all of them have ended.
async fn play(seed: u64, mutant: Mutant) -> (u64, u64, u64, usize) {
    let shared = Arc::new(Shared {
        mutant,
        units: Mutex::default(),
        first: Mutex::default(),
        next: Mutex::default(),
    });
    let quota = Quota::concurrent(UNITS).expires(EXPIRY).expect("in bounds");
    let policy = Policy::new("jobs", quota).expect("valid");
    let watch = Arc::new(Watch::default());
    let end = Instant::now() + LENGTH;
    let (mut tasks, mut random, mut limiters) = (Vec::new(), Random(seed), Vec::new());
    for process in 0..PROCESSES {
        let cut_until = Arc::new(Mutex::new(Instant::now()));
        let limiter = Limiter::with_resilience(
            Instance {
                shared: Arc::clone(&shared),
                cut_until: Arc::clone(&cut_until),
                random: Mutex::new(random.number()),
            },
            Resilience::none(),
        );
        limiters.push(limiter.clone());
        for task in 0..TASKS {
            let (limiter, policy, watch) = (limiter.clone(), policy.clone(), Arc::clone(&watch));
            let mut random = Random(random.number());
            tasks.push(tokio::spawn(async move {
                let mut id = (process * TASKS + task) as u64;
                while Instant::now() < end {
                    sleep(Duration::from_millis(random.below(60))).await;
                    let asked = Instant::now();
                    let patience = if random.below(10) == 0 { random.below(12) } else { 100_000 };
                    let reserve = limiter.reserve(policy.charge("all", 1));
                    let Ok(reserved) = timeout(Duration::from_millis(patience), reserve).await
                    else {
                        continue;
                    };
                    let Reserved::Held(held) = reserved.expect("an answer") else { continue };
                    // The unit of a check whose answer took so long may have expired.
                    if asked.elapsed() > EXPIRY / 16 {
                        drop(held);
                        continue;
                    }
                    id += 1_000;
                    watch.begin(id, process);
                    let work = match random.below(20) {
                        0 => random.below(7_000),
                        1..6 => random.below(1_000),
                        _ => random.below(50),
                    };
                    sleep(Duration::from_millis(work)).await;
                    watch.holders.lock().expect("no panic").remove(&id);
                    watch.most.lock().expect("no panic").2 += u64::from(work > 2_000);
                    match random.below(3) {
                        0 => drop(held.refund().await.expect("an answer")),
                        _ => drop(held),
                    }
                }
            }));
        }
        let (mut random, watch) = (Random(random.number()), Arc::clone(&watch));
        tasks.push(tokio::spawn(async move {
            while Instant::now() + 4 * EXPIRY < end {
                // Within one expiry, a process stands still for no longer than it may.
                sleep(EXPIRY + Duration::from_millis(random.below(4_000))).await;
                let cut = Duration::from_millis(random.one(&[20, 300, 1_240, 3_000, 6_000]));
                *cut_until.lock().expect("no panic") = Instant::now() + cut;
                let lasts = EXPIRY * 5 / 8;
                sleep(cut.min(lasts)).await;
                if cut > lasts {
                    watch.holders.lock().expect("no panic").retain(|_, it| *it != process);
                    sleep(cut - lasts).await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    sleep(Duration::from_millis(100)).await;
    let left = shared.units.lock().expect("no panic").len();
    let (most, all, long) = *watch.most.lock().expect("no panic");
    (most, all, long, left)
}

#[tokio::test(start_paused = true)]
async fn a_fleet_has_no_more_in_flight_than_units() {
    let (mut most, mut all, mut long) = (0, 0, 0);
    for history in seed::histories("requests in flight", 12) {
        let (most_here, all_here, long_here, left) = play(history.seed, Mutant::None).await;
        assert!(most_here <= UNITS, "{most_here} in flight");
        assert_eq!(left, 0, "units that nothing holds");
        (most, all, long) = (most.max(most_here), all + all_here, long + long_here);
    }
    assert_eq!(most, UNITS, "the limit was reached");
    assert!(all > 5_000 && long > 50, "{all} requests, {long} longer than the expiry");
}

#[tokio::test(start_paused = true)]
async fn the_model_finds_what_others_do_wrong() {
    let mutants =
        [Mutant::ReleaseWithoutToken, Mutant::ExpiryOfTheFirst, Mutant::RefundBeforeCharge];
    for mutant in mutants {
        let mut found = 0;
        for seed in 0..6 {
            let (most, ..) = play(seed, mutant).await;
            found += u64::from(most > UNITS);
        }
        assert!(found >= 3, "{mutant:?} was found in {found} of 6 histories");
    }
}

/// During an outage this process counts its own units. When the store answers again, it releases there what it
/// took before, and charges what it has admitted meanwhile.
#[tokio::test(start_paused = true)]
async fn units_in_flight_outlast_an_outage() {
    let remote = Remote::new(&ManualClock::at(1_700_000_000_000_000));
    let observer = Limiter::with_resilience(remote.clone(), Resilience::none());
    let limiter = Limiter::with_resilience(remote.clone(), Resilience::default());
    let jobs = Policy::new("jobs", Quota::concurrent(3)).expect("valid");
    let free = async || {
        let peek = observer.peek(jobs.charge("all", 0)).await.expect("an answer");
        peek.binding().expect("a charge").standing().remaining
    };
    let hold = async || match limiter.reserve(jobs.charge("all", 1)).await.expect("an answer") {
        Reserved::Held(held) => Some(held),
        Reserved::Denied(_) => None,
    };
    let (first, second) = (hold().await, hold().await);
    assert_eq!(free().await, 1);
    remote.set(Mood::Down);
    let mut local = Vec::new();
    for _ in 0..50 {
        local.extend(hold().await);
    }
    assert_eq!(local.len(), 3, "this process counts its own");
    assert!(local.iter().all(|held| held.receipt().source == Source::Fallback));
    drop(first);
    drop(local.split_off(1));
    sleep(Duration::from_secs(2)).await;
    remote.set(Mood::Well);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(free().await, 1, "the second unit, and the unit of the fallback");
    drop((second, local));
    sleep(Duration::from_millis(50)).await;
    assert_eq!(free().await, 3);
}

/// Units of the fallback are renewed more often, so that the store has them soon after an outage, and no more often
/// than this.
#[tokio::test(start_paused = true)]
async fn units_of_the_fallback_are_renewed_every_sixteenth_of_their_expiry() {
    let remote = Remote::new(&ManualClock::at(1_700_000_000_000_000));
    let resilience = Resilience::default().without_breaker();
    let limiter = Limiter::with_resilience(remote.clone(), resilience);
    let quota = Quota::concurrent(3).expires(Duration::from_secs(16)).expect("in bounds");
    let jobs = Policy::new("jobs", quota).expect("valid");
    remote.set(Mood::Down);
    let Reserved::Held(held) = limiter.reserve(jobs.charge("all", 1)).await.expect("an answer")
    else {
        panic!("it is free")
    };
    assert_eq!(held.receipt().source, Source::Fallback);
    let before = remote.calls();
    sleep(Duration::from_millis(8_700)).await;
    let renewals = remote.calls() - before;
    assert!((7..=8).contains(&renewals), "{renewals} renewals in half of the expiry");
    drop(held);
}

/// A refund or a settlement that the store cannot answer is no lost unit.
#[tokio::test(start_paused = true)]
async fn units_refunded_during_an_outage_are_released_after_it() {
    let remote = Remote::new(&ManualClock::at(1_700_000_000_000_000));
    let observer = Limiter::with_resilience(remote.clone(), Resilience::none());
    let limiter = Limiter::with_resilience(remote.clone(), Resilience::default());
    let jobs = Policy::new("jobs", Quota::concurrent(3)).expect("valid");
    let mut held = Vec::new();
    for _ in 0..3 {
        match limiter.reserve(jobs.charge("all", 1)).await.expect("an answer") {
            Reserved::Held(unit) => held.push(unit),
            Reserved::Denied(denied) => panic!("{denied:?}"),
        }
    }
    remote.set(Mood::Down);
    held.pop().expect("the third").refund().await.expect_err("no store");
    held.pop().expect("the second").settle(1).await.expect_err("no store");
    sleep(Duration::from_secs(2)).await;
    remote.set(Mood::Well);
    sleep(Duration::from_secs(10)).await;
    let peek = observer.peek(jobs.charge("all", 0)).await.expect("an answer");
    assert_eq!(peek.binding().expect("a charge").standing().remaining, 2);
}

/// A store that answers after 100 ms. It notes when releases reach it, and how many lines they have.
#[derive(Debug)]
struct Distant {
    store: MemoryStore,
    releases: Arc<Mutex<Vec<(Instant, usize)>>>,
}

impl Store for Distant {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        if let Request::Refund(receipt) = &request {
            let release = (Instant::now(), receipt.lines().len());
            self.releases.lock().expect("no panic").push(release);
        }
        let answer = self.store.call(request, deadline);
        Answer::pending(async move {
            sleep(Duration::from_millis(100)).await;
            answer.await
        })
    }
}

/// While the answer to a release is on its way, later ones wait, and are then sent together.
#[tokio::test(start_paused = true)]
async fn releases_travel_together_and_are_at_most_one_round_trip_late() {
    let releases = Arc::default();
    let clock = MemoryConfig::default().clock(TokioClock::new());
    let store = Distant { store: MemoryStore::new(clock), releases: Arc::clone(&releases) };
    let limiter = Limiter::with_resilience(store, Resilience::none());
    let quota = Quota::concurrent(1_000).expires(Duration::from_secs(3_600)).expect("in bounds");
    let jobs = Policy::new("jobs", quota).expect("valid");
    let mut held = Vec::new();
    for _ in 0..500 {
        held.push(limiter.reserve(jobs.charge("all", 1)).await.expect("an answer"));
    }
    let mut dropped = Vec::new();
    for unit in held {
        dropped.push(Instant::now());
        drop(unit);
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_millis(200)).await;
    let sent = releases.lock().expect("no panic").clone();
    let times: Vec<Instant> =
        sent.iter().flat_map(|(time, lines)| std::iter::repeat_n(*time, *lines)).collect();
    assert_eq!(times.len(), 500);
    let late = times.iter().zip(&dropped).map(|(sent, dropped)| *sent - *dropped).max();
    // A timer of tokio is up to 1 ms late.
    assert!(late <= Some(Duration::from_millis(101)), "{late:?}");
    assert!(sent.len() < 15, "{} requests", sent.len());
}
