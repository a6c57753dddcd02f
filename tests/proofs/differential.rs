//! Random histories, decided by the model, the embedded store and the script.

use plimsoll::{
    Charge, Decision, Limiter, MemoryStore, Policy, Quota, RedisStore, Resilience,
    clock::ManualClock, decision::Outcome, memory::MemoryConfig, redis::RedisConfig,
};
use plimsoll_testing::{
    CaseCounts, micros,
    seed::{self, Random},
    servers::{PATIENCE, Server},
};

use crate::{
    history::{self, Ask},
    model::{Decided, Line, Model},
};

const CHECKS: u64 = 40;

/// A limiter, and a policy for each key. Each history has policies of its own, and so keys of its own.
struct Limited {
    limiter: Limiter,
    policies: Vec<Policy>,
}

impl Limited {
    fn begin(&mut self, history: usize, quotas: impl Iterator<Item = Quota>) {
        let policy = |(index, quota)| Policy::new(&format!("h{history}-{index}"), quota);
        let policies = quotas.enumerate().map(policy).collect::<Result<_, _>>();
        self.policies = policies.expect("valid names");
    }

    async fn check(&self, asks: &[Ask]) -> Decided {
        let charge = |(policy, ask): (&'_ Policy, &Ask)| -> Charge<'static> {
            policy.charge("alice", ask.cost).lease_up_to(ask.most).into_owned()
        };
        let charges: Vec<_> = self.policies.iter().zip(asks).map(charge).collect();
        view(&self.limiter.check(charges).await.expect("an answer"))
    }
}

/// Returns a decision in the words of the model.
fn view(decision: &Decision<'_>) -> Decided {
    (decision.is_allowed(), decision.outcomes().map(line).collect())
}

/// Returns the outcome of a charge as the model answers it.
pub(crate) fn line(outcome: Outcome<'_>) -> Line {
    let standing = outcome.standing();
    Line {
        units: outcome.granted(),
        remaining: standing.remaining,
        next_after: micros(standing.next_after),
        reset_after: micros(standing.reset_after),
        retry_after: standing.retry_after.map(micros),
    }
}

/// The stores that decide beside the model.
struct Trio {
    model: Model,
    clock: ManualClock,
    memory: Limited,
    shared: Option<Limited>,
}

impl Trio {
    fn new(shared: Option<RedisStore>) -> Self {
        let clock = ManualClock::default();
        let memory = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        let limited = |limiter| Limited { limiter, policies: Vec::new() };
        let shared = shared.map(|store| {
            limited(Limiter::with_resilience(
                store.with_test_clock(clock.clone()),
                Resilience::none(),
            ))
        });
        let memory = limited(Limiter::new(memory));
        Self { model: Model::start(), clock, memory, shared }
    }

    /// Plays a history. `altered` is the quota of a key as the model gets it.
    async fn play(
        &mut self,
        (number, seed): (usize, u64),
        altered: fn(Quota) -> Quota,
        tally: &CaseCounts,
    ) -> Result<(), String> {
        let random = &mut Random(seed);
        let quotas = history::quotas(random);
        // The embedded store ignores leases, so it gets what a shared store counts by.
        self.memory.begin(number, quotas.iter().map(Quota::counted));
        if let Some(shared) = &mut self.shared {
            shared.begin(number, quotas.iter().copied());
        }
        let modelled: Vec<_> = quotas.iter().map(|quota| altered(*quota)).collect();
        self.model.begin(&modelled);
        let mut free: Vec<_> = quotas.iter().map(|quota| quota.counted().capacity()).collect();
        let (mut now, mut last) = (1_700_000_000_000_000 + random.below(1_000_000_000), Vec::new());
        let mut denied: Option<(u64, Vec<Ask>)> = None;
        for step in 0..CHECKS {
            let time = history::next_time(random, now, &quotas, &last);
            tally.count_if(step > 0 && time == now, "same time as the check before");
            now = time;
            self.clock.set(now);
            // A denial is often asked again: at the end of its wait it is admitted, before it is not.
            let again = denied.take().filter(|_| random.below(3) > 0);
            let asks = match &again {
                Some((_, asks)) => asks.clone(),
                None => {
                    let peeked =
                        self.model.check(now, &vec![Ask { cost: 0, most: 0 }; quotas.len()]);
                    free = peeked.1.iter().map(|line| line.remaining).collect();
                    history::asks(random, &quotas, &free)
                }
            };
            let model = self.model.check(now, &asks);
            let memory = self.memory.check(&asks).await;
            let told = || format!("seed {seed:#x}, check {step} at {now}: {asks:?} of {quotas:?}");
            if model != memory {
                return Err(format!("{}\nmodel {model:?}\nmemory {memory:?}", told()));
            }
            if let Some(shared) = &self.shared {
                let shared = shared.check(&asks).await;
                if model != shared {
                    return Err(format!("{}\nmodel {model:?}\nscript {shared:?}", told()));
                }
            }
            history::cases(&quotas, &asks, &free, &model).iter().for_each(|case| tally.count(case));
            if let Some((due, _)) = again {
                let passed = now >= due;
                if passed != model.0 {
                    return Err(format!("{}\nthe wait ends at {due}", told()));
                }
                tally.count_if(now == due, "the wait of the last denial has passed: admitted");
                tally.count_if(now + 1 == due, "a microsecond less than the wait: denied");
            }
            let fits =
                quotas.iter().zip(&asks).all(|(quota, ask)| ask.cost <= quota.counted().capacity());
            if !model.0 && fits {
                let wait = model.1.iter().filter_map(|line| line.retry_after).max();
                denied = wait.map(|wait| (now + wait, asks));
            }
            last = model.1;
        }
        Ok(())
    }
}

pub(crate) fn histories(default: u64) -> u64 {
    std::env::var("PLIMSOLL_HISTORIES").ok().and_then(|it| it.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn the_models_of_the_proofs_decide_as_the_crate_and_the_script_do() {
    let server = Server::start();
    let settings = RedisConfig::default().connect_timeout(PATIENCE).response_timeout(PATIENCE);
    let store = RedisStore::connect_with(RedisConfig::url(server.url()).with_settings(settings));
    let mut trio = Trio::new(Some(store.await.expect("a store")));
    let tally = CaseCounts::expecting(history::CASES);
    for (number, history) in seed::histories("proofs", histories(1_000)).enumerate() {
        if let Err(text) = trio.play((number, history.seed), |quota| quota, &tally).await {
            panic!("{text}");
        }
    }
    tally.report("model, crate and script");
    server.assert_all_keys_expire();
}

/// The comparison finds a model of another limit, window or lease.
#[tokio::test]
async fn a_model_of_another_quota_is_found() {
    let altered: [fn(Quota) -> Quota; 3] = [
        |quota| with(quota, quota.limit() + 1, micros(quota.window())),
        |quota| with(quota, quota.limit(), micros(quota.window()) + 1),
        |quota| Quota::new(quota.limit(), quota.window(), quota.algorithm()).expect("in bounds"),
    ];
    for altered in altered {
        let mut trio = Trio::new(None);
        let first = seed::seed("proofs of another quota");
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

fn with(quota: Quota, limit: u64, window: u64) -> Quota {
    let window = std::time::Duration::from_micros(window);
    let plain = Quota::new(limit, window, quota.algorithm()).expect("in bounds");
    quota.lease().and_then(|lease| plain.leased(lease).ok()).unwrap_or(plain)
}
