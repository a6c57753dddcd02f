//! Each decision with the deny cache equals the decision without it.

use std::{collections::HashMap, future::Future, time::Duration};

use plimsoll::{
    Algorithm, Charge, Decision, Key, Limiter, Policy, Quota, Resilience,
    clock::ManualClock,
    decision::{Outcome, ReceiptLine},
    limiter::Reservation,
    store::{Source, Verdict},
};
use plimsoll_testing::{
    CaseCounts,
    algorithms::{Returns, returns, with_parameters},
    seed,
};
use proptest::prelude::*;

use crate::{
    delayed::DelayedResets,
    deny_cache::START,
    remote::{Mood, Remote},
};

#[derive(Debug, Clone)]
struct PlannedCharge {
    policy: usize,
    key: usize,
    cost: u64,
    shadow: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Check(Vec<PlannedCharge>, Fate),
    Advance(u64),
    Settle(u64, Fate),
    Reset(usize, usize, Fate),
    Block(usize, usize, u64),
    Unblock(usize, usize),
    Quota(usize, u64, u64),
    /// A change is sent, then a check. Time passes, and the change arrives or is dropped. Then the check
    /// is answered.
    Meanwhile(Change, Vec<PlannedCharge>, u64, bool),
}

#[derive(Debug, Clone)]
enum Change {
    Refund,
    Reset(usize, usize),
}

/// The fate of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Received,
    Held,
    Abandoned,
}

const POLICIES: usize = 2;
const KEYS: usize = 3;

fn lines() -> impl Strategy<Value = Vec<PlannedCharge>> {
    let cost = prop_oneof![8 => 1..4_u64, 3 => 4..9_u64, 1 => Just(0), 2 => 9..14_u64];
    let line = (0..POLICIES, 0..KEYS, cost, prop::bool::weighted(0.15))
        .prop_map(|(policy, key, cost, shadow)| PlannedCharge { policy, key, cost, shadow });
    prop_oneof![3 => prop::collection::vec(line.clone(), 1), 2 => prop::collection::vec(line, 2..4)]
}

fn times() -> impl Strategy<Value = u64> {
    prop_oneof![0..2_000_u64, 0..400_000_u64, 0..2_000_000_u64, Just(125_000), Just(999_999)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fate =
        prop_oneof![6 => Just(Fate::Received), 4 => Just(Fate::Held), 1 => Just(Fate::Abandoned)];
    let ending = || prop_oneof![Just(Fate::Received), Just(Fate::Abandoned)];
    let change = prop_oneof![
        Just(Change::Refund),
        (0..POLICIES, 0..KEYS).prop_map(|(policy, key)| Change::Reset(policy, key)),
    ];
    let windows = prop_oneof![
        4 => Just(1_000_000_u64),
        2 => Just(400_000_u64),
        2 => Just(4_000_000_u64),
        1 => 200_000..3_000_000_u64,
    ];
    let step = prop_oneof![
        12 => (lines(), fate).prop_map(|(lines, fate)| Step::Check(lines, fate)),
        5 => times().prop_map(Step::Advance),
        2 => (0..6_u64, ending()).prop_map(|(units, fate)| Step::Settle(units, fate)),
        1 => (0..POLICIES, 0..KEYS, ending())
            .prop_map(|(policy, key, fate)| Step::Reset(policy, key, fate)),
        1 => (0..POLICIES, 0..KEYS, 1..3_000_000_u64)
            .prop_map(|(policy, key, micros)| Step::Block(policy, key, micros)),
        1 => (0..POLICIES, 0..KEYS).prop_map(|(policy, key)| Step::Unblock(policy, key)),
        1 => (0..POLICIES, 4..12_u64, windows)
            .prop_map(|(policy, limit, window)| Step::Quota(policy, limit, window)),
        2 => (change, lines(), times(), any::<bool>())
            .prop_map(|(change, lines, time, is_abandoned)| {
                Step::Meanwhile(change, lines, time, is_abandoned)
            }),
    ];
    prop::collection::vec(step, 1..150)
}

#[test]
fn decisions_are_the_same_as_by_the_store() {
    let tally = CaseCounts::expecting(&[
        "answered from the cache",
        "answered from the cache, a higher cost than any before",
        "answered from the cache, several charges, all known",
        "answered from the cache, a key without an entry",
        "answered from the cache, over capacity",
        "answered from the cache, with a shadow",
        "answered from the cache after a unit had returned",
        "asked, and denied",
        "asked about a higher cost",
        "asked, and admitted",
        "a check abandoned",
        "refunded while denied",
        "refund abandoned while denied",
        "reset while denied",
        "reset abandoned while denied",
        "a check during a change that was abandoned",
        "blocked while denied",
        "unblocked while denied",
        "limit changed while denied",
        "window changed while denied",
    ]);
    let algorithms = prop::sample::select(Algorithm::EACH)
        .prop_map(|algorithm| with_parameters(algorithm, 4, 6));
    let (config, cases) = (ProptestConfig::with_cases(600), (algorithms, steps()));
    seed::property("deny_cache_differential", config, cases, |(algorithm, steps)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Play::new(algorithm, &tally).run(&steps));
        Ok(())
    });
    tally.report("deny cache");
}

/// Two limiters that run the same steps, one with a deny cache and one without.
struct Play<'t> {
    algorithm: Algorithm,
    policies: [Policy; POLICIES],
    clock: ManualClock,
    with: Limiter,
    without: Limiter,
    store: DelayedResets,
    held: Vec<[Reservation; 2]>,
    /// The last denial by the store for each policy and key.
    known_denials: HashMap<(usize, usize), KnownDenial>,
    /// The time until which an abandoned change may still arrive. No denial is cached before it.
    doubt: u64,
    /// The longest time that a reply has taken so far. A wait from the cache ends at most that much
    /// later.
    latency: Duration,
    denied: bool,
    tally: &'t CaseCounts,
}

struct KnownDenial {
    time: u64,
    next_after: u64,
    highest_cost: u64,
}

impl<'t> Play<'t> {
    fn new(algorithm: Algorithm, tally: &'t CaseCounts) -> Self {
        let clock = ManualClock::at(START);
        let store = DelayedResets::new(&clock);
        let with =
            Limiter::with_resilience(store.clone(), Resilience::default().clock(clock.clone()));
        let without = Limiter::with_resilience(Remote::new(&clock), Resilience::none());
        let quota = |limit| Self::quota(algorithm, limit, 1_000_000);
        let policies = [("first", 8), ("second", 5)]
            .map(|(name, limit)| Policy::new(name, quota(limit)).unwrap());
        let (held, known_denials, doubt, denied) = (Vec::new(), HashMap::new(), 0, false);
        Self {
            algorithm,
            policies,
            clock,
            with,
            without,
            store,
            held,
            known_denials,
            doubt,
            latency: Duration::ZERO,
            denied,
            tally,
        }
    }

    fn quota(algorithm: Algorithm, limit: u64, window: u64) -> Quota {
        Quota::new(limit, Duration::from_micros(window), algorithm).unwrap()
    }

    async fn run(mut self, steps: &[Step]) {
        for step in steps {
            self.step(step).await;
        }
    }

    async fn step(&mut self, step: &Step) {
        let (with, without) = (self.with.clone(), self.without.clone());
        let policies = self.policies.clone();
        let key = |policy: &usize, key: &usize| policies[*policy].charge(*key as u64, 0);
        match step {
            Step::Advance(by) => self.clock.advance(Duration::from_micros(*by)),
            Step::Check(lines, Fate::Abandoned) => {
                let ours = self.abandoned(with.check(charges(&policies, lines))).await;
                let theirs = without.check(charges(&policies, lines)).await.unwrap();
                // An answer from the cache is there at once.
                if let Some(ours) = ours {
                    self.same(lines, &ours.unwrap(), &theirs);
                } else {
                    self.tally.count("a check abandoned");
                }
            }
            Step::Check(lines, fate) => {
                let ours = with.check(charges(&policies, lines)).await.unwrap();
                let theirs = without.check(charges(&policies, lines)).await.unwrap();
                self.same(lines, &ours, &theirs);
                if *fate == Fate::Held {
                    self.hold(ours, theirs);
                }
            }
            Step::Settle(units, fate) => {
                let Some([ours, theirs]) = self.held.pop() else { return };
                match fate {
                    Fate::Abandoned => {
                        self.tally.count_if(self.denied, "refund abandoned while denied");
                        self.abandoned(ours.refund()).await;
                        self.doubt = self.now() + 100_000;
                        theirs.refund().await.unwrap();
                    }
                    _ if *units == 0 => {
                        self.tally.count_if(self.denied, "refunded while denied");
                        assert_eq!(ours.refund().await.unwrap(), theirs.refund().await.unwrap());
                    }
                    _ => {
                        ours.settle(*units).await.unwrap();
                        theirs.settle(*units).await.unwrap();
                    }
                }
            }
            Step::Reset(at, of, fate) => {
                if *fate == Fate::Abandoned {
                    self.tally.count_if(self.denied, "reset abandoned while denied");
                    self.abandoned(with.reset(key(at, of))).await;
                    self.doubt = self.now() + 100_000;
                } else {
                    self.tally.count_if(self.denied, "reset while denied");
                    with.reset(key(at, of)).await.unwrap();
                }
                without.reset(key(at, of)).await.unwrap();
                self.drop_held(*at, *of);
            }
            Step::Block(at, of, micros) => {
                self.tally.count_if(self.denied, "blocked while denied");
                let duration = Duration::from_micros(*micros);
                with.block(key(at, of), duration).await.unwrap();
                without.block(key(at, of), duration).await.unwrap();
            }
            Step::Unblock(at, of) => {
                self.tally.count_if(self.denied, "unblocked while denied");
                with.unblock(key(at, of)).await.unwrap();
                without.unblock(key(at, of)).await.unwrap();
            }
            Step::Quota(at, limit, window) => {
                let quota = Self::quota(self.algorithm, *limit, *window);
                let before = self.policies[*at].quota();
                let what = match before.window() == quota.window() {
                    true => "limit changed while denied",
                    false => "window changed while denied",
                };
                self.tally.count_if(self.denied, what);
                self.policies[*at].set_quota(quota);
                self.known_denials.retain(|(policy, _), _| policy != at);
            }
            Step::Meanwhile(Change::Refund, lines, time, is_abandoned) => {
                let Some([ours, theirs]) = self.held.pop() else { return };
                theirs.refund().await.unwrap();
                let change = async { assert!(ours.refund().await.is_ok()) };
                let theirs = without.check(charges(&policies, lines)).await.unwrap();
                self.meanwhile(change, lines, *time, *is_abandoned, &theirs).await;
            }
            Step::Meanwhile(Change::Reset(at, of), lines, time, is_abandoned) => {
                let change = async { assert!(with.reset(key(at, of)).await.is_ok()) };
                let theirs = without.check(charges(&policies, lines)).await.unwrap();
                self.meanwhile(change, lines, *time, *is_abandoned, &theirs).await;
                without.reset(key(at, of)).await.unwrap();
                self.drop_held(*at, *of);
            }
        }
    }

    async fn meanwhile(
        &mut self,
        change: impl Future<Output = ()>,
        lines: &[PlannedCharge],
        time: u64,
        is_abandoned: bool,
        theirs: &Decision<'_>,
    ) {
        let (with, policies) = (self.with.clone(), self.policies.clone());
        self.store.remote().set(Mood::Late);
        let mut change = Box::pin(change);
        // A refund of nothing sends no request, so it is over at once.
        let is_over = futures_util::poll!(&mut change).is_ready();
        let asked = self.now();
        let mut check = Box::pin(with.check(charges(&policies, lines)));
        let at_hand = match futures_util::poll!(&mut check) {
            std::task::Poll::Ready(decision) => Some(decision),
            std::task::Poll::Pending => None,
        };
        self.clock.advance(Duration::from_micros(time));
        self.latency = self.latency.max(Duration::from_micros(time));
        if is_abandoned {
            drop(change);
            self.doubt = self.now() + 100_000;
        } else if !is_over {
            change.await;
        }
        let ours = match at_hand {
            Some(decision) => decision,
            None => check.await,
        };
        self.store.remote().set(Mood::Well);
        self.tally.count_if(is_abandoned, "a check during a change that was abandoned");
        let ours = ours.unwrap();
        self.compare(asked, lines, &ours, theirs);
        self.denied = !ours.is_allowed();
    }

    fn now(&self) -> u64 {
        use plimsoll::clock::Clock;
        self.clock.now().as_micros()
    }

    /// Asks, and gives up before the answer comes.
    async fn abandoned<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        self.store.remote().set(Mood::Late);
        let mut future = Box::pin(future);
        let answer = futures_util::poll!(&mut future);
        self.store.remote().set(Mood::Well);
        match answer {
            std::task::Poll::Ready(answer) => Some(answer),
            std::task::Poll::Pending => None,
        }
    }

    fn hold(&mut self, ours: Decision<'_>, theirs: Decision<'_>) {
        if let (Decision::Allowed(ours), Decision::Allowed(theirs)) = (ours, theirs) {
            let ours = self.with.hold(ours.into_receipt());
            self.held.push([ours, self.without.hold(theirs.into_receipt())]);
        }
    }

    /// Drops the reservations of a key that was reset, if it counts by periods. Their refunds go to later charges of
    /// the same period, or to none: that depends on whether the store had removed the key when it expired earlier.
    fn drop_held(&mut self, policy: usize, key: usize) {
        if returns(self.algorithm) != Returns::ByPeriod {
            return;
        }
        let (policy, key) = (&self.policies[policy], Key::from(key as u64));
        let is_of_key =
            |line: &ReceiptLine| line.charge.policy() == policy && *line.charge.key() == key;
        self.held.retain(|[ours, _]| !ours.receipt().lines().iter().any(is_of_key));
    }

    fn same(&mut self, lines: &[PlannedCharge], ours: &Decision<'_>, theirs: &Decision<'_>) {
        self.compare(self.now(), lines, ours, theirs);
        self.learn(ours);
    }

    /// Checks that two decisions are equal but for their source. One difference is allowed: if the
    /// cache refuses another charge of the check, a key without a denial in the last second may be
    /// reported as one that has spent nothing.
    fn compare(
        &mut self,
        asked: u64,
        lines: &[PlannedCharge],
        ours: &Decision<'_>,
        theirs: &Decision<'_>,
    ) {
        let cached = ours.source() == Source::Cache;
        let latency = if cached { self.latency } else { Duration::ZERO };
        assert_eq!(ours.is_allowed(), theirs.is_allowed());
        assert_eq!((ours.time(), ours.outcomes().len()), (theirs.time(), theirs.outcomes().len()));
        let (mut all_known, mut refused) = (true, false);
        for (ours, theirs) in ours.outcomes().zip(theirs.outcomes()) {
            let lately =
                self.last_denial(&ours).is_some_and(|denial| asked < denial.time + 1_000_000);
            let known = agree(&ours, &theirs, latency);
            if lately || !cached || lines.len() == 1 {
                let (ours, theirs) = (parts(&ours), parts(&theirs));
                assert!(known, "{ours:?} is not {theirs:?}, cached: {cached}");
            } else if !known {
                let capacity = ours.charge().quota().capacity();
                let cost = ours.charge().cost();
                let over = cost > capacity;
                let verdict = if over { Verdict::OverCapacity } else { Verdict::Passed };
                let zero = Duration::ZERO;
                let unspent = (verdict, 0, capacity, capacity, zero, zero, None);
                assert_eq!(parts(&ours), unspent);
            }
            all_known &= known;
            refused |= known && ours.verdict() != Verdict::Passed && ours.charge().is_live();
        }
        if cached {
            assert!(refused, "a cached denial needs a known denial");
        }
        // If no units are spent, the check is admitted after the wait of the other limiter, and no earlier.
        let wait = |decision: &Decision<'_>| match decision {
            Decision::Denied(denied) => denied.retry_after(),
            Decision::Allowed(_) => None,
        };
        let (ours_waits, theirs_waits) = (wait(ours), wait(theirs));
        let agree = agree_on_wait(ours_waits, theirs_waits, latency);
        assert!(agree, "{ours_waits:?} is not {theirs_waits:?}, cached: {cached}, {lines:?}");
        self.count(asked, ours, all_known);
    }

    fn count(&self, asked: u64, ours: &Decision<'_>, all_known: bool) {
        let tally = self.tally;
        let (cached, several) = (ours.source() == Source::Cache, ours.outcomes().len() > 1);
        let is_higher = ours.outcomes().any(|it| {
            let highest_cost = self.last_denial(&it).map(|denial| denial.highest_cost);
            it.verdict() == Verdict::Refused
                && highest_cost.is_some_and(|most| most < it.charge().cost())
        });
        if !cached {
            tally.count(if ours.is_allowed() {
                "asked, and admitted"
            } else {
                "asked, and denied"
            });
            tally.count_if(is_higher, "asked about a higher cost");
            return;
        }
        let returned = |it: Outcome<'_>| {
            self.last_denial(&it).is_some_and(|denial| {
                it.verdict() == Verdict::Refused && asked >= denial.time + denial.next_after
            })
        };
        let over = |it: Outcome<'_>| it.verdict() == Verdict::OverCapacity;
        tally.count("answered from the cache");
        tally.count_if(is_higher, "answered from the cache, a higher cost than any before");
        tally.count_if(several && all_known, "answered from the cache, several charges, all known");
        tally.count_if(!all_known, "answered from the cache, a key without an entry");
        tally.count_if(ours.outcomes().any(over), "answered from the cache, over capacity");
        tally.count_if(
            ours.outcomes().any(|it| !it.charge().is_live()),
            "answered from the cache, with a shadow",
        );
        tally.count_if(
            ours.outcomes().any(returned),
            "answered from the cache after a unit had returned",
        );
    }

    fn learn(&mut self, ours: &Decision<'_>) {
        self.denied = !ours.is_allowed();
        if ours.is_allowed() || ours.source() != Source::Shared {
            return;
        }
        let time = self.now();
        if time < self.doubt {
            return;
        }
        for outcome in ours.outcomes() {
            let next_after = outcome.standing().next_after.as_micros() as u64;
            let denial = KnownDenial { time, next_after, highest_cost: outcome.charge().cost() };
            self.known_denials.insert(self.place(&outcome), denial);
        }
    }

    fn last_denial(&self, outcome: &Outcome<'_>) -> Option<&KnownDenial> {
        self.known_denials.get(&self.place(outcome))
    }

    fn place(&self, outcome: &Outcome<'_>) -> (usize, usize) {
        let policy =
            self.policies.iter().position(|policy| policy == outcome.charge().policy()).unwrap();
        let key = outcome.charge().key().reveal().last().copied().unwrap();
        (policy, usize::from(key))
    }
}

fn charges<'p>(policies: &'p [Policy], lines: &[PlannedCharge]) -> Vec<Charge<'p>> {
    let charge = |line: &PlannedCharge| {
        let charge = policies[line.policy].charge(line.key as u64, line.cost);
        if line.shadow { charge.shadow() } else { charge }
    };
    lines.iter().map(charge).collect()
}

type Parts = (Verdict, u64, u64, u64, Duration, Duration, Option<Duration>);

/// Returns whether two outcomes are equal, but for waits that end up to `latency` later.
fn agree(ours: &Outcome<'_>, theirs: &Outcome<'_>, latency: Duration) -> bool {
    let (ours, theirs) = (parts(ours), parts(theirs));
    (ours.0, ours.1, ours.2, ours.3) == (theirs.0, theirs.1, theirs.2, theirs.3)
        && agree_on_wait(Some(ours.4), Some(theirs.4), latency)
        && agree_on_wait(Some(ours.5), Some(theirs.5), latency)
        && agree_on_wait(ours.6, theirs.6, latency)
}

fn agree_on_wait(ours: Option<Duration>, theirs: Option<Duration>, latency: Duration) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => (theirs..=theirs + latency).contains(&ours),
        (None, None) => true,
        _ => false,
    }
}

fn parts(outcome: &Outcome<'_>) -> Parts {
    let standing = outcome.standing();
    (
        outcome.verdict(),
        outcome.granted(),
        standing.limit,
        standing.remaining,
        standing.next_after,
        standing.reset_after,
        standing.retry_after,
    )
}
