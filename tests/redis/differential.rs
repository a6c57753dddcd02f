//! Random histories: the embedded and the shared store must decide alike, to the microsecond.

use std::{collections::BTreeMap, time::Duration};

use plimsoll::{
    Algorithm, Charge, Decision, Key, Limiter, MemoryStore, Policy, Quota, RedisStore,
    clock::ManualClock,
    decision::{Allowed, Receipt, Standing},
    memory::MemoryConfig,
    redis::RedisConfig,
};
use plimsoll_testing::{
    algorithms::{Parameter, Returns, returns, with_burst, with_parameter},
    hold,
    oracle::{Enforcement, counted},
    seed::{self, Random},
    servers::{Cluster, Server},
};

use crate::patient;

type Counts = BTreeMap<&'static str, u64>;

const CASES: &[&str] = &[
    "allowed",
    "denied",
    "over capacity",
    "several charges",
    "shadow",
    "shadow beside its twin",
    "trial spent, check denied",
    "up to",
    "lease granted",
    "lease begun",
    "lease ended",
    "lease changed",
    "leased while units are spent",
    "refunded",
    "refund came late",
    "settled up",
    "limit raised",
    "limit lowered",
    "window grown",
    "window shrunk",
    "burst raised",
    "burst lowered",
    "another quota",
    "changed while units are spent",
    "reset",
    "block",
    "unblock",
    "penalty",
    "time ran backward",
    "clock set back far",
    "product beyond 2^53",
];

/// A quota of one of [`Algorithm::EACH`].
pub(crate) fn quota(random: &mut Random, algorithm: usize) -> Quota {
    let algorithm = Algorithm::EACH[algorithm];
    let limit = random.one(&[1, 2, 3, 5, 8, 13, 100, 1_000]);
    let window = random.one(&[1_000, 1_337, 60_000, 1_000_000, 60_000_000, 86_400_000_000]);
    let huge = random.below(4) == 0;
    let (limit, window) = match returns(algorithm) {
        Returns::ByPeriod | Returns::AtRate if huge => {
            let window = random.one(&[34_559_999_999_999, 34_000_000_000_003]);
            (random.one(&[999_999_999_989, 105_001, 1_000_003]), window)
        }
        Returns::AfterWindow | Returns::ByPeriod | Returns::AtRate => (limit, window),
    };
    let algorithm = with_parameter(algorithm, |parameter| match parameter {
        Parameter::Buckets => random.one(&[1, 2, 3, 7, 10, 1_000]),
        Parameter::Burst if huge => limit,
        Parameter::Burst => random.one(&[1, 2, 5, 10, 50]),
    });
    let window = Duration::from_micros(window);
    // A log may count units in flight.
    if algorithm == Algorithm::SlidingLog && random.below(2) == 0 {
        return Quota::concurrent(limit)
            .expires(window.max(Duration::from_secs(1)))
            .expect("an expiry in bounds");
    }
    Quota::new(limit, window, algorithm).unwrap_or_else(|_| Quota::per_second(5))
}

/// The quota with its limit, its window or both between a quarter and four times as large, or with
/// another burst.
fn near(random: &mut Random, quota: Quota) -> Option<Quota> {
    let mut part = |number: u64| (number * random.one(&[1, 2, 3, 6, 8, 16]) / 4).max(1);
    let (limit, window) = (quota.limit(), quota.window().as_micros() as u64);
    let (new_limit, new_window) = (part(limit), part(window));
    let algorithm = with_burst(&quota, part);
    let (limit, window, algorithm) = match random.below(4) {
        0 => (new_limit, window, quota.algorithm()),
        1 => (limit, window, algorithm),
        2 => (new_limit, new_window, algorithm),
        _ => (limit, new_window, quota.algorithm()),
    };
    Quota::new(limit, Duration::from_micros(window), algorithm).ok()
}

pub(crate) fn view(decision: &Decision<'_>) -> String {
    let lines: Vec<_> = decision
        .outcomes()
        .map(|outcome| (outcome.verdict(), outcome.granted(), *outcome.standing()))
        .collect();
    format!("{} {:?} {lines:?}", decision.is_allowed(), decision.time())
}

/// The quota with a lease, with another one, or with none.
fn leased(random: &mut Random, quota: Quota) -> Quota {
    let (window, algorithm) = (quota.window(), quota.algorithm());
    let plain = Quota::new(quota.limit(), window, algorithm).expect("in bounds");
    let longest = window.as_millis() as u64 / 10;
    let lease = Duration::from_millis(random.one(&[1, 2, longest / 3, longest]));
    if random.below(3) == 0 { plain } else { plain.leased(lease).unwrap_or(plain) }
}

struct Pair {
    memory: Limiter,
    shared: Limiter,
    clock: ManualClock,
}

/// A policy of the shared store, and its twin of the embedded store: without a lease, under the quota by which
/// the shared store counts.
struct Twins {
    ours: Policy,
    theirs: Policy,
}

impl Twins {
    fn new(name: &str, quota: Quota) -> Self {
        let policy = |quota| Policy::new(name, quota).expect("a valid name");
        Self { ours: policy(counted(&quota, true)), theirs: policy(quota) }
    }

    fn set_quota(&self, quota: Quota) {
        self.ours.set_quota(counted(&quota, true));
        self.theirs.set_quota(quota);
    }
}

/// A charge to either store.
#[derive(Debug, Clone)]
struct PlannedCharge {
    policy: usize,
    key: Key,
    cost: u64,
    most: u64,
    lease: bool,
    enforcement: Enforcement,
}

impl PlannedCharge {
    fn charge<'p>(&self, policy: &'p Policy) -> Charge<'p> {
        let charge = policy.charge(self.key, self.cost);
        let charge =
            if self.lease { charge.lease_up_to(self.most) } else { charge.up_to(self.most) };
        match self.enforcement {
            Enforcement::Live => charge,
            Enforcement::Shadow => charge.shadow(),
            Enforcement::Trial => charge.trial(),
        }
    }
}

fn charges<'p>(policies: &'p [Twins], lines: &[PlannedCharge]) -> [Vec<Charge<'p>>; 2] {
    let ours = lines.iter().map(|line| line.charge(&policies[line.policy].ours)).collect();
    [ours, lines.iter().map(|line| line.charge(&policies[line.policy].theirs)).collect()]
}

impl Pair {
    fn new(shared: RedisStore) -> Self {
        let clock = ManualClock::default();
        let memory = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let shared = shared.with_test_clock(clock.clone());
        let shared = Limiter::with_resilience(shared, plimsoll::Resilience::none());
        Self { memory: Limiter::new(memory), shared, clock }
    }

    /// Resets a key that has everything back.
    ///
    /// A block hides how much that is, so it is lifted meanwhile. The rest of it then begins anew.
    async fn forget_full(&self, policy: &Twins, key: Key) {
        let (ours, theirs) = (|| policy.ours.charge(key, 0), || policy.theirs.charge(key, 0));
        let blocked = self.standing(policy, key).await;
        self.memory.unblock(ours()).await.expect("unblocked");
        self.shared.unblock(theirs()).await.expect("unblocked");
        let open = self.standing(policy, key).await;
        if open.remaining == policy.ours.quota().capacity() {
            self.memory.reset(ours()).await.expect("reset");
            self.shared.reset(theirs()).await.expect("reset");
        }
        if blocked.next_after > open.next_after {
            self.memory.block(ours(), blocked.next_after).await.expect("blocked");
            self.shared.block(theirs(), blocked.next_after).await.expect("blocked");
        }
    }

    /// Both look at the key, in case the clock has been set back.
    async fn standing(&self, policy: &Twins, key: Key) -> Standing {
        let ours = self.memory.peek(policy.ours.charge(key, 0)).await.expect("memory");
        let theirs = self.shared.peek(policy.theirs.charge(key, 0)).await.expect("redis");
        assert_eq!(view(&ours), view(&theirs));
        *ours.outcomes().next().expect("an outcome").standing()
    }
}

async fn history(pair: &Pair, seed: u64, tally: &mut Counts) {
    let random = &mut Random(seed);
    let mut count = |case| *tally.entry(case).or_insert(0) += 1;
    let kinds = Algorithm::EACH.len() as u64;
    let algorithms: Vec<_> = (0..3).map(|_| random.below(kinds) as usize).collect();
    let policies: Vec<Twins> = algorithms
        .iter()
        .enumerate()
        .map(|(index, algorithm)| {
            let quota = quota(random, *algorithm);
            Twins::new(&format!("p{index}"), leased(random, quota))
        })
        .collect();
    let tag = format!("t{seed}");
    let key = |number: u64| Key::from(format!("{seed}-{number}")).tagged(&tag);
    let mut held: Vec<(Receipt, Receipt, u64)> = Vec::new();
    let mut now = 1_700_000_000_000_000 + random.below(1_000_000_000);
    let mut log = Vec::new();
    for step in 0..40 {
        let window = policies[0].ours.quota().window().as_micros() as u64;
        now += match random.below(8) {
            0..4 => 0,
            4 => random.below(3),
            5 => random.below(window / 3 + 1),
            6 => window / 2 + random.below(window),
            _ => random.below(3 * window),
        };
        if random.below(40) == 0 {
            count("time ran backward");
            // A store may have forgotten a key that has everything back: here both have.
            pair.clock.set(now);
            for policy in &policies {
                pair.forget_full(policy, key(0)).await;
                pair.forget_full(policy, key(1)).await;
            }
            let far = random.below(2) == 0;
            now -= if far { random.below(4 * window) } else { random.below(50.min(window / 4)) };
            if far {
                count("clock set back far");
            }
        }
        pair.clock.set(now);
        let lines: Vec<PlannedCharge> = (0..random.one(&[1, 1, 2, 3]))
            .map(|_| {
                let policy = random.below(3) as usize;
                let capacity = policies[policy].ours.quota().capacity();
                let cost = match random.below(10) {
                    0 => 0,
                    1 => capacity,
                    2 => capacity + random.below(2),
                    3 => random.below(capacity + 1),
                    _ => 1 + random.below(capacity.div_ceil(4).min(1 << 40)),
                };
                let key = key(random.below(2));
                let most = cost + if random.below(5) == 0 { random.below(10) } else { 0 };
                let lease = random.below(2) == 0;
                let enforcement = match random.below(5) {
                    0 => Enforcement::Shadow,
                    1 => Enforcement::Trial,
                    _ => Enforcement::Live,
                };
                PlannedCharge { policy, key, cost, most, lease, enforcement }
            })
            .collect();
        let [ours, theirs] = charges(&policies, &lines);
        match random.below(18) {
            16 if random.below(3) == 0 => {
                count("unblock");
                log.push(format!("{now} unblock {theirs:?}"));
                pair.memory.unblock(ours).await.expect("unblocked");
                pair.shared.unblock(theirs).await.expect("unblocked");
            }
            16 => {
                count("block");
                let duration =
                    Duration::from_micros(1 + random.below(2 * window)).min(Quota::MAX_WINDOW);
                log.push(format!("{now} block for {duration:?} {theirs:?}"));
                pair.memory.block(ours, duration).await.expect("blocked");
                pair.shared.block(theirs, duration).await.expect("blocked");
            }
            17 => {
                count("penalty");
                log.push(format!("{now} penalty {theirs:?}"));
                let ours = pair.memory.penalize(ours).await.expect("memory");
                let theirs = pair.shared.penalize(theirs).await.expect("redis");
                let view = |allowed: &Allowed<'_>| {
                    let lines = allowed.outcomes();
                    let lines = lines.map(|it| (it.verdict(), it.granted(), *it.standing()));
                    format!("{:?}", lines.collect::<Vec<_>>())
                };
                assert_eq!(view(&ours), view(&theirs), "seed {seed:#x} step {step}: {log:#?}");
                held.push((ours.into_receipt(), theirs.into_receipt(), 0));
            }
            0 | 5 => {
                let index = random.below(3) as usize;
                let (old, new) = (policies[index].theirs.quota(), quota(random, algorithms[index]));
                // Mostly near the old quota, so that much of what is spent still counts.
                let new = match random.below(5) {
                    0 => Some(leased(random, new)),
                    1 => Some(leased(random, old)),
                    _ => near(random, old).map(|new| leased(random, new)),
                };
                let same = |new: &Quota| {
                    let kinds = [old, *new].map(|it| std::mem::discriminant(&it.algorithm()));
                    kinds[0] == kinds[1]
                };
                if let Some(new) = new.filter(same) {
                    let fixed = old.limit() == new.limit() && old.window() == new.window();
                    let Twins { ours, theirs } = &policies[index];
                    let left = pair.memory.peek(ours.charge(key(0), 0)).await.expect("memory");
                    // Both look at the key, in case the clock has been set back.
                    let _ = pair.shared.peek(theirs.charge(key(0), 0)).await.expect("redis");
                    let left = left.outcomes().next().expect("an outcome").standing().remaining;
                    let is_spent = left < ours.quota().capacity();
                    let leases = [old.lease(), new.lease()];
                    for (case, holds) in [
                        ("lease begun", leases[0].is_none() && leases[1].is_some()),
                        ("lease ended", leases[0].is_some() && leases[1].is_none()),
                        ("lease changed", leases[0] != leases[1] && !leases.contains(&None)),
                        ("leased while units are spent", leases[0] != leases[1] && is_spent),
                        ("limit raised", new.limit() > old.limit()),
                        ("limit lowered", new.limit() < old.limit()),
                        ("window grown", new.window() > old.window()),
                        ("window shrunk", new.window() < old.window()),
                        ("burst raised", fixed && new.capacity() > old.capacity()),
                        ("burst lowered", fixed && new.capacity() < old.capacity()),
                        ("another quota", new != old),
                        ("changed while units are spent", new != old && is_spent),
                    ] {
                        if holds {
                            count(case);
                        }
                    }
                    policies[index].set_quota(new);
                    log.push(format!("{now} {index} {new}"));
                }
            }
            1 if random.below(3) == 0 => {
                count("reset");
                log.push(format!("{now} reset {theirs:?}"));
                pair.memory.reset(ours.clone()).await.expect("reset");
                pair.shared.reset(theirs).await.expect("reset");
                // The records of a log are numbered from the time of its first one. So a charge after the
                // reset may have the number of one before it, if a clock stands still between them.
                held.retain(|(receipt, ..)| receipt.time.as_micros() != now);
                // A refund under periods goes to a later charge, or to none if only one of the stores had removed
                // the key when it expired.
                held.retain(|(receipt, ..)| {
                    let mut lines = receipt.lines().iter().map(|line| &line.charge);
                    !lines.any(|of| {
                        returns(of.quota().algorithm()) == Returns::ByPeriod
                            && ours
                                .iter()
                                .any(|it| (it.policy(), it.key()) == (of.policy(), of.key()))
                    })
                });
            }
            2..5 if !held.is_empty() => {
                let (ours, theirs, spent) =
                    held.swap_remove(random.below(held.len() as u64) as usize);
                log.push(format!("{now} refund {ours:?}"));
                let (ours, theirs) = (pair.memory.hold(ours), pair.shared.hold(theirs));
                if random.below(4) == 0 {
                    let units = random.below(spent + 3);
                    if units > spent {
                        count("settled up");
                    }
                    ours.settle(units).await.expect("settled");
                    theirs.settle(units).await.expect("settled");
                } else {
                    let (ours, theirs) = (ours.refund().await, theirs.refund().await);
                    let (ours, theirs) = (ours.expect("refund"), theirs.expect("refund"));
                    count(if ours > 0 { "refunded" } else { "refund came late" });
                    assert_eq!(ours, theirs, "seed {seed:#x} step {step}: {log:#?}");
                }
            }
            _ => {
                let peek = random.below(6) == 0;
                log.push(format!("{now} {peek} {theirs:?}"));
                let wide = theirs.iter().any(|charge| {
                    let quota = charge.quota();
                    u128::from(quota.limit()) * quota.window().as_micros() > 1 << 53
                });
                let (ours, theirs) = if peek {
                    (pair.memory.peek(ours).await, pair.shared.peek(theirs).await)
                } else {
                    (pair.memory.check(ours).await, pair.shared.check(theirs).await)
                };
                let (ours, theirs) = (ours.expect("memory"), theirs.expect("redis"));
                assert_eq!(view(&ours), view(&theirs), "seed {seed:#x} step {step}: {log:#?}");
                let shadow = |line: &&PlannedCharge| line.enforcement == Enforcement::Shadow;
                let twins = lines.iter().filter(shadow).any(|shadow| {
                    let same =
                        |l: &&PlannedCharge| l.key == shadow.key && l.policy == shadow.policy;
                    lines.iter().filter(same).any(|l| l.enforcement != Enforcement::Shadow)
                });
                let trial_spent =
                    !ours.is_allowed() && ours.outcomes().any(|outcome| outcome.granted() > 0);
                let more = |is_lease| {
                    let mut more = ours.outcomes().filter(|it| it.granted() > it.charge().cost());
                    more.any(|it| {
                        let (policy, key) = (it.charge().policy(), it.charge().key());
                        let same = lines.iter().filter(|line| {
                            policies[line.policy].ours == *policy && line.key == *key
                        });
                        same.fold(false, |lease, line| lease | line.lease) == is_lease
                    })
                };
                for (case, holds) in [
                    ("several charges", ours.outcomes().len() > 1),
                    ("shadow", lines.iter().any(|line| shadow(&line))),
                    ("trial spent, check denied", trial_spent),
                    ("shadow beside its twin", twins),
                    ("up to", more(false)),
                    ("lease granted", more(true)),
                    ("product beyond 2^53", wide),
                ] {
                    if holds {
                        count(case);
                    }
                }
                match (ours.into_owned(), theirs.into_owned()) {
                    (Decision::Allowed(ours), Decision::Allowed(theirs)) => {
                        count("allowed");
                        let spent = ours.outcomes().map(|outcome| outcome.granted()).max();
                        if !peek {
                            let spent = spent.unwrap_or(0);
                            held.push((ours.into_receipt(), theirs.into_receipt(), spent));
                        }
                    }
                    (Decision::Denied(denied), _) => {
                        count(if denied.is_over_capacity() { "over capacity" } else { "denied" });
                    }
                    (Decision::Allowed(_), Decision::Denied(_)) => unreachable!("compared"),
                }
            }
        }
    }
}

async fn compare(shared: RedisStore, histories: u64, test: &str) {
    let pair = Pair::new(shared);
    let mut tally = Counts::new();
    for one in seed::histories(test, histories) {
        history(&pair, one.seed, &mut tally).await;
    }
    eprintln!("reached in {histories} histories of 40 steps: {tally:?}");
    // Few histories are run to see one of them again.
    for case in CASES.iter().copied().filter(|_| histories >= 100) {
        assert!(tally.contains_key(case), "never reached: {case}");
    }
}

fn histories() -> u64 {
    std::env::var("PLIMSOLL_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000)
}

/// One key with a log of many records: growth, wrapping, deep searches, refunds from the middle. The
/// first records are of charges that were refunded.
async fn long_log(
    pair: &Pair,
    name: &str,
    quota: Quota,
    refunded: u64,
    steps: u64,
    random: &mut Random,
) {
    let policy = Policy::new(name, quota).expect("a valid name");
    let (limit, window) = (quota.limit(), quota.window().as_micros() as u64);
    let mut now = 1_700_000_000_000_000;
    let mut held: Vec<(Receipt, Receipt)> = Vec::new();
    for _ in 0..refunded {
        now += 1 + random.below(window / 40_000);
        pair.clock.set(now);
        let charge = || policy.charge("alice", 1);
        let (ours, theirs) =
            (hold(&pair.memory, charge()).await, hold(&pair.shared, charge()).await);
        assert_eq!(ours.refund().await.expect("memory"), 1);
        assert_eq!(theirs.refund().await.expect("redis"), 1);
    }
    for step in 0..steps {
        // Around the limit, with bursts and pauses.
        now += match random.below(100) {
            0 => window * random.below(4) / 3,
            1..20 => 0,
            _ => random.below(3 * window / limit),
        };
        if random.below(1_500) == 0 {
            now -= 3 * window / 2;
        }
        pair.clock.set(now);
        if random.below(if refunded > 0 { 50 } else { 2_000 }) == 0 {
            let window = Duration::from_micros(window / 2 + random.below(window));
            let limit = limit / 2 + random.below(limit);
            let quota = Quota::new(limit, window, quota.algorithm());
            policy.set_quota(quota.expect("in bounds"));
        }
        let refund = random.below(10) == 0 && !held.is_empty();
        if refund {
            let index = random.below(held.len() as u64) as usize;
            let (ours, theirs) = held.swap_remove(index);
            let (ours, theirs) = (pair.memory.hold(ours), pair.shared.hold(theirs));
            if random.below(8) == 0 {
                ours.settle(6).await.expect("settled");
                theirs.settle(6).await.expect("settled");
            } else {
                let (ours, theirs) = (ours.refund().await, theirs.refund().await);
                assert_eq!(ours.expect("memory"), theirs.expect("redis"), "{name} step {step}");
            }
            continue;
        }
        let cost = random.one(&[1, 1, 1, 2, 3, 5, limit / 3, limit]).max(1);
        let ours = pair.memory.check(policy.charge("alice", cost)).await.expect("memory");
        let theirs = pair.shared.check(policy.charge("alice", cost)).await.expect("redis");
        assert_eq!(view(&ours), view(&theirs), "{name} step {step} cost {cost}");
        if let (Decision::Allowed(ours), Decision::Allowed(theirs)) =
            (ours.into_owned(), theirs.into_owned())
        {
            held.push((ours.into_receipt(), theirs.into_receipt()));
            if held.len() > 300 {
                drop(held.remove(0));
            }
        }
    }
}

#[tokio::test]
async fn long_logs_decide_as_memory_does() {
    for history in seed::histories("differential_long_logs", 1) {
        compare_long_logs(&mut Random(history.seed)).await;
    }
}

async fn compare_long_logs(random: &mut Random) {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let pair = Pair::new(store);
    let plain = [(40, 0), (700, 0), (3_000, 0), (5_000, 0), (12_000, 0), (60_000, 0)];
    for (limit, n) in plain.into_iter().chain([(700, 100), (5_000, 1_000)]) {
        let algorithm = if n == 0 { Algorithm::SlidingLog } else { Algorithm::SlidingBuckets(n) };
        let quota = Quota::new(limit, Duration::from_secs(60), algorithm);
        let name = format!("long-{limit}-{n}");
        long_log(&pair, &name, quota.expect("in bounds"), 0, 6_000, random).await;
    }
    for limit in [3_000, 9_000] {
        let name = format!("refunded-{limit}");
        long_log(&pair, &name, Quota::per_minute(limit), 9_990, 500, random).await;
    }
    server.assert_all_keys_expire();
}

#[tokio::test]
async fn standalone_decides_as_memory_does() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    compare(store, histories(), "differential_standalone").await;
    server.assert_all_keys_expire();
}

#[tokio::test]
async fn a_cluster_decides_as_memory_does() {
    let cluster = Cluster::start();
    let store =
        RedisStore::connect_with(RedisConfig::cluster(cluster.urls()).with_settings(patient()))
            .await
            .expect("a store");
    compare(store, histories() / 4, "differential_cluster").await;
    cluster.nodes.iter().for_each(Server::assert_all_keys_expire);
}

/// A store may have forgotten such a key before its block, and another one not. So the histories compare
/// them only after both have.
#[tokio::test]
async fn a_blocked_key_that_has_everything_back_is_forgotten_before_time_runs_backward() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let pair = Pair::new(store);
    let policy = Twins::new("p", "4/250ms".parse().expect("in bounds"));
    let (key, minute) = (Key::from("alice"), Duration::from_secs(60));
    let stores = [(&pair.memory, &policy.ours), (&pair.shared, &policy.theirs)];
    let set_clock = |millis: u64| pair.clock.set(1_700_000_000_000_000 + millis * 1_000);
    set_clock(1_000);
    let mut receipts = Vec::new();
    for (limiter, policy) in stores {
        let decision = limiter.check(policy.charge(key, 1)).await.expect("an answer");
        let Decision::Allowed(allowed) = decision.into_owned() else {
            panic!("it has spent nothing")
        };
        receipts.push(allowed.into_receipt());
    }
    set_clock(1_300);
    for (limiter, policy) in stores {
        limiter.block(policy.charge(key, 1), minute).await.expect("blocked");
    }
    pair.forget_full(&policy, key).await;
    set_clock(500);
    assert_eq!(pair.standing(&policy, key).await.next_after, minute, "it is still blocked");
    for ((limiter, _), receipt) in stores.into_iter().zip(receipts) {
        assert_eq!(limiter.hold(receipt).refund().await.expect("an answer"), 0);
    }
}

/// A log of one open bucket that was long before: its only record is the oldest and the newest. A refund under
/// another window leaves both times as they were.
#[tokio::test]
async fn a_refund_leaves_a_bucket_open_that_is_alone() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let pair = Pair::new(store);
    let quota = |window: u64| {
        let buckets = Algorithm::SlidingBuckets(50);
        Quota::new(1_000, Duration::from_millis(window), buckets).expect("in bounds")
    };
    let policy = Twins::new("p", quota(10_000));
    let key = Key::from("alice");
    let start = 1_700_000_000_000;
    let set_clock = |millis: u64| pair.clock.set((start + millis) * 1_000);
    let spend = async || {
        let mut receipts = Vec::new();
        for (limiter, policy) in [(&pair.memory, &policy.ours), (&pair.shared, &policy.theirs)] {
            let decision = limiter.check(policy.charge(key, 2)).await.expect("an answer");
            let Decision::Allowed(allowed) = decision.into_owned() else {
                panic!("units are free")
            };
            receipts.push(allowed.into_receipt());
        }
        receipts
    };
    // A record in each of 45 buckets of 200 ms, which are a long log.
    for bucket in 0..45 {
        set_clock(bucket * 200 + 10);
        let _ = spend().await;
    }
    // The first charge is in a bucket beside the last five. Under a window of 7.3 s, whose buckets have 146 ms,
    // they have left, and the second charge is in the same bucket.
    let is_open = |millis: &u64| (start + millis) % 146 < 100;
    let first = (18_000..).find(is_open).expect("a time");
    set_clock(first);
    let _ = spend().await;
    policy.set_quota(quota(7_300));
    set_clock(first + 1);
    let receipts = spend().await;
    // Under a longer window the bucket ends at the last charge.
    policy.set_quota(quota(10_000));
    set_clock(first + 2);
    for (limiter, receipt) in [&pair.memory, &pair.shared].into_iter().zip(receipts) {
        assert_eq!(limiter.hold(receipt).refund().await.expect("an answer"), 2);
    }
    pair.standing(&policy, key).await;
    set_clock(first + 3);
    let _ = spend().await;
    assert_eq!(pair.standing(&policy, key).await.remaining, 1_000 - 4);
}

/// Charges beyond the limit make counters larger than any limit, so the products and quotients of their waits
/// need all 53 bits.
#[tokio::test]
async fn counters_far_beyond_their_limit_wait_as_in_memory() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let pair = Pair::new(store);
    let key = Key::from("alice");
    for one in seed::histories("differential_beyond", 200) {
        let mut random = Random(one.seed);
        let limit = Quota::MAX_LIMIT - random.below(1_000_000_007);
        let window = Quota::MAX_WINDOW - Duration::from_micros(random.below(1_000_000_007));
        let quota = Quota::new(limit, window, Algorithm::SlidingCounter);
        let policy = Twins::new(&format!("beyond-{:x}", one.seed), quota.expect("in bounds"));
        let bits = 40 + random.below(12);
        let units = (1 << bits) + random.below(1 << bits);
        let now = 1_700_000_000_000_000;
        pair.clock.set(now);
        pair.memory.penalize(policy.ours.charge(key, units)).await.expect("charged");
        pair.shared.penalize(policy.theirs.charge(key, units)).await.expect("charged");
        for _ in 0..10 {
            pair.clock.set(now + random.below(2 * window.as_micros() as u64));
            let cost = 1 + random.below(limit);
            let ours = pair.memory.peek(policy.ours.charge(key, cost)).await.expect("memory");
            let theirs = pair.shared.peek(policy.theirs.charge(key, cost)).await.expect("redis");
            assert_eq!(
                view(&ours),
                view(&theirs),
                "{limit}/{window:?}, {units} spent, {cost} more"
            );
        }
    }
}

/// One key whose quota changes all the time, so that it carries many groups of units, with refunds to each of
/// them and after a reset.
#[tokio::test]
async fn carried_units_are_joined_and_refunded_as_in_memory() {
    let server = Server::start();
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(patient()))
        .await
        .expect("a store");
    let pair = Pair::new(store);
    let key = Key::from("alice");
    for one in seed::histories("differential_carried", 100) {
        let mut random = Random(one.seed);
        let algorithm = random.one(&[Algorithm::SlidingCounter, Algorithm::FixedWindow]);
        let quota = |random: &mut Random| {
            let window = Duration::from_millis(400 + 25 * random.below(25));
            Quota::new(1_000, window, algorithm).expect("in bounds")
        };
        let policy = Twins::new(&format!("carried-{:x}", one.seed), quota(&mut random));
        let (mut held, mut now) = (Vec::new(), 1_700_000_000_000_000);
        for step in 0..80 {
            now += random.below(20_000);
            if random.below(80) == 0 {
                now -= random.below(3_000_000);
            }
            pair.clock.set(now);
            match random.below(50) {
                0 => {
                    pair.memory.reset(policy.ours.charge(key, 0)).await.expect("reset");
                    pair.shared.reset(policy.theirs.charge(key, 0)).await.expect("reset");
                }
                1..20 => policy.set_quota(quota(&mut random)),
                20..30 if !held.is_empty() => {
                    let index = random.below(held.len() as u64) as usize;
                    let (ours, theirs): (Receipt, Receipt) = held.swap_remove(index);
                    let ours = pair.memory.hold(ours).refund().await.expect("memory");
                    let theirs = pair.shared.hold(theirs).refund().await.expect("redis");
                    assert_eq!(ours, theirs, "{:#x} step {step}", one.seed);
                }
                _ => {
                    let cost = 1 + random.below(9);
                    let ours = pair.memory.check(policy.ours.charge(key, cost)).await;
                    let theirs = pair.shared.check(policy.theirs.charge(key, cost)).await;
                    let (ours, theirs) = (ours.expect("memory"), theirs.expect("redis"));
                    assert_eq!(view(&ours), view(&theirs), "{:#x} step {step}", one.seed);
                    if let (Decision::Allowed(ours), Decision::Allowed(theirs)) =
                        (ours.into_owned(), theirs.into_owned())
                    {
                        held.push((ours.into_receipt(), theirs.into_receipt()));
                    }
                }
            }
            pair.standing(&policy, key).await;
        }
    }
}
