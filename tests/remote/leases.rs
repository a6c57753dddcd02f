//! Leases: units of busy keys that a process takes in bulk and spends by itself.
//!
//! The store, the leases and the deny cache share one manual clock. Timers run in tokio's paused time.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use plimsoll::{
    Algorithm, Charge, Decision, Limiter, Quota, Resilience,
    clock::ManualClock,
    error::Effect,
    limiter::Reserved,
    policy::Charges,
    store::{Answer, Request, Source, Store, Traits, Verdict},
};
use plimsoll_testing::{
    algorithms::{Returns, each, each_quota, most, returns},
    most_in_any_window, policy,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    deny_cache::START,
    remote::{Mood, Remote},
};

/// A lease of 100 ms.
const LEASED: &str = "1000/s leased(100ms)";

/// The delay of answers for which no task has to be polled.
const AT_ONCE: Duration = Duration::MAX;

/// A remote store that keeps a list of its requests.
#[derive(Debug, Clone)]
struct Logged {
    remote: Remote,
    requests: Arc<Mutex<Vec<String>>>,
    /// The time that an answer takes.
    delay: Arc<Mutex<Duration>>,
}

/// Returns whether a charge takes units in advance: of one more than the cost, it leaves one to others.
fn is_lease(charge: &Charge<'_>) -> bool {
    let cost = charge.cost();
    charge.units_if_free(u64::MAX) > cost && charge.units_if_free(cost + 1) == cost
}

impl Logged {
    /// Returns the requests since the last call.
    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().expect("no panic"))
    }
}

impl Store for Logged {
    fn traits(&self) -> Traits {
        let mut traits = self.remote.traits();
        traits.marks_debts = true;
        traits
    }

    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let names = |charges: &[Charge<'_>]| {
            let names: Vec<_> = charges.iter().map(|it| it.policy().name().to_owned()).collect();
            names.join("+")
        };
        let line = match request {
            Request::Acquire(charges) => {
                let kind = if charges.iter().any(is_lease) { "lease" } else { "acquire" };
                format!("{kind} {}", names(charges))
            }
            Request::Peek(charges) => format!("peek {}", names(charges)),
            Request::Force(charges) => format!("force {}", names(charges)),
            Request::Refund(receipt) => {
                format!("refund {}", receipt.lines().iter().map(|it| it.units).sum::<u64>())
            }
            Request::Reset(charges) => format!("reset {}", names(charges)),
            Request::Block(charges, _) => format!("block {}", names(charges)),
            Request::Unblock(charges) => format!("unblock {}", names(charges)),
            _ => "other".into(),
        };
        self.requests.lock().expect("no panic").push(line);
        let answer = self.remote.call(request, deadline);
        let delay = *self.delay.lock().expect("no panic");
        if delay == AT_ONCE {
            return answer;
        }
        Answer::pending(async move {
            // Also an answer without delay arrives after the task has been polled, like each answer of a server.
            if delay.is_zero() {
                tokio::task::yield_now().await;
            } else {
                sleep(delay).await;
            }
            answer.await
        })
    }
}

struct Case {
    clock: ManualClock,
    store: Logged,
    limiter: Limiter,
}

impl Case {
    fn new() -> Self {
        Self::with(|resilience| resilience)
    }

    fn with(change: impl FnOnce(Resilience) -> Resilience) -> Self {
        let clock = ManualClock::at(START);
        let store =
            Logged { remote: Remote::new(&clock), requests: Arc::default(), delay: Arc::default() };
        let resilience = change(Resilience::default().clock(clock.clone()));
        Self { limiter: Limiter::with_resilience(store.clone(), resilience), clock, store }
    }

    /// Another process over the same store.
    fn process(&self) -> Limiter {
        let resilience = Resilience::default().clock(self.clock.clone());
        Limiter::with_resilience(self.store.clone(), resilience)
    }

    async fn check<'p>(&self, charges: impl Into<Charges<'p>>) -> Decision<'p> {
        self.limiter.check(charges).await.expect("a decision")
    }

    /// Checks until the stock pays, and forgets the requests until then.
    async fn warm_up(&self, charge: Charge<'_>) {
        for _ in 0..20 {
            if self.check(charge.clone()).await.source() == Source::Leased {
                // The renewals of these checks end.
                sleep(Duration::from_millis(1)).await;
                self.store.requests();
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        panic!("the key is not leased");
    }

    /// Returns how many units the store says are free.
    async fn free_in_store(&self, charge: Charge<'_>) -> u64 {
        let stranger = Limiter::with_resilience(self.store.remote.clone(), Resilience::none());
        let decision = stranger.peek(charge).await.expect("a standing");
        decision.binding().expect("one charge").standing().remaining
    }

    /// Moves the clock, and lets the background tasks run.
    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        sleep(Duration::from_secs(2)).await;
    }
}

fn remaining(decision: &Decision<'_>) -> u64 {
    decision.binding().expect("one charge").standing().remaining
}

/// Returns the number of tasks of the runtime.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_costs_few_requests() {
    let case = Case::new();
    let policy = policy("p", "100000/s leased(100ms)");
    let mut leased = 0;
    for _ in 0..10_000 {
        let decision = case.check(policy.charge("alice", 1)).await;
        assert!(decision.is_allowed());
        leased += u32::from(decision.source() == Source::Leased);
    }
    let requests = case.store.requests().len();
    assert!(requests < 50 && leased > 9_900, "{requests} requests, {leased} leased");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_busy_asks_the_store_each_time() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    for _ in 0..20 {
        let decision = case.check(policy.charge("alice", 1)).await;
        assert_eq!(decision.source(), Source::Shared);
        case.clock.advance(Duration::from_millis(30));
    }
    assert_eq!(case.store.requests(), vec!["acquire p"; 20]);
    assert_eq!(tasks(), 0, "there is no stock to keep");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_than_a_lease_ends_is_asked_each_time() {
    let second = Duration::from_secs(1);
    let case = Case::with(|resilience| resilience.deadline(second).without_breaker());
    let policy = policy("p", LEASED);
    *case.store.delay.lock().unwrap() = Duration::from_millis(120);
    for _ in 0..40 {
        assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Shared);
    }
    assert_eq!(case.store.requests(), vec!["acquire p"; 40]);
}

#[tokio::test(start_paused = true)]
async fn many_checks_wait_for_one_renewal() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    let checks = (0..256).map(|_| case.limiter.check(policy.charge("alice", 1)));
    let decisions = join_all(checks).await;
    assert!(decisions.iter().all(|it| it.as_ref().is_ok_and(Decision::is_allowed)));
    let requests = case.store.requests();
    // The first 16 checks of a key ask the store themselves.
    assert!((17..=24).contains(&requests.len()), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn units_are_not_used_after_their_lease() {
    for (quota, _) in each_quota("1000/s", 10, 1_000) {
        let case = Case::new();
        let policy = policy("p", &format!("{quota} leased(100ms)"));
        case.warm_up(policy.charge("alice", 1)).await;
        case.store.remote.set(Mood::Down);
        assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Leased);
        case.clock.advance(Duration::from_millis(100));
        let decision = case.check(policy.charge("alice", 1)).await;
        assert_eq!(decision.source(), Source::Fallback, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_lease_is_invisible() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    for _ in 0..200 {
        let _ = case.check(policy.charge("alice", 1)).await;
    }
    case.warm_up(policy.charge("alice", 1)).await;
    case.store.remote.set(Mood::Down);
    for _ in 0..20 {
        assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Leased);
        case.clock.advance(Duration::from_millis(2));
    }
}

#[tokio::test(start_paused = true)]
async fn units_of_a_lost_answer_are_never_used() {
    for (quota, _) in each_quota("100/min", 10, 100) {
        let case = Case::new();
        let policy = policy("p", &format!("{quota} leased(1s)"));
        let mut admitted = 0;
        // The clock of the limits stands still.
        for round in 0..300 {
            // Each third answer is lost: the store has charged the request.
            case.store.remote.set(if round % 3 == 2 { Mood::Mute } else { Mood::Well });
            let charge = policy.charge("alice", 1).with_on_failure(plimsoll::OnFailure::Deny);
            if let Ok(decision) = case.limiter.check(charge).await {
                admitted += u32::from(decision.is_allowed());
            }
            sleep(Duration::from_millis(20)).await;
        }
        case.store.remote.set(Mood::Well);
        assert!(admitted <= 100, "{quota}: {admitted} admitted");
        assert!(admitted > 0, "{quota}");
    }
}

/// A stock pays no part of a check, and a check that it cannot pay is no demand.
#[tokio::test(start_paused = true)]
async fn a_check_with_a_charge_that_is_not_leased_is_sent_wholly() {
    let case = Case::new();
    let (client, overall) = (policy("client", "10/s"), policy("overall", LEASED));
    case.warm_up(overall.charge("all", 1)).await;
    let before = case.limiter.status().leased_units;
    for number in 0_u64..50 {
        let check = [client.charge(number, 1), overall.charge("all", 1)];
        assert_eq!(case.check(check).await.source(), Source::Shared);
    }
    let requests = case.store.requests();
    assert_eq!(requests, vec!["acquire client+overall"; 50]);
    assert_eq!(case.limiter.status().leased_units, before);
    // If one key is not busy, both cost one request. If both are busy, there are only renewals.
    let both = [policy("second", LEASED), overall];
    let check = || both.each_ref().map(|policy| policy.charge("all", 1));
    assert_eq!(case.check(check()).await.source(), Source::Shared);
    assert_eq!(case.store.requests(), ["acquire second+overall"]);
    case.warm_up(both[0].charge("all", 1)).await;
    assert_eq!(case.check(check()).await.source(), Source::Leased);
    assert!(case.store.requests().iter().all(|it| it.starts_with("lease")));
}

#[tokio::test(start_paused = true)]
async fn a_denied_check_puts_the_leased_units_back() {
    let case = Case::new();
    let (client, overall) = (policy("client", LEASED), policy("overall", LEASED));
    for _ in 0..100 {
        let _ = case.check(overall.charge("all", 1)).await;
    }
    case.warm_up(overall.charge("all", 1)).await;
    case.warm_up(client.charge("mallory", 1)).await;
    // Another process spends what is left for the client.
    let rest = case.process().penalize(client.charge("mallory", 1_000)).await;
    assert_eq!(rest.expect("a standing").remaining(), Some(0));
    while case.check(client.charge("mallory", 1)).await.is_allowed() {}
    let before = case.limiter.status().leased_units;
    assert!(before > 0, "the stock of the other policy");
    for is_down in [false, true] {
        if is_down {
            case.store.remote.set(Mood::Down);
        }
        let client = client.charge("mallory", 1).with_on_failure(plimsoll::OnFailure::Deny);
        let decision = case.limiter.check([client, overall.charge("all", 1)]).await;
        assert!(!decision.is_ok_and(|it| it.is_allowed()));
        assert_eq!(case.limiter.status().leased_units, before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_of_several_charges_spends_and_refunds_units_of_the_stocks() {
    let case = Case::new();
    let both = [policy("first", LEASED), policy("second", LEASED)];
    for policy in &both {
        for _ in 0..100 {
            let _ = case.check(policy.charge("all", 1)).await;
        }
        case.warm_up(policy.charge("all", 1)).await;
    }
    let before = case.limiter.status().leased_units;
    let charges = [both[0].charge("all", 1), both[1].charge("all", 2)];
    let Reserved::Held(slot) = case.limiter.reserve(charges).await.unwrap() else {
        panic!("units are free")
    };
    assert_eq!(slot.receipt().source, Source::Leased);
    assert_eq!(case.limiter.status().leased_units, before - 3);
    assert_eq!(slot.refund().await.unwrap(), 3);
    assert_eq!(case.limiter.status().leased_units, before);
}

#[tokio::test(start_paused = true)]
async fn a_refund_returns_the_units_to_the_stock_while_the_lease_is_open() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    for _ in 0..100 {
        let _ = case.check(policy.charge("alice", 1)).await;
    }
    case.warm_up(policy.charge("alice", 1)).await;
    let before = case.limiter.status().leased_units;
    let Reserved::Held(slot) = case.limiter.reserve(policy.charge("alice", 5)).await.unwrap()
    else {
        panic!("units are free")
    };
    assert_eq!(case.limiter.status().leased_units, before - 5);
    assert_eq!(slot.refund().await.unwrap(), 5);
    assert_eq!(case.limiter.status().leased_units, before);
    // Settled at 2: 3 units return.
    let Reserved::Held(slot) = case.limiter.reserve(policy.charge("alice", 5)).await.unwrap()
    else {
        panic!("units are free")
    };
    slot.settle(2).await.unwrap();
    assert_eq!(case.limiter.status().leased_units, before - 2);
    assert!(case.store.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refund_after_the_lease_goes_to_the_store() {
    // A refund of a token bucket gives back what has not refilled since.
    let is_bucket = |algorithm: &Algorithm| returns(*algorithm) == Returns::AtRate;
    for algorithm in each(10, 1_000).into_iter().filter(|it| !is_bucket(it)) {
        let case = Case::new();
        // The mark of a counter names the window after a change.
        let policy = policy("p", &format!("1000/h {algorithm}"));
        assert!(case.check(policy.charge("alice", 1)).await.is_allowed());
        let quota = format!("1000/min {algorithm} leased(100ms)");
        policy.set_quota(quota.parse::<Quota>().unwrap());
        case.warm_up(policy.charge("alice", 1)).await;
        let slot = loop {
            match case.limiter.reserve(policy.charge("alice", 1)).await.unwrap() {
                Reserved::Held(slot) if slot.receipt().source == Source::Leased => break slot,
                _ => {}
            }
        };
        case.advance(Duration::from_millis(200)).await;
        let before = case.free_in_store(policy.charge("alice", 1)).await;
        assert_eq!(slot.refund().await.unwrap(), 1, "{algorithm}");
        assert_eq!(case.free_in_store(policy.charge("alice", 1)).await, before + 1, "{algorithm}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_no_longer_than_its_deadline_and_the_late_answer_still_counts() {
    let case = Case::with(|resilience| resilience.deadline(Duration::from_millis(50)));
    let policy = policy("p", "1000/min leased(1s)");
    case.warm_up(policy.charge("alice", 1)).await;
    *case.store.delay.lock().unwrap() = Duration::from_millis(200);
    let take = async || {
        let start = Instant::now();
        let source = case.check(policy.charge("alice", 1)).await.source();
        (source, start.elapsed())
    };
    // The stock is used up, and the renewal that was sent meanwhile takes 200 ms. So does the store, which is asked
    // when half of the deadline has passed.
    let (source, waited) = loop {
        let (source, waited) = take().await;
        if source != Source::Leased {
            break (source, waited);
        }
        assert!(waited.is_zero(), "{waited:?}");
    };
    assert_eq!(source, Source::Fallback);
    assert!(
        waited >= Duration::from_millis(48) && waited <= Duration::from_millis(60),
        "{waited:?}"
    );
    // The renewal has been in flight for as long as a check waits, so the next check asks the store at once.
    case.clock.advance(Duration::from_millis(50));
    case.store.requests();
    let check = case.limiter.check(policy.charge("alice", 1));
    assert!(futures_util::FutureExt::now_or_never(check).is_none());
    assert_eq!(case.store.requests(), ["acquire p"]);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(take().await.0, Source::Leased);
}

#[tokio::test(start_paused = true)]
async fn until_ready_uses_the_stock() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    case.warm_up(policy.charge("alice", 1)).await;
    let ready = case.limiter.until_ready(policy.charge("alice", 1), Duration::from_secs(1)).await;
    assert_eq!(ready.unwrap().source(), Source::Leased);
}

/// 200 requests of 1 unit are charged at one time. 100 ms later, 100 units of debt are paid, and 500
/// other units are charged. A refund of all requests covers only the debt that is left of them.
#[tokio::test(start_paused = true)]
async fn refunds_under_a_token_bucket_leave_paid_debt_out() {
    let case = Case::new();
    let policy = policy("p", "1000/s token-bucket(1000) leased(100ms)");
    let charge = |cost| policy.charge("alice", cost);
    let mut slots = Vec::new();
    while slots.len() < 200 {
        match case.limiter.reserve(charge(1)).await.unwrap() {
            Reserved::Held(slot) => slots.push(slot),
            Reserved::Denied(denied) => panic!("{denied:?}"),
        }
    }
    case.advance(Duration::from_millis(100)).await;
    let stranger = Limiter::with_resilience(case.store.remote.clone(), Resilience::none());
    assert!(stranger.check(charge(500)).await.unwrap().is_allowed());
    let free = case.free_in_store(charge(1)).await;
    let mut refunded = 0;
    for slot in slots {
        refunded += slot.refund().await.unwrap();
    }
    // 100 of the 200 are paid.
    assert!((95..=100).contains(&refunded), "{refunded} refunded");
    assert_eq!(case.free_in_store(charge(1)).await, free + refunded);
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_units_that_were_not_leased_leaves_the_stock_alone() {
    let case = Case::new();
    // All charges of a period have the same mark.
    let policy = policy("p", "1000/min fixed-window leased(100ms)");
    case.warm_up(policy.charge("alice", 1)).await;
    let held = case.limiter.status().leased_units;
    let free = case.free_in_store(policy.charge("alice", 1)).await;
    let penalty = case.limiter.penalize(policy.charge("alice", 50)).await.unwrap();
    assert_eq!(case.limiter.hold(penalty.into_receipt()).refund().await.unwrap(), 50);
    assert_eq!(case.limiter.status().leased_units, held, "the penalty was not taken from stock");
    assert_eq!(case.free_in_store(policy.charge("alice", 1)).await, free);

    case.store.remote.set(Mood::Down);
    let slot = loop {
        match case.limiter.reserve(policy.charge("alice", 1)).await.unwrap() {
            Reserved::Held(slot) if slot.receipt().source == Source::Fallback => break slot,
            _ => {}
        }
    };
    assert_eq!(case.limiter.status().leased_units, 0);
    assert_eq!(slot.refund().await.unwrap(), 1);
    assert_eq!(case.limiter.status().leased_units, 0, "the fallback has the unit");
}

#[tokio::test(start_paused = true)]
async fn idle_units_go_back_to_the_store() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(100ms)");
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += u64::from(case.check(policy.charge("alice", 1)).await.is_allowed());
    }
    let status = case.limiter.status();
    assert!(status.leased_keys == 1 && status.leased_units > 0);
    // A round begins each quarter of the lease.
    case.clock.advance(Duration::from_millis(60));
    sleep(Duration::from_millis(26)).await;
    let status = case.limiter.status();
    assert_eq!((status.leased_keys, status.leased_units), (0, 0));
    assert_eq!(case.free_in_store(policy.charge("alice", 1)).await, 1000 - admitted);
    // Without stocks, no task is left.
    assert_eq!(tasks(), 1);
    case.advance(Duration::from_secs(1)).await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn close_returns_everything_and_later_checks_ask_the_store() {
    for (quota, _) in each_quota("1000/min", 10, 1_000) {
        let case = Case::new();
        let policy = policy("p", &format!("{quota} leased(1s)"));
        let unspent = case.free_in_store(policy.charge("alice", 1)).await;
        let mut admitted = 0;
        for key in ["alice", "bob"] {
            for _ in 0..100 {
                admitted += u64::from(case.check(policy.charge(key, 1)).await.is_allowed());
            }
        }
        assert!(case.limiter.status().leased_units > 0, "{quota}");
        case.limiter.close().await.unwrap();
        let free = case.free_in_store(policy.charge("alice", 1)).await
            + case.free_in_store(policy.charge("bob", 1)).await;
        assert_eq!(free, 2 * unspent - admitted, "{quota}");
        for _ in 0..100 {
            let decision = case.check(policy.charge("alice", 1)).await;
            assert_eq!(decision.source(), Source::Shared, "{quota}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_the_renewal_in_flight() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(1s)");
    case.store.remote.set(Mood::Late);
    let checks = (0..30).map(|_| case.limiter.check(policy.charge("alice", 1)));
    let close = async {
        tokio::task::yield_now().await;
        case.limiter.close().await
    };
    let (decisions, closed) = tokio::join!(join_all(checks), close);
    closed.unwrap();
    let admitted =
        decisions.iter().filter(|it| it.as_ref().is_ok_and(Decision::is_allowed)).count();
    let free = case.free_in_store(policy.charge("alice", 1)).await;
    assert_eq!(free, 1000 - admitted as u64);
    assert_eq!(case.limiter.status().leased_units, 0);
}

#[tokio::test(start_paused = true)]
async fn close_ends_although_the_store_does_not_answer() {
    let case = Case::with(|resilience| resilience.deadline(Duration::from_secs(10)));
    let policy = policy("p", "1000/min leased(1s)");
    for key in 0..100 {
        for _ in 0..30 {
            let _ = case.check(policy.charge(key.to_string(), 1)).await;
        }
    }
    assert!(case.limiter.status().leased_units > 0);
    case.store.remote.set(Mood::Hangs);
    let start = tokio::time::Instant::now();
    assert!(case.limiter.close().await.unwrap_err().is_unavailable());
    assert!(start.elapsed() <= Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(case.limiter.status().leased_units, 0);
    case.limiter.close().await.expect("nothing is left to return");
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_a_refund_in_flight() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(100ms)");
    for _ in 0..100 {
        let _ = case.check(policy.charge("alice", 1)).await;
    }
    case.store.remote.set(Mood::Hangs);
    // The keeper returns idle units.
    case.clock.advance(Duration::from_millis(60));
    case.store.requests();
    while !case.store.requests().iter().any(|it| it.starts_with("refund")) {
        sleep(Duration::from_millis(1)).await;
    }
    let start = tokio::time::Instant::now();
    case.limiter.close().await.expect("nothing is left to return");
    assert!(start.elapsed() >= Duration::from_millis(10), "{:?}", start.elapsed());
}

/// A check from stock does not yield, so the task of the renewal that it has started does not run. The
/// work between two checks does not yield either.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_not_sent_is_no_failure_of_the_store() {
    let mut leased = 0;
    for (lease, window) in [(20, 500), (100, 1_000), (1_000, 10_000), (5_000, 50_000)] {
        for work in [5, 30, 70, 150, 500] {
            // Two processes want 1.5 times as much as the limit.
            let limit = (2 * window / work * 2 / 3).max(2);
            for algorithm in each(10, limit as u64 / 2 + 2) {
                let case = Case::new();
                let quota = format!("{limit}/{window}ms {algorithm} leased({lease}ms)");
                let policy = policy("p", &quota);
                let processes = [case.process(), case.process()];
                let mut uses = Vec::new();
                for now in (0..window * 3 / 2).step_by(work) {
                    for process in &processes {
                        let decision = process.check(policy.charge("alice", 1)).await.unwrap();
                        let source = decision.source();
                        assert_ne!(source, Source::Fallback, "{quota}, work of {work} ms");
                        leased += u64::from(source == Source::Leased);
                        if decision.is_allowed() {
                            uses.push((now as u64, 1));
                        }
                    }
                    case.clock.advance(Duration::from_millis(work as u64));
                }
                let fullest = most_in_any_window(&uses, window as u64);
                let bound = most(&policy.quota());
                assert!(fullest <= bound.into(), "{quota}, work of {work} ms: {fullest}");
            }
        }
    }
    assert!(leased > 10_000, "{leased} checks were paid from stock");
}

#[test]
fn a_renewal_on_a_runtime_that_is_not_running_does_not_stop_the_checks_of_others() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().expect("a runtime")
    };
    let case = Case::new();
    let policy = policy("p", LEASED);
    // This check starts a renewal, and its runtime does not run it.
    let stopped = runtime();
    stopped.block_on(async {
        for _ in 0..10 {
            let check = case.limiter.check(policy.charge("alice", 1));
            let _ = futures_util::FutureExt::now_or_never(check);
        }
    });
    runtime().block_on(async {
        for _ in 0..10 {
            case.clock.advance(Duration::from_secs(1));
            for _ in 0..10 {
                let source = case.check(policy.charge("alice", 1)).await.source();
                assert_ne!(source, Source::Fallback, "the store answers");
            }
        }
    });
    drop(stopped);
}

#[tokio::test(start_paused = true)]
async fn a_reset_and_a_block_empty_the_stock() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    let charge = || policy.charge("alice", 1);
    case.warm_up(charge()).await;
    case.limiter.reset(charge()).await.unwrap();
    assert_eq!(case.limiter.status().leased_units, 0);
    assert_eq!(case.free_in_store(charge()).await, 1000);

    case.clock.advance(Duration::from_secs(1));
    case.warm_up(charge()).await;
    case.limiter.block(charge(), Duration::from_secs(60)).await.unwrap();
    for _ in 0..10 {
        assert!(!case.check(charge()).await.is_allowed(), "blocked");
    }
    case.limiter.unblock(charge()).await.unwrap();
    assert!(case.check(charge()).await.is_allowed());
    case.advance(Duration::from_millis(1)).await;
    assert!(case.store.requests().iter().any(|it| it.starts_with("refund")));
}

#[tokio::test(start_paused = true)]
async fn units_of_a_renewal_from_before_a_reset_are_not_refunded() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    case.warm_up(policy.charge("alice", 1)).await;
    *case.store.delay.lock().unwrap() = Duration::from_millis(10);
    while !case.store.requests().iter().any(|it| it.starts_with("lease")) {
        assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Leased);
        tokio::task::yield_now().await;
    }
    case.limiter.reset(policy.charge("alice", 1)).await.unwrap();
    case.advance(Duration::from_millis(200)).await;
    assert_eq!(case.store.requests(), ["reset p"]);
}

#[tokio::test(start_paused = true)]
async fn a_penalty_beyond_the_limit_empties_the_stock() {
    for (quota, _) in each_quota("1000/s", 10, 500) {
        let case = Case::new();
        let policy = policy("p", &format!("{quota} leased(100ms)"));
        let charge = || policy.charge("alice", 1);
        case.warm_up(charge()).await;
        assert!(case.limiter.status().leased_units > 0);
        case.limiter.penalize(policy.charge("alice", 20_000)).await.unwrap();
        assert_eq!(case.limiter.status().leased_units, 0, "{quota}");
        assert!(!case.limiter.peek(charge()).await.unwrap().is_allowed(), "{quota}");
        assert!(!case.check(charge()).await.is_allowed(), "{quota}");

        // A renewal is in flight that was granted before the penalty.
        let case = Case::new();
        case.warm_up(charge()).await;
        *case.store.delay.lock().unwrap() = Duration::from_millis(10);
        while !case.store.requests().iter().any(|it| it.starts_with("lease")) {
            assert_eq!(case.check(charge()).await.source(), Source::Leased);
            tokio::task::yield_now().await;
        }
        case.limiter.penalize(policy.charge("alice", 20_000)).await.unwrap();
        sleep(Duration::from_millis(20)).await;
        for _ in 0..100 {
            assert!(!case.check(charge()).await.is_allowed(), "{quota}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_penalty_within_the_limit_leaves_the_stock_alone() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    case.warm_up(policy.charge("alice", 1)).await;
    let held = case.limiter.status().leased_units;
    case.limiter.penalize(policy.charge("alice", 50)).await.unwrap();
    assert_eq!(case.limiter.status().leased_units, held);
    assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Leased);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_stock_is_not_leased_while_its_reset_may_be_under_way() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    case.limiter.reset(policy.charge("alice", 1)).await.unwrap();
    for _ in 0..40 {
        assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Shared);
    }
    assert_eq!(case.limiter.status().leased_units, 0);
    // Four times the deadline of 50 ms.
    case.clock.advance(Duration::from_millis(200));
    case.warm_up(policy.charge("alice", 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_quota_returns_the_stock_of_the_old_one() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(1s)");
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += u64::from(case.check(policy.charge("alice", 1)).await.is_allowed());
    }
    assert!(case.limiter.status().leased_units > 0);
    // Also without another check of the key.
    policy.set_quota("2000/min".parse::<Quota>().unwrap());
    case.advance(Duration::ZERO).await;
    assert_eq!(case.limiter.status().leased_units, 0);
    assert_eq!(case.free_in_store(policy.charge("alice", 1)).await, 2000 - admitted);

    policy.set_quota("1000/min leased(1s)".parse().unwrap());
    for _ in 0..100 {
        admitted += u64::from(case.check(policy.charge("alice", 1)).await.is_allowed());
    }
    policy.set_quota("500/min leased(2s)".parse().unwrap());
    admitted += u64::from(case.check(policy.charge("alice", 1)).await.is_allowed());
    case.limiter.close().await.unwrap();
    assert_eq!(case.free_in_store(policy.charge("alice", 1)).await, 500 - admitted);
}

#[tokio::test(start_paused = true)]
async fn remaining_is_what_the_store_has_and_what_is_in_stock() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(1s)");
    for admitted in 1..=100 {
        let decision = case.check(policy.charge("alice", 1)).await;
        assert!(decision.is_allowed());
        assert_eq!(remaining(&decision), 1000 - admitted);
        let peek = case.limiter.peek(policy.charge("alice", 1)).await.unwrap();
        assert_eq!(remaining(&peek), 1000 - admitted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_too_large_for_the_stock_leaves_it_and_counts_it_as_free() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(1s)");
    let charge = |cost| policy.charge("alice", cost);
    for _ in 0..100 {
        let _ = case.check(charge(1)).await;
    }
    case.warm_up(charge(1)).await;
    let Reserved::Held(slot) = case.limiter.reserve(charge(5)).await.unwrap() else {
        panic!("units are free")
    };
    assert_eq!(slot.receipt().source, Source::Leased);
    // The reply to a renewal is lost, so no other is sent for half of the lease.
    case.store.remote.set(Mood::Mute);
    while !case.store.requests().iter().any(|it| it.starts_with("lease")) {
        assert_eq!(case.check(charge(1)).await.source(), Source::Leased);
        tokio::task::yield_now().await;
    }
    sleep(Duration::from_secs(2)).await;
    case.store.remote.set(Mood::Well);

    slot.refund().await.unwrap();
    let (held, free) = (case.limiter.status().leased_units, case.free_in_store(charge(1)).await);
    assert!(held >= 5);
    let decision = case.check(charge(held + 1)).await;
    assert_eq!((decision.source(), remaining(&decision)), (Source::Shared, free - 1));
    let decision = case.check(charge(1)).await;
    assert_eq!((decision.source(), remaining(&decision)), (Source::Leased, free - 2));
}

#[tokio::test(start_paused = true)]
async fn a_charge_under_an_earlier_quota_is_not_paid_from_the_stock_of_the_next_one() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    let earlier = policy.charge("alice", 1);
    case.warm_up(earlier.clone()).await;
    policy.set_quota("2000/s leased(100ms)".parse::<Quota>().unwrap());
    case.warm_up(policy.charge("alice", 1)).await;
    assert_eq!(case.check(earlier).await.source(), Source::Shared);
    assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Leased);
}

#[tokio::test(start_paused = true)]
async fn a_peek_passes_if_the_stock_can_pay() {
    let case = Case::new();
    let policy = policy("p", "200/min leased(1s)");
    for _ in 0..50 {
        let _ = case.check(policy.charge("alice", 1)).await;
    }
    let held = case.limiter.status().leased_units;
    assert!(held > 0);
    // Another process takes all that is free.
    let free = case.free_in_store(policy.charge("alice", 1)).await;
    let other = case.process();
    assert!(other.check(policy.charge("alice", free)).await.unwrap().is_allowed());
    assert!(case.limiter.peek(policy.charge("alice", 1)).await.unwrap().is_allowed());
    assert!(!case.limiter.peek(policy.charge("alice", held + 1)).await.unwrap().is_allowed());
    // A shadow is not paid from stock.
    let shadow = case.limiter.peek(policy.charge("alice", 1).shadow()).await.unwrap();
    assert_eq!(shadow.outcomes().next().map(|it| it.verdict()), Some(Verdict::Refused));
    assert!(case.check(policy.charge("alice", 1)).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn shadows_and_batches_are_not_leased() {
    let case = Case::new();
    let policy = policy("p", LEASED);
    case.warm_up(policy.charge("alice", 1)).await;
    for _ in 0..10 {
        let _ = case.check(policy.charge("alice", 1).shadow()).await;
        let _ = case.check(policy.charge("alice", 1).up_to(3)).await;
        let _ = case.check(policy.charge("alice", 0)).await;
    }
    assert_eq!(case.store.requests(), vec!["acquire p"; 30]);
}

#[tokio::test(start_paused = true)]
async fn four_processes_never_admit_more_than_the_limit() {
    let case = Case::new();
    let policy = policy("p", "1000/min leased(1s)");
    let processes: Vec<_> = (0..4).map(|_| case.process()).collect();
    let mut admitted = 0;
    for round in 0..2_000 {
        case.store.remote.set(if round % 3 == 0 { Mood::Late } else { Mood::Well });
        let checks = processes.iter().map(|it| it.check(policy.charge("alice", 1)));
        let decisions = join_all(checks).await;
        admitted += decisions.iter().filter(|it| it.as_ref().unwrap().is_allowed()).count();
        case.clock.advance(Duration::from_micros(50));
    }
    assert!((990..=1000).contains(&admitted), "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn without_leases_each_check_asks_the_store() {
    let case = Case::with(Resilience::without_leases);
    let policy = policy("p", LEASED);
    for _ in 0..20 {
        assert_eq!(case.check(policy.charge("alice", 1)).await.source(), Source::Shared);
    }
}

#[test]
fn without_a_runtime_each_check_asks_the_store() {
    let case = Case::new();
    *case.store.delay.lock().unwrap() = AT_ONCE;
    let policy = policy("p", LEASED);
    for _ in 0..20 {
        let check = case.limiter.check(policy.charge("alice", 1));
        let decision = futures_util::FutureExt::now_or_never(check).expect("ready").unwrap();
        assert_eq!(decision.source(), Source::Shared);
    }
}

/// A store whose author has not thought of leases.
#[derive(Debug)]
struct Unaware(Logged);

impl Store for Unaware {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        self.0.call(request, deadline)
    }
}

#[tokio::test]
async fn a_store_that_does_not_count_leases_is_asked_for_each_check() {
    let Case { clock, store, .. } = Case::new();
    let resilience = Resilience::default().clock(clock.clone());
    let limiter = Limiter::with_resilience(Unaware(store.clone()), resilience);
    let policy = policy("p", LEASED);
    for _ in 0..50 {
        assert!(limiter.check(policy.charge("alice", 1)).await.expect("an answer").is_allowed());
        clock.advance(Duration::from_millis(1));
    }
    assert_eq!(store.requests(), ["acquire p"; 50]);
}

#[tokio::test(start_paused = true)]
async fn a_penalty_whose_reply_is_lost_empties_the_stock() {
    for (mood, is_dropped) in [(Mood::Mute, false), (Mood::Mute, true), (Mood::Hangs, false)] {
        let case = Case::new();
        let policy = policy("p", "6000/6s leased(500ms)");
        let charge = || policy.charge("alice", 1);
        case.warm_up(charge()).await;
        assert!(case.limiter.status().leased_units > 0);
        case.store.remote.set(mood);
        let penalty = case.limiter.penalize(policy.charge("alice", 20_000));
        if is_dropped {
            assert!(timeout(Duration::from_millis(1), penalty).await.is_err());
        } else {
            assert_eq!(penalty.await.unwrap_err().effect(), Effect::Unknown);
        }
        assert_eq!(case.limiter.status().leased_units, 0, "{mood:?}, {is_dropped}");
        case.store.remote.set(Mood::Well);
        case.store.requests();
        for _ in 0..100 {
            assert_eq!(case.check(charge()).await.is_allowed(), mood == Mood::Hangs);
        }
        // The penalty may still be on its way.
        let requests = case.store.requests();
        assert!(!requests.iter().any(|it| it.starts_with("lease")), "{mood:?}: {requests:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_penalty_that_the_store_has_not_seen_leaves_the_stock_alone() {
    let case = Case::with(Resilience::without_fallback);
    let policy = policy("p", LEASED);
    case.warm_up(policy.charge("alice", 1)).await;
    let held = case.limiter.status().leased_units;
    assert!(held > 0);
    case.store.remote.set(Mood::Down);
    let error = case.limiter.penalize(policy.charge("alice", 1)).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(case.limiter.status().leased_units, held);
}

#[tokio::test(start_paused = true)]
async fn a_charge_beyond_the_limit_returns_the_stock() {
    for (quota, _) in each_quota("1000/s", 10, 500) {
        let case = Case::new();
        let policy = policy("p", &format!("{quota} leased(100ms)"));
        let charge = |cost| policy.charge("alice", cost);
        for _ in 0..100 {
            let _ = case.check(charge(1)).await;
        }
        case.warm_up(charge(1)).await;
        let free = case.free_in_store(charge(1)).await;
        assert!(case.process().check(charge(free)).await.unwrap().is_allowed());
        let held = case.limiter.status().leased_units;
        assert!(held > 20, "{quota}: {held} units in stock");

        let Reserved::Held(slot) = case.limiter.reserve(charge(1)).await.unwrap() else {
            panic!("units are in stock")
        };
        slot.settle(2).await.unwrap();
        assert_eq!(case.limiter.status().leased_units, 0, "{quota}");
        // The keeper refunds the stock, of which 2 units have been used.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(case.free_in_store(charge(1)).await, held - 2, "{quota}");
        assert_eq!(case.check(charge(1)).await.source(), Source::Shared, "it is not leased now");

        let charged = case.limiter.penalize(charge(5)).await.unwrap();
        assert_eq!(charged.remaining(), Some(held - 8), "{quota}");
        case.limiter.penalize(charge(held)).await.unwrap();
        assert!(!case.check(charge(1)).await.is_allowed(), "{quota}");
    }
}

#[test]
fn a_check_waits_for_all_its_renewals_together() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().expect("a runtime")
    };
    let case = Case::with(|resilience| resilience.deadline(Duration::from_millis(50)));
    let policies: [_; 8] = std::array::from_fn(|number| policy(&format!("p{number}"), LEASED));
    let charges = || policies.each_ref().map(|policy| policy.charge("alice", 1));
    // This check starts the renewals, and its runtime does not run them.
    let stopped = runtime();
    stopped.block_on(async {
        for _ in 0..20 {
            let _ = futures_util::FutureExt::now_or_never(case.limiter.check(charges()));
        }
    });
    runtime().block_on(async {
        case.store.requests();
        let start = Instant::now();
        assert_eq!(case.check(charges()).await.source(), Source::Shared);
        let waited = start.elapsed();
        assert!((24..=27).contains(&waited.as_millis()), "{waited:?}");
        // Half of the deadline has passed, and the other half is left for the store.
        *case.store.delay.lock().unwrap() = Duration::from_millis(20);
        let start = Instant::now();
        assert_eq!(case.check(charges()).await.source(), Source::Shared);
        let waited = start.elapsed();
        assert!((44..=47).contains(&waited.as_millis()), "{waited:?}");
        // A check does not wait for renewals if half of the deadline is not enough for the store.
        *case.store.delay.lock().unwrap() = Duration::from_millis(30);
        for _ in 0..9 {
            let _ = case.check(charges()).await;
        }
        let start = Instant::now();
        assert_eq!(case.check(charges()).await.source(), Source::Shared);
        let waited = start.elapsed();
        assert!((30..=32).contains(&waited.as_millis()), "{waited:?}");
    });
    drop(stopped);
}

#[test]
fn a_renewal_that_cannot_start_is_started_by_a_later_check() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    let case = Case::new();
    let policy = policy("p", LEASED);
    let charge = || policy.charge("alice", 1);
    runtime.block_on(case.warm_up(charge()));
    // Outside of the runtime.
    let check = || futures_util::FutureExt::now_or_never(case.limiter.check(charge()));
    while check().is_some_and(|decision| decision.unwrap().source() == Source::Leased) {}
    // After half of the lease, the next one may start.
    case.clock.advance(Duration::from_millis(50));
    runtime.block_on(case.warm_up(charge()));
}

/// Returns how many renewals were counted with this result.
#[cfg(feature = "metrics")]
fn renewals(result: &str, run: impl Future<Output = ()>) -> u64 {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || runtime.block_on(run));
    let seen = recorder.snapshotter().snapshot().into_vec();
    let counts = seen.into_iter().filter_map(|(key, _, _, value)| match value {
        DebugValue::Counter(count) => {
            let key = key.key();
            let is_of_leases = key.name() == "plimsoll_lease_renewals_total";
            let has_result = key.labels().any(|it| it.value() == result);
            (is_of_leases && has_result).then_some(count)
        }
        _ => None,
    });
    counts.sum()
}

#[cfg(feature = "metrics")]
#[test]
fn a_renewal_that_was_not_sent_is_not_counted_as_lost() {
    let policy = policy("p", LEASED);
    // Starts a renewal, which is sent when the runtime runs it.
    let start = async |case: &Case| {
        *case.store.delay.lock().unwrap() = AT_ONCE;
        while case.limiter.status().leased_keys == 0 {
            let check = case.limiter.check(policy.charge("alice", 1));
            if futures_util::FutureExt::now_or_never(check).is_none() {
                return;
            }
        }
    };
    let withdrawn = renewals("lost", async {
        let case = Case::new();
        start(&case).await;
        case.limiter.reset(policy.charge("alice", 1)).await.unwrap();
        sleep(Duration::from_secs(20)).await;
        assert!(!case.store.requests().iter().any(|it| it.starts_with("lease")));
    });
    assert_eq!(withdrawn, 0);
    let lost = renewals("lost", async {
        let case = Case::new();
        start(&case).await;
        case.store.remote.set(Mood::Mute);
        sleep(Duration::from_secs(20)).await;
        assert!(case.store.requests().iter().any(|it| it.starts_with("lease")));
    });
    assert_eq!(lost, 1);
}

#[cfg(feature = "metrics")]
#[test]
fn a_renewal_that_the_store_denies_is_counted_as_denied() {
    let policy = policy("p", "100/min leased(1s)");
    for (result, least, most) in [("denied", 1, 20), ("granted", 1, 20), ("lost", 0, 0)] {
        let counted = renewals(result, async {
            let case = Case::new();
            for _ in 0..1_000 {
                let _ = case.check(policy.charge("alice", 1)).await;
                case.clock.advance(Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        });
        assert!((least..=most).contains(&counted), "{result}: {counted}");
    }
}

/// Three processes under a leased bucket, which fall silent after a denial: renewals in flight and the refunds
/// of stocks do not make its wait too short.
#[tokio::test(start_paused = true)]
async fn a_wait_under_a_lease_is_long_enough_if_others_take_no_units() {
    let case = Case::new();
    *case.store.delay.lock().expect("no panic") = Duration::from_millis(1);
    let policy = policy("p", "300/s token-bucket(100) leased(100ms)");
    let limiters = [case.limiter.clone(), case.process(), case.process()];
    let pass = async |micros: u64| {
        case.clock.advance(Duration::from_micros(micros));
        sleep(Duration::from_micros(micros)).await;
    };
    let mut denials = 0;
    for round in 0..400_u64 {
        // A busy time of a random length, and then silence.
        let mut last = None;
        'busy: for step in 0..20 + round * 7 % 41 {
            for (index, limiter) in limiters.iter().enumerate() {
                for _ in 0..1 + (round + step) % 3 {
                    let check = limiter.check(policy.charge("alice", 1 + step % 2));
                    let mut check = Box::pin(check);
                    let decision = loop {
                        if let std::task::Poll::Ready(decision) = futures_util::poll!(&mut check) {
                            break decision.expect("a decision");
                        }
                        pass(100).await;
                    };
                    if let (Decision::Denied(denied), 0, 10..) = (&decision, index, step) {
                        last = Some((denied.retry_after().expect("a wait"), 1 + step % 2));
                        break 'busy;
                    }
                }
            }
            pass(1_000).await;
        }
        let Some((wait, cost)) = last else { continue };
        denials += 1;
        pass(wait.as_micros() as u64).await;
        let peek = limiters[0].peek(policy.charge("alice", cost)).await.expect("an answer");
        assert!(peek.is_allowed(), "{round}: {cost} units after {wait:?}");
        pass(50_000).await;
    }
    assert!(denials > 100, "{denials}");
}
