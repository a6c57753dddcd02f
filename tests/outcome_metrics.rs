//! Counters and histograms through the `metrics` facade.
#![cfg(feature = "metrics")]

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tollgate::{
    Error, ErrorKind, Limiter, Policy,
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
            let trial = Policy::new("trial", "1/min".parse().unwrap()).unwrap();
            for _ in 0..3 {
                let charges = [policy.charge("a", 1), trial.charge("a", 1).shadow()];
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
            "tollgate_decisions_total trial would_allow 1",
            "tollgate_decisions_total trial would_deny 2",
            "tollgate_store_seconds 1",
        ]
    );
}
