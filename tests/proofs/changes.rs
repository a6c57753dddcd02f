//! Random histories of one key, whose quota changes and whose charges are refunded.

use std::time::Duration;

use plimsoll::{
    Decision, Limiter, MemoryStore, Policy, Quota, RedisStore, Resilience, clock::ManualClock,
    limiter::Reservation, memory::MemoryConfig, redis::RedisConfig,
};
use plimsoll_testing::{
    CaseCounts,
    algorithms::{Parameter, Returns, returns, with_parameter},
    seed::{self, Random},
    servers::{PATIENCE, Server},
};

use crate::{
    differential::{histories, line},
    history,
    model::{Line, Model, proven},
};

const STEPS: u64 = 60;

/// The cases that the histories have to reach.
const CASES: &[&str] = &[
    "admitted after a change of the window",
    "admitted after a change of the limit",
    "denied after a change of the window",
    "refunded all",
    "refunded a part",
    "refunded what was left",
    "refunded nothing",
    "refunded after a change of the window",
    "refunded after the window changed and changed back",
    "refunded nothing after the window changed and changed back",
];

/// A quota as the model gets it, and whether the model gets each refund twice.
type Altered = (fn(Quota) -> Quota, bool);

/// A limiter, the policy of the key, and the charges that can be refunded.
struct Held {
    limiter: Limiter,
    policy: Policy,
    charges: Vec<Option<Reservation>>,
}

impl Held {
    fn new(limiter: Limiter, quota: Quota) -> Self {
        Self { limiter, policy: Policy::new("none", quota).expect("valid"), charges: Vec::new() }
    }

    fn begin(&mut self, history: usize, quota: Quota) {
        self.policy = Policy::new(&format!("c{history}"), quota).expect("a valid name");
        self.charges.clear();
    }

    async fn charge(&mut self, quota: Quota, cost: u64) -> (bool, Line) {
        self.policy.set_quota(quota);
        let decision = self.limiter.check(self.policy.charge("alice", cost).into_owned()).await;
        let decision = decision.expect("an answer");
        let told = (decision.is_allowed(), line(decision.outcomes().next().expect("one charge")));
        if let (Decision::Allowed(allowed), true) = (decision, cost > 0) {
            self.charges.push(Some(self.limiter.hold(allowed.into_receipt())));
        }
        told
    }

    /// Refunds a charge, all but `kept` units. Returns the units if all are refunded, and the standing
    /// that follows.
    async fn refund(&mut self, quota: Quota, which: usize, kept: u64) -> (Option<u64>, Line) {
        self.policy.set_quota(quota);
        let held = self.charges[which].take().expect("a charge that was not refunded");
        let units = if kept == 0 {
            Some(held.refund().await.expect("an answer"))
        } else {
            held.settle(kept).await.expect("an answer");
            None
        };
        (units, self.charge(quota, 0).await.1)
    }
}

/// The model and the stores beside it.
struct Trio {
    model: Model,
    clock: ManualClock,
    stores: Vec<(&'static str, Held)>,
}

impl Trio {
    fn new(shared: Option<RedisStore>) -> Self {
        let clock = ManualClock::default();
        let memory = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let quota = Quota::per_second(1);
        let mut stores = vec![("memory", Held::new(Limiter::new(memory), quota))];
        if let Some(store) = shared {
            let limiter =
                Limiter::with_resilience(store.with_test_clock(clock.clone()), Resilience::none());
            stores.push(("script", Held::new(limiter, quota)));
        }
        Self { model: Model::start(), clock, stores }
    }

    /// Plays a history. `altered` is a quota as the model gets it, and `again` says that the model gets each
    /// refund twice.
    async fn play(
        &mut self,
        (number, seed): (usize, u64),
        (altered, again): Altered,
        tally: &CaseCounts,
    ) -> Result<(), String> {
        let random = &mut Random(seed);
        let (quotas, is_quick) = (quotas(random), random.below(4) == 0);
        let mut quota = quotas[0];
        self.model.begin_changing(&quota);
        self.stores.iter_mut().for_each(|(_, held)| held.begin(number, quota));
        let (mut now, mut last) = (1_700_000_000_000_000 + random.below(1_000_000_000), Vec::new());
        // The units and the window of each charge, until it is refunded, and how often the window changed
        // before it.
        let mut open: Vec<(usize, u64, Duration, u64)> = Vec::new();
        let (mut count, mut charged, mut changes) = (0, quota, 0);
        for step in 0..STEPS {
            if random.below(5) == 0 {
                quota = random.one(&quotas);
            }
            // In a quick history, changes and refunds come before the units of earlier charges have left.
            if !is_quick || random.below(4) == 0 {
                now = history::next_time(random, now, &[quota], &last);
            }
            self.clock.set(now);
            let told = |text| format!("seed {seed:#x}, step {step} at {now}: {text} of {quotas:?}");
            if random.below(3) == 0 && !open.is_empty() {
                // Any charge, or the last one from before a change whose window is in force again.
                let any = random.below(open.len() as u64) as usize;
                let back = open.iter().rposition(|(_, _, window, changes_before)| {
                    *changes_before < changes && *window == quota.window()
                });
                let position = back.filter(|_| random.below(2) == 0).unwrap_or(any);
                let (which, units, window, changes_before) = open.swap_remove(position);
                let kept = if random.below(3) == 0 { random.below(units) } else { 0 };
                let model = self.model.refund(now, &altered(quota), which, units - kept);
                if again {
                    self.model.refund(now, &altered(quota), which, units - kept);
                }
                let (_, peeked) = self.model.charge(now, &altered(quota), 0);
                for (store, held) in &mut self.stores {
                    let (units, line) = held.refund(quota, which, kept).await;
                    if line != peeked || units.is_some_and(|units| units != model.units) {
                        let text = format!("refund {which} but {kept} under {quota:?}");
                        return Err(format!(
                            "{}\nmodel {model:?}\n{store} {units:?} {line:?}",
                            told(text)
                        ));
                    }
                }
                tally.count_if(model.units == units, "refunded all");
                tally.count_if(model.units > 0 && kept > 0, "refunded a part");
                tally.count_if(
                    0 < model.units && model.units < units - kept,
                    "refunded what was left",
                );
                tally.count_if(model.units == 0, "refunded nothing");
                let changed = window != quota.window() && model.units > 0;
                tally.count_if(changed, "refunded after a change of the window");
                if changes_before < changes
                    && window == charged.window()
                    && window == quota.window()
                {
                    tally.count(match model.units {
                        0 => "refunded nothing after the window changed and changed back",
                        _ => "refunded after the window changed and changed back",
                    });
                }
                last = vec![peeked];
                continue;
            }
            let free = self.model.charge(now, &altered(quota), 0).1.remaining;
            let cost = history::asks(random, &[quota], &[free])[0].cost;
            let model = self.model.charge(now, &altered(quota), cost);
            for (store, held) in &mut self.stores {
                let answer = held.charge(quota, cost).await;
                if answer != model {
                    let text = format!("charge {cost} under {quota:?}");
                    return Err(format!("{}\nmodel {model:?}\n{store} {answer:?}", told(text)));
                }
            }
            let is_new_window = charged.window() != quota.window() && count > 0;
            let is_new_limit = charged.limit() != quota.limit() && count > 0 && !is_new_window;
            tally.count_if(
                model.0 && cost > 0 && is_new_window,
                "admitted after a change of the window",
            );
            tally.count_if(!model.0 && is_new_window, "denied after a change of the window");
            tally.count_if(
                model.0 && cost > 0 && is_new_limit,
                "admitted after a change of the limit",
            );
            if model.0 && cost > 0 {
                changes += u64::from(charged.window() != quota.window());
                open.push((count, cost, quota.window(), changes));
                (count, charged) = (count + 1, quota);
            }
            last = vec![model.1];
        }
        Ok(())
    }
}

/// The quotas of a history, all of one algorithm.
fn quotas(random: &mut Random) -> Vec<Quota> {
    let algorithm = random.one(&proven());
    let is_huge = random.below(4) == 0;
    let (limits, windows): (&[u64], &[u64]) = match (returns(algorithm), is_huge) {
        (Returns::AfterWindow, true) => {
            (&[9_999, 10_000, 10_001, 60_000], &[10_000, 10_001, 70_001, 1_000_000])
        }
        (Returns::ByPeriod | Returns::AtRate, true) => {
            (&[105_001, 1_000_003, 999_999_999_989], &[34_000_000_000_003, 34_559_999_900_000])
        }
        (_, false) => (&[1, 3, 5, 8, 13, 100], &[1_000, 1_337, 2_000, 5_000, 20_000, 60_000]),
    };
    let count = 1 + random.below(4);
    let mut quota = || {
        let limit = random.one(limits);
        let algorithm = with_parameter(algorithm, |parameter| match parameter {
            Parameter::Buckets => random.one(&[1, 2, 3, 7, 10]),
            Parameter::Burst if is_huge => limit,
            Parameter::Burst => random.one(&[1, 2, 5, 10, 50]),
        });
        let window = Duration::from_micros(random.one(windows));
        Quota::new(limit, window, algorithm).expect("in bounds")
    };
    (0..count).map(|_| quota()).collect()
}

#[tokio::test]
async fn the_models_of_the_proofs_change_and_refund_as_the_crate_and_the_script_do() {
    let server = Server::start();
    let settings = RedisConfig::default().connect_timeout(PATIENCE).response_timeout(PATIENCE);
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(settings));
    let mut trio = Trio::new(Some(store.await.expect("a store")));
    let tally = CaseCounts::expecting(CASES);
    for (number, history) in seed::histories("proofs of changes", histories(500)).enumerate() {
        if let Err(text) = trio.play((number, history.seed), (|quota| quota, false), &tally).await {
            panic!("{text}");
        }
    }
    tally.report("changes and refunds of model, crate and script");
    server.assert_all_keys_expire();
}

/// The comparison finds a model of another window, and one that refunds twice.
#[tokio::test]
async fn a_model_that_changes_or_refunds_otherwise_is_found() {
    let wider = |quota: Quota| {
        let window = quota.window() + Duration::from_micros(1);
        Quota::new(quota.limit(), window, quota.algorithm()).expect("in bounds")
    };
    let altered: [Altered; 2] = [(wider, false), (|quota| quota, true)];
    for altered in altered {
        let mut trio = Trio::new(None);
        let first = seed::seed("proofs of other changes");
        let tally = CaseCounts::default();
        let mut found = false;
        for number in 0..200 {
            let seed = first.wrapping_add(number);
            found = trio.play((number as usize, seed), altered, &tally).await.is_err();
            if found {
                break;
            }
        }
        assert!(found, "no history finds it");
    }
}
