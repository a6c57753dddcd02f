//! Counters and histograms through the `metrics` facade.
#![cfg(feature = "metrics")]

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tollgate::{
    Error, ErrorKind, Limiter, OnFailure, Policy, Reserve,
    store::{Answer, Request, Resilience, Store},
};

#[derive(Debug)]
struct Slow;

impl Store for Slow {
    fn call(&self, _: Request<'_>) -> Answer {
        Answer::pending(async { Err(Error::new(ErrorKind::Unavailable, "down")) })
    }
}

#[test]
fn decisions_by_policy_and_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let limiter = Limiter::in_memory();
            let policy = Policy::new("calls", "2/min".parse().unwrap()).unwrap();
            let shadow = Policy::new("shadow", "1/min".parse().unwrap()).unwrap();
            for _ in 0..3 {
                let charges = [policy.charge("a", 1), shadow.charge("a", 1).shadow()];
                let _ = limiter.check(charges).await.unwrap();
            }
            // Only a store that is not embedded is timed.
            let bare = Limiter::with(Slow, Resilience::none());
            bare.check(policy.charge("a", 1)).await.unwrap_err();
        });
    });
    let mut seen: Vec<String> = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        match value {
            DebugValue::Counter(count) => {
                seen.push(format!("{} {} {count}", key.key().name(), labels.join(" ")));
            }
            DebugValue::Histogram(values) => {
                seen.push(format!("{} {}", key.key().name(), values.len()));
            }
            DebugValue::Gauge(_) => {}
        }
    }
    seen.sort();
    assert_eq!(
        seen,
        [
            "tollgate_decisions_total calls allowed 2",
            "tollgate_decisions_total calls denied 1",
            "tollgate_decisions_total shadow would_allow 1",
            "tollgate_decisions_total shadow would_deny 2",
            "tollgate_store_errors_total unavailable 1",
            "tollgate_store_seconds 1",
        ]
    );
}

/// Whatever the store does not decide is counted: also what is refused, and what is settled.
#[test]
fn checks_that_fall_back_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let limiter = Limiter::with(Slow, Resilience::default().without_breaker());
            let policy = Policy::new("calls", "2/min".parse().unwrap()).unwrap();
            let closed = policy.charge("a", 1).with_on_failure(OnFailure::Deny);
            limiter.check(closed).await.unwrap_err();
            let Reserve::Held(held) = limiter.reserve(policy.charge("a", 1)).await.unwrap() else {
                panic!("it falls back");
            };
            held.settle(3).await.unwrap();
        });
    });
    let count = |name: &str| {
        let metrics = snapshotter.snapshot().into_vec();
        let found = metrics.into_iter().find(|(key, ..)| key.key().name() == name);
        found.map(|(_, _, _, value)| value)
    };
    assert_eq!(count("tollgate_fallback_total"), Some(DebugValue::Counter(3)));
}

/// A breaker that has never changed is closed, and says so; another one does not say so for it.
#[test]
fn the_state_of_a_breaker() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let state = || {
        let metrics = snapshotter.snapshot().into_vec();
        let value = |name: &str| {
            let found = metrics.iter().find(|(key, ..)| key.key().name() == name);
            found.map(|(.., value)| match value {
                DebugValue::Gauge(value) => value.0,
                other => panic!("{name} is {other:?}"),
            })
        };
        (value("tollgate_breaker_state"), value("tollgate_open_breakers"))
    };
    let gauges = |state: f64, open: f64| (Some(state), Some(open));
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let _ = Limiter::with(Slow, Resilience::default().without_breaker());
            assert_eq!(state(), (None, None));
            let limiter = Limiter::new(Slow);
            assert_eq!(state(), gauges(0.0, 0.0));
            let policy = Policy::new("calls", "100/min".parse().unwrap()).unwrap();
            for _ in 0..10 {
                let _ = limiter.check(policy.charge("a", 1)).await.unwrap();
            }
            let _ = Limiter::new(Slow);
            assert_eq!(state(), gauges(1.0, 1.0));
            assert_eq!(limiter.status().open_breakers, 1);
        });
        drop(runtime);
        // Each snapshot sets the gauges to 0, so this is what was taken away since.
        assert_eq!(state(), gauges(0.0, -1.0));
    });
}
