//! A server whose clock is off is reported.
#![cfg(all(feature = "tracing", feature = "metrics", feature = "redis"))]

use std::{fs, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use plimsoll::{Limiter, RedisStore};
use plimsoll_testing::{
    alone,
    log::Log,
    servers::{Server, directory, run},
};
use tokio::time::sleep;

/// One server is an hour ahead, by a library that is preloaded into it, and the other one has the clock of the machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off_is_reported_once_an_hour() {
    if !alone("clocks::a_clock_that_is_off_is_reported_once_an_hour") {
        return;
    }
    let (log, recorder) = (Log::of(|target| target == "plimsoll"), DebuggingRecorder::new());
    let snapshotter = recorder.snapshotter();
    tracing::subscriber::set_global_default(log.clone()).expect("the first subscriber");
    recorder.install().expect("the first recorder");
    let directory = directory();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis/clock.c");
    run(&directory, "cc", &["-shared", "-fPIC", "-o", "clock.so", source]);
    let offset = directory.join("offset");
    fs::write(&offset, Duration::from_secs(3_600).as_micros().to_string()).expect("written");
    let environment = [
        format!("LD_PRELOAD={}/clock.so", directory.display()),
        format!("PLIMSOLL_TEST_CLOCK={}", offset.display()),
    ];
    for (server, is_off) in [(Server::start(), false), (Server::start_in(&environment, &[]), true)]
    {
        let store = RedisStore::connect(&server.url()).await.expect("a store");
        let limiter = Limiter::new(store);
        sleep(Duration::from_secs(7)).await;
        assert_eq!(limiter.status().instances, Some(1));
        let events: Vec<_> =
            log.take().into_iter().filter(|event| event.contains("clocks")).collect();
        assert_eq!(events.len(), usize::from(is_off), "{events:?}");
        assert!(events.iter().all(|event| event.contains("offset_seconds=3")), "{events:?}");
        let snapshot = snapshotter.snapshot().into_vec();
        let gauge = snapshot
            .into_iter()
            .find(|(key, ..)| key.key().name() == "plimsoll_clock_offset_seconds");
        let Some((.., DebugValue::Gauge(seconds))) = gauge else { panic!("no gauge") };
        let expected = if is_off { 3_600.0 } else { 0.0 };
        assert!((*seconds - expected).abs() < 2.0, "{seconds}");
    }
    let _ = fs::remove_dir_all(directory);
}
