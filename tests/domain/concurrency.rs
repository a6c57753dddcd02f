//! Many threads, futures that are dropped half-way, and reservations: none raises what is admitted.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use plimsoll::{
    Algorithm, Decision, Limiter, MemoryStore, Policy,
    clock::{Clock, ManualClock, SystemClock},
    limiter::Reserved,
    memory::MemoryConfig,
    policy::Charges,
    store::{Answer, Request, Store, StoreReply},
};
use plimsoll_testing::{
    Watched,
    algorithms::{self, each},
    memory, now, policy,
    seed::{self, Random},
};

const THREADS: usize = 16;

fn on_threads<T: Send>(run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let (start, run) = (&start, &run);
        let spawn = |index| {
            scope.spawn(move || {
                start.wait();
                run(index)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// An admission: the time that the decision names, a time just after it, units.
type Admission = (u64, u64, u64);

/// The store reads its clock before its lock, so the decision fell somewhere between the two times
/// of an admission: it is in a window for sure if both are.
fn most_for_sure(admissions: &mut [Admission], window: u64) -> u64 {
    admissions.sort_unstable();
    let ends = admissions.iter().map(|(_, end, _)| *end);
    let within = |end: u64| {
        let first = admissions.partition_point(|(begun, ..)| begun + window <= end);
        let within = admissions[first..].iter().take_while(move |(begun, ..)| *begun <= end);
        within.filter(move |(_, done, _)| *done <= end).map(|(.., units)| units).sum()
    };
    ends.map(within).max().unwrap_or(0)
}

#[test]
fn no_window_holds_more_than_the_bound() {
    for kind in each(7, 10) {
        let clock = SystemClock::new();
        let store = MemoryStore::new(MemoryConfig::default().clock(clock));
        let limiter = Limiter::new(store);
        let policy = policy("shared", &format!("50/100ms {kind}"));
        let started = clock.now().as_micros();
        let totals = [const { AtomicU64::new(0) }; 2];
        // For 450 ms, and on a machine that stands still until enough is admitted.
        let goes_on = || {
            let passed = clock.now().as_micros() - started;
            let is_enough = totals.iter().all(|total| total.load(Ordering::Relaxed) >= 50);
            passed < 450_000 || !is_enough && passed < 30_000_000
        };
        let threads = on_threads(|thread| {
            let mut admitted = [const { Vec::<Admission>::new() }; 2];
            let mut turn = thread as u64;
            while goes_on() {
                turn += 1;
                let (key, cost) = ((turn % 2) as usize, 1 + turn % 3);
                let check = now(limiter.check(policy.charge(key as u64, cost)));
                let decision = check.expect("the store answers");
                if decision.is_allowed() {
                    let time = decision.time().as_micros();
                    totals[key].fetch_add(cost, Ordering::Relaxed);
                    admitted[key].push((time, clock.now().as_micros(), cost));
                }
            }
            admitted
        });
        for key in 0..2 {
            let mut all: Vec<_> = threads.iter().flat_map(|it| it[key].clone()).collect();
            let total: u64 = all.iter().map(|(.., units)| units).sum();
            let most = most_for_sure(&mut all, 100_000);
            assert!(
                most <= algorithms::most(&policy.quota()),
                "{most} units of {policy:?} in a window"
            );
            assert!(total >= 50, "{total} units of {policy:?} in 450 ms");
        }
    }
}

#[test]
fn at_one_instant_exactly_the_capacity_is_admitted() {
    for kind in each(7, 10) {
        let fixture = now(memory());
        fixture.set(1_700_000_000_000_000);
        let policy = policy("shared", &format!("1000/s {kind}"));
        let capacity = policy.quota().capacity();
        let admitted = on_threads(|_| {
            let check = || now(fixture.limiter.check(policy.charge("alice", 1)));
            (0..200).filter(|_| check().expect("the store answers").is_allowed()).count() as u64
        });
        assert_eq!(admitted.iter().sum::<u64>(), capacity, "{kind}");
    }
}

/// Threads fill a store with new keys, some with several in one check: all of them are admitted, and
/// the store holds at most one check of each thread too many.
#[test]
fn a_full_store_admits_new_keys_from_many_threads() {
    const PLACES: usize = 500;
    let clock = ManualClock::at(1_700_000_000_000_000);
    let store = Watched::new(MemoryConfig::default().max_keys(PLACES).clock(clock.clone()));
    let limiter = Limiter::new(store.clone());
    let policy = policy("shared", "10/day");
    let most = on_threads(|thread| {
        let mut most = 0;
        for turn in 0..1_500_u64 {
            let key = |line: u64| (thread as u64) << 32 | turn << 8 | line;
            let charges = (0..1 + turn % 3).map(|line| policy.charge(key(line), 1 + turn % 10));
            let decision = now(limiter.check(charges.collect::<Charges<'_>>()));
            assert!(decision.expect("the store answers").is_allowed(), "the keys are new");
            clock.advance(Duration::from_micros(1));
            most = most.max(store.status().memory.expect("an embedded store").keys);
        }
        most
    });
    let most = most.into_iter().max().expect("a thread");
    assert!(most >= PLACES, "{most} keys: the store was never full");
    assert!(most <= PLACES + 3 * THREADS, "{most} keys in {PLACES} places");
    // The next new keys replace the surplus.
    (0..100).for_each(|key: u64| drop(now(limiter.check(policy.charge(key, 1)))));
    assert!(store.status().memory.expect("an embedded store").keys <= PLACES);
}

/// Time moves on in one thread while the others ask: exact totals, because a fixed window admits
/// its limit in each period however the threads interleave.
#[test]
fn while_a_thread_moves_the_time() {
    let clock = ManualClock::at(1_700_000_000_000_000);
    let limiter = Limiter::new(MemoryStore::new(MemoryConfig::default().clock(clock.clone())));
    let policy = policy("shared", "10/s fixed-window");
    let done = AtomicU64::new(0);
    let admitted = on_threads(|thread| {
        if thread == 0 {
            for _ in 0..50 {
                // Until everybody has asked often enough to fill the period.
                let asked = done.load(Ordering::SeqCst);
                while done.load(Ordering::SeqCst) < asked + 40 {
                    thread::yield_now();
                }
                clock.advance(Duration::from_secs(1));
            }
            done.store(u64::MAX / 2, Ordering::SeqCst);
            return 0;
        }
        let mut admitted = 0;
        while done.fetch_add(1, Ordering::SeqCst) < u64::MAX / 2 {
            let decision = now(limiter.check(policy.charge("alice", 1)));
            admitted += u64::from(decision.expect("the store answers").is_allowed());
        }
        admitted
    });
    let total: u64 = admitted.iter().sum();
    assert!((500..=510).contains(&total), "{total} units in 51 periods of 10");
}

/// Each thread checks several keys in an order of its own. The threads do not deadlock, and the keys
/// have spent the units of the admitted checks.
#[test]
fn checks_of_several_keys_in_any_order() {
    let fixture = now(memory());
    fixture.set(1_700_000_000_000_000);
    // Together, the policies have less than all threads ask for.
    let limit = 15_000 / Algorithm::EACH.len() as u64;
    let policies = each(7, limit).map(|kind| policy(kind.name(), &format!("{limit}/min {kind}")));
    let seed = seed::seed("checks_of_several_keys_in_any_order");
    let admitted = on_threads(|thread| {
        let mut spent = policies.each_ref().map(|_| [0_u64; 4]);
        let mut random = Random(seed.wrapping_add(thread as u64));
        for _ in 0..400 {
            let mut lines = Vec::new();
            for _ in 0..4 {
                let (policy, key) = (random.below(policies.len() as u64), random.below(4));
                lines.push((policy as usize, key as usize, 1 + random.below(4)));
            }
            let charges = lines
                .iter()
                .map(|(policy, key, cost)| policies[*policy].charge(*key as u64, *cost));
            let decision = now(fixture.limiter.check(charges.collect::<Charges<'_>>()))
                .expect("the store answers");
            let granted: u64 = decision.outcomes().map(|it| it.granted()).sum();
            let asked: u64 = lines.iter().map(|(.., cost)| cost).sum();
            assert_eq!(granted, if decision.is_allowed() { asked } else { 0 });
            if decision.is_allowed() {
                lines.iter().for_each(|(policy, key, cost)| spent[*policy][*key] += cost);
            }
        }
        spent
    });
    let mut refused = 0;
    for (index, policy) in policies.iter().enumerate() {
        for key in 0..4 {
            let spent: u64 = admitted.iter().map(|spent| spent[index][key]).sum();
            let peek = now(fixture.limiter.peek(policy.charge(key as u64, 0)));
            let peek = peek.expect("the store answers");
            assert_eq!(
                limit - peek.outcomes().next().expect("an outcome").standing().remaining,
                spent
            );
            refused += u64::from(spent > 2_990);
        }
    }
    assert!(refused > 0, "the test denied nothing");
}

/// A store that answers after a number of polls, and decides at the first or at the last of them.
#[derive(Debug)]
struct Slow {
    store: Watched,
    polls: u32,
    early: bool,
}

impl Store for Slow {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        if self.early {
            let reply = now(self.store.call(request, deadline));
            return Answer::pending(Polls { left: self.polls, then: Some(reply) });
        }
        let (store, polls) = (self.store.clone(), self.polls);
        match request {
            Request::Acquire(charges) => {
                let charges: Vec<_> = charges.iter().map(|it| it.clone().into_owned()).collect();
                Answer::pending(async move {
                    Polls { left: polls, then: Some(()) }.await;
                    store.call(Request::Acquire(&charges), None).await
                })
            }
            other => store.call(other, None),
        }
    }
}

struct Polls<T> {
    left: u32,
    then: Option<T>,
}

impl<T: Unpin> Future for Polls<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        if self.left == 0 {
            return Poll::Ready(self.then.take().expect("polled once when ready"));
        }
        self.left -= 1;
        Poll::Pending
    }
}

/// Polls so often, then drops.
fn drop_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(output);
        }
    }
    None
}

#[test]
fn futures_dropped_at_every_await_admit_no_more() {
    const POLLS: u32 = 4;
    for kind in each(7, 100) {
        for early in [false, true] {
            let clock = ManualClock::at(1_700_000_000_000_000);
            let store = Watched::new(MemoryConfig::default().clock(clock.clone()));
            let limiter = Limiter::new(Slow { store: store.clone(), polls: POLLS, early });
            let plain = Limiter::new(store);
            let first = policy("first", &format!("100/s {kind}"));
            let second = policy("second", "100/s");
            let left = |policy: &Policy| {
                let peek = now(plain.peek(policy.charge("alice", 0))).expect("an answer");
                peek.outcomes().next().expect("an outcome").standing().remaining
            };
            let both = || [first.charge("alice", 3), second.charge("alice", 2)];
            let mut admitted = 0;
            // A task that waits for its turn yields once more than its check does.
            for polls in 0..=POLLS + 2 {
                let before = (left(&first), left(&second));
                let decision = drop_after(polls, limiter.check(both()));
                let spent = (before.0 - left(&first), before.1 - left(&second));
                // All or nothing, also for a check that was dropped.
                assert!(spent == (0, 0) || spent == (3, 2), "{spent:?}");
                let allowed = decision.is_some_and(|it| it.expect("an answer").is_allowed());
                assert!(!allowed || spent == (3, 2));
                admitted += u64::from(allowed) * 3;
                let waiting = limiter.until_ready(both(), Duration::from_secs(1));
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let _inside = runtime.as_ref().expect("a runtime").enter();
                if drop_after(polls, waiting).is_some_and(|it| it.expect("an answer").is_allowed())
                {
                    admitted += 3;
                }
            }
            assert!(admitted <= 100 - left(&first));
            assert!(admitted >= 6);
        }
    }
}

/// A refund is applied at most once, at whichever `await` its future is dropped.
#[test]
fn refunds_dropped_at_every_await_are_applied_once() {
    const POLLS: u32 = 3;
    for kind in each(7, 10) {
        let clock = ManualClock::at(1_700_000_000_000_000);
        let store = Watched::new(MemoryConfig::default().clock(clock.clone()));
        let slow = Limiter::new(Slow { store: store.clone(), polls: POLLS, early: true });
        let plain = Limiter::new(store);
        let policy = policy("p", &format!("10/s {kind}"));
        for polls in 0..=POLLS + 1 {
            now(plain.reset(policy.charge("alice", 0))).expect("an answer");
            assert!(now(plain.check(policy.charge("alice", 4))).expect("an answer").is_allowed());
            let Decision::Allowed(held) = now(plain.check(policy.charge("alice", 5))).expect("one")
            else {
                panic!("6 are free")
            };
            let _ = drop_after(polls, slow.hold(held.into_receipt()).refund());
            let peek = now(plain.peek(policy.charge("alice", 0))).expect("an answer");
            let left = peek.outcomes().next().expect("an outcome").standing().remaining;
            assert_eq!(left, if polls == 0 { 1 } else { 6 }, "{kind}");
        }
    }
}

/// Reserving, refunding, settling and dropping from many threads: what stands is what was kept.
#[test]
fn reservations_from_many_threads() {
    for kind in each(7, 100_000) {
        let fixture = now(memory());
        fixture.set(1_700_000_000_000_000);
        let policy = policy("shared", &format!("100000/s {kind}"));
        let kept: u64 = on_threads(|thread| {
            let mut kept = 0;
            for turn in 0..200 {
                let reserve = now(fixture.limiter.reserve(policy.charge("alice", 5)));
                let Reserved::Held(slot) = reserve.expect("an answer") else { panic!("enough") };
                match (turn + thread) % 4 {
                    0 => assert_eq!(now(slot.refund()).expect("an answer"), 5),
                    1 => {
                        now(slot.settle(2)).expect("an answer");
                        kept += 2;
                    }
                    2 => {
                        now(slot.settle(9)).expect("an answer");
                        kept += 9;
                    }
                    _ => {
                        drop(slot);
                        kept += 5;
                    }
                }
            }
            kept
        })
        .iter()
        .sum();
        let peek = now(fixture.limiter.peek(policy.charge("alice", 0))).expect("an answer");
        assert_eq!(
            100_000 - peek.outcomes().next().expect("an outcome").standing().remaining,
            kept,
            "{kind}"
        );
    }
}

/// A reply with too few lines admits nothing.
#[test]
fn a_store_that_answers_wrongly_admits_nothing() {
    #[derive(Debug)]
    struct Mute;
    impl Store for Mute {
        fn call(&self, _: Request<'_>, _: Option<std::time::Instant>) -> Answer {
            let source = plimsoll::store::Source::Local;
            let time = plimsoll::clock::Timestamp::default();
            Answer::ready(Ok(StoreReply::new(time, source, [])))
        }
    }
    let policy = policy("p", "10/s");
    let limiter = Limiter::new(Mute);
    let error = now(limiter.check(policy.charge("alice", 1))).expect_err("no line");
    assert!(error.is_unavailable());
}
