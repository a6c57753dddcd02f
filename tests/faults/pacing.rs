//! Tasks that wait for a turn, and a paced client, while Redis fails.

use std::{
    convert::Infallible,
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use http::{Request, Response};
use plimsoll::{
    Limiter, OnFailure, RedisStore, Resilience, Rule, by, error::ErrorKind, store::BreakerStatus,
};
use plimsoll_pace::{PaceError, PaceLayer};
use plimsoll_testing::{
    calm::on_a_calm_machine, fault_row::FaultRow, micros, most_in_any_window, policy,
    servers::Server,
};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};

use crate::{server::INSTANCES, whole_machine};

const TASKS: u64 = 8;
/// Units a second, one at a time. A turn comes each 20 ms.
const RATE: u64 = 50;
/// Longer than 8 turns at the rate of the fallback, which is half of it.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// The deadline of a check, and what timers add.
const DEADLINE: Duration = Duration::from_millis(60);
/// The longest time without a turn: a turn of the fallback, a deadline, and the delay of timers.
const MAX_GAP: Duration = Duration::from_millis(200);
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
enum Caller {
    /// `until_ready`, with a fallback that decides during the outage.
    UntilReady,
    PaceLayer,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Stopped,
    Killed,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "SIGSTOP, SIGCONT",
            Self::Killed => "kill -9, restart without data",
        }
    }
}

struct Turn {
    began: Instant,
    ended: Instant,
    admitted: bool,
}

impl Caller {
    fn name(self) -> &'static str {
        match self {
            Self::UntilReady => "until_ready",
            Self::PaceLayer => "PaceLayer",
        }
    }

    /// Waits for a turn, and returns whether it came.
    async fn turn(self, limiter: &Limiter, policy: &plimsoll::Policy) -> bool {
        match self {
            Self::UntilReady => {
                let charge = policy.charge("upstream", 1).with_on_failure(OnFailure::Local);
                match limiter.until_ready(charge, MAX_WAIT).await {
                    Ok(decision) => decision.is_allowed(),
                    Err(error) if error.kind() == ErrorKind::Deadline => false,
                    Err(error) => panic!("{error}"),
                }
            }
            Self::PaceLayer => {
                let rule = Rule::new(policy.clone(), by::constant("upstream"))
                    .on_failure(OnFailure::Local);
                let client = service_fn(|_: Request<String>| async {
                    Ok::<_, Infallible>(Response::new(String::new()))
                });
                let client = PaceLayer::new(limiter.clone(), rule).wait(MAX_WAIT).layer(client);
                match client.oneshot(Request::new(String::new())).await {
                    Ok(_) => true,
                    Err(PaceError::Denied { .. }) => false,
                    Err(PaceError::Limiter(error)) if error.kind() == ErrorKind::Deadline => false,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Processor time of this process, in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().expect("a name").split_whitespace().skip(11).take(2);
    fields.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

fn signal(server: &Server, signal: &str) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
}

async fn paced(caller: Caller, fault: Fault) {
    let _whole = whole_machine().await;
    on_a_calm_machine(async || {
        let mut redis = Server::start();
        let store = RedisStore::connect(&redis.url()).await.expect("a store");
        let limiter = Limiter::with_resilience(store, Resilience::default().instances(INSTANCES));
        let policy = policy("upstream", &format!("{RATE}/s token-bucket(1)"));
        let stop = Arc::new(AtomicBool::new(false));
        let task = |_| {
            let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut turns = Vec::new();
                while !stop.load(SeqCst) {
                    let began = Instant::now();
                    let turn = timeout(Duration::from_secs(10), caller.turn(&limiter, &policy));
                    let admitted = turn.await.expect("no wakeup is lost");
                    turns.push(Turn { began, ended: Instant::now(), admitted });
                    if !admitted {
                        sleep(Duration::from_millis(10)).await;
                    }
                }
                turns
            })
        };
        let start = Instant::now();
        let tasks: Vec<_> = (0..TASKS).map(task).collect();
        sleep(Duration::from_millis(500)).await;
        let (before, began) = (ticks(), Instant::now());
        match fault {
            Fault::Stopped => signal(&redis, "-STOP"),
            Fault::Killed => redis.kill(),
        }
        sleep(Duration::from_secs(1)).await;
        let busy = Duration::from_millis(10 * (ticks() - before)).as_secs_f64()
            / began.elapsed().as_secs_f64();
        match fault {
            Fault::Stopped => signal(&redis, "-CONT"),
            Fault::Killed => redis.run(),
        }
        sleep(Duration::from_millis(2_500)).await;
        let breaker = limiter.status().breaker;
        stop.store(true, SeqCst);
        let mut turns = Vec::new();
        for task in tasks {
            turns.extend(task.await.expect("no panic"));
        }
        turns.sort_by_key(|turn| turn.ended);

        let admitted: Vec<_> = turns.iter().filter(|turn| turn.admitted).collect();
        let at = |turn: &Turn| micros(turn.ended - start);
        let spent: Vec<_> = admitted.iter().map(|turn| (at(turn) + 1, 1)).collect();
        let most = most_in_any_window(&spent, micros(WINDOW)) as u64;
        // Redis admits the burst and the rate, and the fallback its share of both. Redis begins
        // anew after it was killed. Each task may report its turn late.
        let lives = match fault {
            Fault::Stopped => 1,
            Fault::Killed => 2,
        };
        let bound = lives * (RATE + 1) + RATE / u64::from(INSTANCES) + 1 + TASKS;
        let gap = admitted.windows(2).map(|pair| pair[1].ended - pair[0].ended).max();
        let gap = gap.expect("some turns");
        let waits = turns.iter().map(|turn| turn.ended - turn.began);
        let late: Vec<_> = waits.map(|wait| wait.saturating_sub(MAX_WAIT)).collect();
        let last = turns.last().expect("some").ended - Duration::from_secs(1);
        let steady = admitted.iter().filter(|turn| turn.ended > last).count() as u64;
        let refused = turns.len() - admitted.len();
        let worst = late.iter().max().copied().unwrap_or_default();
        eprintln!(
            "measured: {caller:?}, {fault:?}: {} turns, {refused} refused, {worst:?} beyond the \
             maximum wait, {most} of {bound} units in a second, longest gap {gap:?}, {steady} in \
             the last second, {:.0}% of a processor during the fault",
            turns.len(),
            100.0 * busy
        );
        assert!(most <= bound, "{most} units in a second");
        assert!(busy < 0.5, "a busy loop: {busy:.2}");
        if worst > DEADLINE {
            return Err(format!("{worst:?} beyond the maximum wait"));
        }
        if gap > MAX_GAP {
            return Err(format!("no turn for {gap:?}"));
        }
        if steady < RATE * 8 / 10 || !matches!(breaker, Some(BreakerStatus::Closed)) {
            return Err(format!("{steady} turns in the last second, {breaker:?}"));
        }
        FaultRow {
            fault: format!("{}, wait beyond its maximum: {}", caller.name(), fault.name()),
            waits: late,
            control: Vec::new(),
            errors: 0,
            admitted: most,
            bound,
            recovery: None,
        }
        .print();
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_ready_while_redis_is_stopped() {
    paced(Caller::UntilReady, Fault::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn until_ready_while_redis_is_killed() {
    paced(Caller::UntilReady, Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paced_client_while_redis_is_stopped() {
    paced(Caller::PaceLayer, Fault::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paced_client_while_redis_is_killed() {
    paced(Caller::PaceLayer, Fault::Killed).await;
}
