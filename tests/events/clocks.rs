//! A server whose clock is off is reported.
#![cfg(all(feature = "tracing", feature = "metrics", feature = "redis"))]

use std::{fs, path::PathBuf, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use plimsoll::{
    Limiter, RedisStore,
    clock::{Clock, SystemClock},
};
use plimsoll_testing::{
    alone,
    log::Log,
    policy,
    servers::{Server, directory, run},
};
use tokio::time::{Instant, sleep};

/// A server with a clock of its own: a library is preloaded into it.
struct OtherClock {
    server: Server,
    offset: PathBuf,
    directory: PathBuf,
}

impl OtherClock {
    fn start() -> Self {
        let directory = directory();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/clock.c");
        run(&directory, "cc", &["-shared", "-fPIC", "-o", "clock.so", source]);
        let offset = directory.join("offset");
        let environment = [
            format!("LD_PRELOAD={}/clock.so", directory.display()),
            format!("PLIMSOLL_TEST_CLOCK={}", offset.display()),
        ];
        let server = Server::start_in(&environment, &[]);
        Self { server, offset, directory }
    }

    /// Sets the clock ahead. From now on, it gains so many microseconds in a second.
    fn set(&self, ahead: Duration, ppm: i64) {
        let now = SystemClock::new().now().as_micros();
        // Renamed, so that the server never finds it empty.
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{} {ppm} {now}", ahead.as_micros())).expect("written");
        fs::rename(new, &self.offset).expect("renamed");
    }
}

impl Drop for OtherClock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

async fn limiter(server: &Server) -> Limiter {
    Limiter::new(RedisStore::connect(&server.url()).await.expect("a store"))
}

fn install() -> (Log, Snapshotter) {
    let (log, recorder) = (Log::of(|target| target == "plimsoll"), DebuggingRecorder::new());
    let snapshotter = recorder.snapshotter();
    tracing::subscriber::set_global_default(log.clone()).expect("the first subscriber");
    recorder.install().expect("the first recorder");
    (log, snapshotter)
}

/// Takes the events about clocks.
fn events(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|event| event.contains("clocks")).collect()
}

fn gauge(snapshotter: &Snapshotter, name: &str) -> f64 {
    let snapshot = snapshotter.snapshot().into_vec();
    match snapshot.into_iter().find(|(key, ..)| key.key().name() == name) {
        Some((.., DebugValue::Gauge(value))) => *value,
        other => panic!("{name}: {other:?}"),
    }
}

/// One server is an hour ahead, and the other one has the clock of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off_is_reported_once_an_hour() {
    if !alone("clocks::a_clock_that_is_off_is_reported_once_an_hour") {
        return;
    }
    let (log, snapshotter) = install();
    let ahead = OtherClock::start();
    ahead.set(Duration::from_secs(3_600), 0);
    for (server, is_off) in [(&Server::start(), false), (&ahead.server, true)] {
        let limiter = limiter(server).await;
        sleep(Duration::from_secs(7)).await;
        assert_eq!(limiter.status().instances, Some(1));
        let events = events(&log);
        assert_eq!(events.len(), usize::from(is_off), "{events:?}");
        assert!(events.iter().all(|event| event.contains("offset_seconds=3")), "{events:?}");
        let seconds = gauge(&snapshotter, "plimsoll_clock_offset_seconds");
        let expected = if is_off { 3_600.0 } else { 0.0 };
        assert!((seconds - expected).abs() < 2.0, "{seconds}");
    }
}

/// The clock of a server gains 0.9 ms in a second, which is less than leases allow. Beside it is a server with the clock
/// of the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_does_not_lease_while_the_clock_of_the_server_drifts() {
    if !alone("clocks::a_process_does_not_lease_while_the_clock_of_the_server_drifts") {
        return;
    }
    let (log, snapshotter) = install();
    let (fast, plain) = (OtherClock::start(), Server::start());
    fast.set(Duration::ZERO, 900);
    let limiters = [limiter(&fast.server).await, limiter(&plain).await];
    let policy = policy("busy", "1000000/10s leased(1s)");
    let start = Instant::now();
    let [mut has_leased, mut leases] = [[false; 2]; 2];
    // Three spans of 20 s, and a few more on a busy machine.
    while start.elapsed() < Duration::from_secs(140) && (leases[0] || !has_leased[0]) {
        for _ in 0..20 {
            for limiter in &limiters {
                let check = limiter.check(policy.charge("alice", 1)).await;
                assert!(check.expect("an answer").is_allowed());
            }
            sleep(Duration::from_millis(5)).await;
        }
        leases = limiters.each_ref().map(|limiter| limiter.status().leased_units > 0);
        has_leased = [has_leased[0] || leases[0], has_leased[1] || leases[1]];
        let is_known = limiters[0].status().clock_drift_ppm != 0;
        assert!(leases[0] || is_known || start.elapsed() < Duration::from_secs(5), "too early");
    }
    assert_eq!((has_leased, leases), ([true, true], [false, true]), "{:?}", start.elapsed());
    let drifts = limiters.each_ref().map(|limiter| limiter.status().clock_drift_ppm);
    assert!((501..=901).contains(&drifts[0]) && drifts[1] == 0, "{drifts:?}");
    let events = events(&log);
    assert!(events.len() == 1 && events[0].contains("drift_ppm="), "{events:?}");
    assert!(events[0].contains("leases=false"), "{events:?}");

    let [limiter, other] = limiters;
    drop(other);
    sleep(Duration::from_secs(3)).await;
    let shown = gauge(&snapshotter, "plimsoll_clock_drift_ppm");
    assert_eq!(shown, limiter.status().clock_drift_ppm as f64);
}
