//! Counters and histograms through the `metrics` facade.
#![cfg(feature = "metrics")]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use plimsoll::{
    Error, Limiter, MemoryStore, OnFailure, Policy, RateLimitLayer, Resilience, Rule, by,
    error::{Effect, ErrorKind},
    limiter::Reserved,
    memory::MemoryConfig,
    rule::Tiers,
    store::{Answer, Request, Source, Store, Traits},
};
use tower::{Layer, ServiceExt, service_fn};

/// A store whose calls fail with this effect.
#[derive(Debug)]
struct Failing(Effect);

impl Store for Failing {
    fn call(&self, _: Request<'_>, _: Option<std::time::Instant>) -> Answer {
        let error = Error::new(ErrorKind::Unavailable, "down").with_effect(self.0);
        Answer::pending(async { Err(error) })
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
            let policy = Policy::new("calls", "2/min").unwrap();
            let shadow = Policy::new("shadow", "1/min").unwrap();
            for _ in 0..3 {
                let charges = [policy.charge("a", 1), shadow.charge("a", 1).shadow()];
                let _ = limiter.check(charges).await.unwrap();
            }
            // Only a store that is not embedded is timed, and only calls that it does not refuse.
            for effect in [Effect::None, Effect::Unknown] {
                let bare = Limiter::with_resilience(Failing(effect), Resilience::none());
                bare.check(policy.charge("a", 1)).await.unwrap_err();
            }
        });
    });
    assert_eq!(
        seen(&snapshotter),
        [
            "plimsoll_decisions_total calls allowed 2",
            "plimsoll_decisions_total calls denied 1",
            "plimsoll_decisions_total shadow would_allow 1",
            "plimsoll_decisions_total shadow would_deny 2",
            "plimsoll_store_errors_total unavailable 2",
            "plimsoll_store_seconds 1",
        ]
    );
}

#[test]
fn a_trial_is_compared_with_the_live_charges() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let limiter = Limiter::in_memory();
            let live = Policy::new("live", "1/min").unwrap();
            let trial = Policy::new("tried", "2/min").unwrap();
            for _ in 0..4 {
                let charges = [live.charge("a", 1), trial.charge("a", 1).trial()];
                let _ = limiter.check(charges).await.unwrap();
            }
            // Another key has a unit under the live limit, and none under that on trial.
            let charges = [live.charge("b", 1), trial.charge("b", 3).trial()];
            let _ = limiter.check(charges).await.unwrap();
        });
    });
    assert_eq!(
        seen(&snapshotter),
        [
            "plimsoll_decisions_total live allowed 2",
            "plimsoll_decisions_total live denied 3",
            "plimsoll_decisions_total tried would_allow 2",
            "plimsoll_decisions_total tried would_deny 3",
            "plimsoll_trials_total tried allowed allowed 1",
            "plimsoll_trials_total tried allowed denied 1",
            "plimsoll_trials_total tried denied allowed 1",
            "plimsoll_trials_total tried denied denied 2",
        ]
    );
}

/// Returns the counters that are not 0 and the histograms, each of which has a description.
fn seen(snapshotter: &Snapshotter) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for (key, unit, description, value) in snapshotter.snapshot().into_vec() {
        assert!(description.is_some() && unit.is_some(), "{key:?} is described");
        let labels: Vec<_> = key.key().labels().map(|label| label.value().to_owned()).collect();
        match value {
            DebugValue::Counter(0) => {}
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
    seen
}

/// A policy may be older than the recorder. Its layer starts the counters again, so that a policy that is
/// never used has series.
#[test]
fn a_layer_starts_the_counters_of_its_policies() {
    let names = ["first", "second", "tier", "rest"];
    let [first, second, tier, rest] = names.map(|name| Policy::new(name, "2/min").unwrap());
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let tiers = Tiers::new(rest).tier("tier", tier);
        let _ = RateLimitLayer::new(Limiter::in_memory(), Rule::new(first, by::anonymous()))
            .and(Rule::new(second, by::anonymous()))
            .and(tiers.rule(|_| None::<&str>, by::anonymous()));
    });
    let mut series = BTreeMap::new();
    for (key, .., value) in snapshotter.snapshot().into_vec() {
        if key.key().name() == "plimsoll_decisions_total" {
            assert_eq!(value, DebugValue::Counter(0));
            let policy = key.key().labels().find(|label| label.key() == "policy").unwrap();
            *series.entry(policy.value().to_owned()).or_insert(0) += 1;
        }
    }
    assert_eq!(series, BTreeMap::from(names.map(|name| (name.to_owned(), 5))));
}

/// Without it, no counter rises while every request gets status 500, or is not counted by a trial.
#[test]
fn charges_without_a_peer_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let statuses = metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let layer = RateLimitLayer::per_ip(Limiter::in_memory(), "2/min").unwrap();
            let mut statuses = Vec::new();
            for layer in [layer.clone(), layer.clone(), layer.shadow()] {
                let inner = service_fn(|_: http::Request<()>| async {
                    Ok::<_, Infallible>(http::Response::new(String::new()))
                });
                let request = http::Request::new(());
                let response = layer.layer(inner).oneshot(request).await.unwrap();
                statuses.push(response.status().as_u16());
            }
            statuses
        })
    });
    assert_eq!(statuses, [500, 500, 200]);
    assert_eq!(seen(&snapshotter), ["plimsoll_missing_peers_total  3"]);
}

/// Three requests that `free` denies are no denials of `overall`, which has not refused them.
#[test]
fn a_denial_counts_for_the_policies_that_refuse() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let policy = |name, quota: &str| Policy::new(name, quota).unwrap();
            let (free, overall) = (policy("free", "1/min"), policy("overall", "1000/s"));
            let (small, none) = (policy("small", "1/min"), policy("trial", "1/min"));
            let limiter = Limiter::in_memory();
            for _ in 0..4 {
                let charges = [free.charge("a", 1), overall.charge("all", 1)];
                let _ = limiter.check(charges).await.unwrap();
            }
            // A cost over capacity is a refusal too. Both policies refuse this check.
            let charges = [free.charge("a", 1), small.charge("a", 2), none.charge("a", 2).shadow()];
            let decision = limiter.check(charges).await.unwrap();
            let names: Vec<_> = decision.outcomes().map(|it| it.name()).collect();
            assert_eq!(names, ["denied", "denied", "would_deny"]);
        });
    });
    assert_eq!(
        seen(&snapshotter),
        [
            "plimsoll_decisions_total free allowed 1",
            "plimsoll_decisions_total free denied 4",
            "plimsoll_decisions_total overall allowed 1",
            "plimsoll_decisions_total overall not_charged 3",
            "plimsoll_decisions_total small denied 1",
            "plimsoll_decisions_total trial would_deny 1",
        ]
    );
}

/// Checks and settlements that this process decides are counted: not what only fails or reads.
#[test]
fn checks_that_fall_back_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let limiter = Limiter::with_resilience(
                Failing(Effect::None),
                Resilience::default().without_breaker(),
            );
            let policy = Policy::new("calls", "2/min").unwrap();
            let closed = policy.charge("a", 1).with_on_failure(OnFailure::Deny);
            limiter.check(closed).await.unwrap_err();
            let _ = limiter.peek(policy.charge("a", 1)).await.unwrap();
            let Reserved::Held(held) = limiter.reserve(policy.charge("a", 1)).await.unwrap() else {
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
    assert_eq!(count("plimsoll_fallback_total"), Some(DebugValue::Counter(2)));
}

/// A memory store that passes for a shared one, and can fail.
#[derive(Debug)]
struct Shared {
    memory: MemoryStore,
    is_down: AtomicBool,
}

impl Store for Shared {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        if self.is_down.load(Ordering::Relaxed) {
            return Answer::ready(Err(Error::new(ErrorKind::Unavailable, "down")));
        }
        let reply = self.memory.call(request, deadline).now().expect("ready");
        Answer::ready(reply.map(|mut reply| {
            reply.source = Source::Shared;
            reply
        }))
    }

    fn traits(&self) -> Traits {
        let mut traits = Traits::default();
        traits.counts_leases = true;
        traits
    }
}

#[test]
fn leases_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let memory = MemoryStore::new(MemoryConfig::default());
    let store = Arc::new(Shared { memory, is_down: AtomicBool::new(false) });
    let mut leased_checks = 0;
    let (granted, spent) = metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let limiter = Limiter::with_resilience(
                Arc::clone(&store),
                Resilience::default().without_breaker(),
            );
            let policy = |name, quota: &str| Policy::new(name, quota).unwrap();
            let (roomy, small) = (
                policy("roomy", "600000/h leased(1m)"),
                policy("small", "20/h fixed-window leased(1m)"),
            );
            for policy in [&roomy, &small] {
                for _ in 0..200 {
                    let decision = limiter.check(policy.charge("a", 1)).await.unwrap();
                    leased_checks += u64::from(decision.source() == Source::Leased);
                    tokio::task::yield_now().await;
                }
            }
            let before = limiter.status().leased_units;
            store.is_down.store(true, Ordering::Relaxed);
            for _ in 0..before + 50 {
                let decision = limiter.check(roomy.charge("a", 1)).await.unwrap();
                leased_checks += u64::from(decision.source() == Source::Leased);
                tokio::task::yield_now().await;
            }
            store.is_down.store(false, Ordering::Relaxed);
            let new = policy("new", "600000/h token-bucket(600000) leased(1m)");
            for _ in 0..100 {
                let decision = limiter.check(new.charge("a", 1)).await.unwrap();
                leased_checks += u64::from(decision.source() == Source::Leased);
                tokio::task::yield_now().await;
            }
            let held = limiter.status().leased_units;
            limiter.close().await.unwrap();
            (held, leased_checks)
        })
    });
    let mut counts = BTreeMap::new();
    for (key, .., value) in snapshotter.snapshot().into_vec() {
        if let DebugValue::Counter(count) = value {
            let labels = key.key().labels().map(|label| label.value());
            let name: Vec<_> = [key.key().name()].into_iter().chain(labels).collect();
            counts.insert(name.join(" "), count);
        }
    }
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert_eq!(count("plimsoll_leased_checks_total"), spent, "{counts:?}");
    assert!(spent > 300, "{spent}");
    assert_eq!(count("plimsoll_leased_units_total"), spent + granted, "{counts:?}");
    assert!(granted > 0);
    assert_eq!(count("plimsoll_lease_refunds_total"), granted, "{counts:?}");
    for result in ["granted", "denied", "lost"] {
        assert!(count(&format!("plimsoll_lease_renewals_total {result}")) > 0, "{counts:?}");
    }
}

/// A breaker that has never changed is not open, and says so; another one does not say so for it.
#[test]
fn the_number_of_open_breakers() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open = || {
        let metrics = snapshotter.snapshot().into_vec();
        let value = |name: &str| {
            let found = metrics.iter().find(|(key, ..)| key.key().name() == name);
            found.map(|(.., value)| match value {
                DebugValue::Gauge(value) => value.0,
                other => panic!("{name} is {other:?}"),
            })
        };
        value("plimsoll_open_breakers")
    };
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let _ = Limiter::with_resilience(
                Failing(Effect::None),
                Resilience::default().without_breaker(),
            );
            assert_eq!(open(), None);
            let limiter = Limiter::new(Failing(Effect::None));
            assert_eq!(open(), Some(0.0));
            let policy = Policy::new("calls", "100/min").unwrap();
            for _ in 0..10 {
                let _ = limiter.check(policy.charge("a", 1)).await.unwrap();
            }
            let _ = Limiter::new(Failing(Effect::None));
            assert_eq!(open(), Some(1.0));
            assert_eq!(limiter.status().open_breakers, 1);
        });
        drop(runtime);
        // Each snapshot sets the gauge to 0, so this is what was taken away since.
        assert_eq!(open(), Some(-1.0));
    });
}

/// A recorder that keeps the names of the metrics that are described.
#[derive(Default)]
struct Descriptions(Mutex<BTreeSet<String>>);

impl Descriptions {
    fn add(&self, name: &KeyName, description: &SharedString) {
        assert!(description.ends_with('.'), "{name:?} has a sentence");
        self.0.lock().unwrap().insert(name.as_str().to_owned());
    }
}

impl Recorder for Descriptions {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.add(&name, &description);
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.add(&name, &description);
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.add(&name, &description);
    }
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Returns the names of metrics between two `quote`s in a text.
fn names(text: &str, quote: char) -> Vec<String> {
    let is_name = |part: &&str| {
        part.starts_with("plimsoll_")
            && part.bytes().all(|it| it == b'_' || it.is_ascii_lowercase())
    };
    text.split(quote).filter(is_name).map(str::to_owned).collect()
}

/// Returns the code of all files, without comments.
fn code(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => code(&path, text),
            false => {
                let file = fs::read_to_string(&path).unwrap();
                let lines = file.lines().filter(|line| !line.trim_start().starts_with("//"));
                *text += &lines.collect::<Vec<_>>().join("\n");
            }
        }
    }
}

/// The limiter describes each metric that the code emits and that the docs list, and no other.
#[test]
fn every_metric_has_a_description() {
    let recorder = Descriptions::default();
    metrics::with_local_recorder(&recorder, || drop(Limiter::in_memory()));
    let described = recorder.0.into_inner().unwrap();

    let mut sources = String::new();
    code(Path::new("src"), &mut sources);
    let in_code = names(&sources, '"');
    let uses = |name: &str| in_code.iter().filter(|it| *it == name).count();
    for name in &described {
        assert!(uses(name) >= 2, "{name} is described, and emitted");
    }
    assert_eq!(BTreeSet::from_iter(in_code.iter().cloned()), described, "emitted and described");

    let docs =
        ["docs/operations.md", "docs/resilience.md"].map(|it| fs::read_to_string(it).unwrap());
    let listed = docs.iter().flat_map(|text| names(text, '`'));
    assert_eq!(BTreeSet::from_iter(listed), described, "listed in the docs and described");
}
