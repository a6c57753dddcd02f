//! Quotas of single keys: how many, for how long, and what a charge sees of them.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use http::{Request, Response};
use plimsoll::{
    Key, Limiter, Policy, Quota, RateLimitLayer, Rule, by, error::ErrorKind, limiter::Reserved,
};
use plimsoll_testing::{contract::key_quotas::far, policy, seed};
use tower::{Layer, ServiceExt, service_fn};

#[expect(clippy::disallowed_methods, reason = "the quota of a key ends by wall time")]
fn after(duration: Duration) -> SystemTime {
    SystemTime::now() + duration
}

fn limit_of(policy: &Policy, key: impl Into<Key>) -> u64 {
    policy.charge(key, 1).quota().limit()
}

#[test]
fn it_ends_by_itself() {
    let policy = policy("api", "1/min");
    policy.set_key_quota("acme", Quota::per_minute(2), after(Duration::from_millis(500))).unwrap();
    policy.set_key_quota("past", Quota::per_minute(2), after(Duration::ZERO)).unwrap();
    assert_eq!((limit_of(&policy, "acme"), limit_of(&policy, "past")), (2, 1));
    thread::sleep(Duration::from_millis(510));
    assert_eq!(limit_of(&policy, "acme"), 1);
    assert_eq!(policy.key_quotas(), []);
    assert!(!policy.remove_key_quota("acme"), "it has ended");
    // A time in the past ends one that is in force.
    policy.set_key_quota("acme", Quota::per_minute(2), far()).unwrap();
    policy.set_key_quota("acme", Quota::per_minute(3), SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(limit_of(&policy, "acme"), 1);
}

#[test]
fn clones_share_them_and_a_policy_with_a_unit_has_a_copy() {
    let policy = policy("api", "1/min");
    let clone = policy.clone();
    clone.set_key_quota("acme", Quota::per_minute(2), far()).unwrap();
    assert_eq!(limit_of(&policy, "acme"), 2);
    let with_unit = policy.clone().with_unit("bytes").unwrap();
    policy.remove_key_quota("acme");
    assert_eq!((limit_of(&clone, "acme"), limit_of(&with_unit, "acme")), (1, 2));
}

#[test]
fn a_policy_has_at_most_10_000() {
    let policy = policy("api", "1/min");
    let set = |key: u64, until| policy.set_key_quota(key, Quota::per_minute(1 + key), until);
    (3..10_000).for_each(|key| set(key, far()).unwrap());
    // Later than the assertions before its end, also on a machine that stands still.
    let soon = after(Duration::from_secs(3));
    (0..3).for_each(|key| set(key, soon).unwrap());
    let error = set(10_000, far()).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Invalid && error.to_string().contains("at most 10000"),
        "{error}"
    );
    set(9_999, far()).expect("it has one");
    assert_eq!(policy.key_quotas().len(), 10_000);
    for key in 3..10_000_u64 {
        assert_eq!(limit_of(&policy, key), 1 + key);
    }
    thread::sleep(soon.duration_since(after(Duration::ZERO)).unwrap_or_default());
    // Those that have ended make room.
    (10_000..10_003).for_each(|key| set(key, far()).unwrap());
    assert!(set(10_003, far()).is_err());
    assert!(policy.remove_key_quota(3_u64));
    set(10_003, far()).unwrap();
    assert_eq!(limit_of(&policy, 10_003_u64), 10_004);
}

/// Any sequence of calls comes to the same as on a map.
#[test]
fn they_are_a_map() {
    for one in seed::histories("quotas of keys", 20) {
        let mut random = one.seed;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let (policy, mut model) = (policy("api", "1/min"), HashMap::new());
        let keys = [5, 60, 900, 12_000][next(4) as usize];
        for _ in 0..4_000 {
            let (key, limit) = (next(keys), 2 + next(100));
            match next(5) {
                0..3 if model.len() < 10_000 => {
                    policy.set_key_quota(key, Quota::per_minute(limit), far()).unwrap();
                    model.insert(key, limit);
                }
                0..4 => {
                    let removed = policy.remove_key_quota(key);
                    assert_eq!(removed, model.remove(&key).is_some());
                }
                _ => assert_eq!(limit_of(&policy, key), *model.get(&key).unwrap_or(&1)),
            }
        }
        (0..keys)
            .for_each(|key| assert_eq!(limit_of(&policy, key), *model.get(&key).unwrap_or(&1)));
        let listed: HashMap<Key, u64> =
            policy.key_quotas().iter().map(|it| (it.key, it.quota.limit())).collect();
        assert_eq!(listed, model.iter().map(|(key, limit)| (Key::from(*key), *limit)).collect());
        assert!(policy.key_quotas().is_sorted_by(|one, other| one.key < other.key));
    }
}

/// Threads that read a quota see an old or a new one, never a part of each, while the table grows.
#[test]
fn a_reader_sees_whole_quotas() {
    let policy = policy("api", "7/7s");
    let quotas = ["11/11s", "13/13s"].map(|text| text.parse::<Quota>().unwrap());
    let stop = AtomicBool::new(false);
    policy.set_key_quota("acme", quotas[0], far()).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seen = *policy.charge("acme", 1).quota();
                    assert!(quotas.contains(&seen), "{seen:?}");
                    assert_eq!(limit_of(&policy, "alice"), 7);
                }
            });
        }
        for key in 0..4_000_u64 {
            policy.set_key_quota("acme", quotas[key as usize % 2], far()).unwrap();
            policy.set_key_quota(key, quotas[0], far()).unwrap();
            if key >= 400 {
                policy.remove_key_quota(key - 400);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nothing_prints_a_key() {
    let policy = policy("api", "1/min");
    policy.set_key_quota("secret-token", Quota::per_minute(2), far()).unwrap();
    let charge = policy.charge("secret-token", 1);
    let shown = format!("{policy:?} {charge:?} {:?}", policy.key_quotas());
    assert!(!shown.contains("secret"), "{shown}");
    assert!(shown.contains("Key(#"), "{shown}");
}

#[tokio::test]
async fn it_wins_over_the_quota_of_a_rule() {
    let policy = policy("api", "1/min");
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let rule = Rule::new(policy.clone(), by::header("x-api-key"))
        .quota(|_: &http::request::Parts| Quota::per_minute(20));
    let layer = RateLimitLayer::new(Limiter::in_memory(), rule).on_decision({
        let seen = seen.clone();
        move |decision, _| {
            seen.lock().unwrap().push(decision.outcomes().next().unwrap().charge().quota().limit())
        }
    });
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let call = async || {
        let request = Request::builder().header("x-api-key", "acme").body(String::new()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    };
    call().await;
    policy.set_key_quota("acme", Quota::per_minute(300), far()).unwrap();
    call().await;
    policy.remove_key_quota("acme");
    call().await;
    assert_eq!(*seen.lock().unwrap(), [20, 300, 20]);
}

/// The policy has a rate. One key has a concurrency limit instead, until it is removed.
#[tokio::test]
async fn a_key_quota_can_be_a_concurrency_limit() {
    let (limiter, api) = (Limiter::in_memory(), policy("api", "100/min"));
    let hold = async |key: &'static str| match limiter.reserve(api.charge(key, 1)).await {
        Ok(Reserved::Held(held)) => Some(held),
        Ok(Reserved::Denied(_)) => None,
        Err(error) => panic!("{error}"),
    };
    api.set_key_quota("acme", Quota::concurrent(2), far()).unwrap();
    let (first, second) = (hold("acme").await, hold("acme").await);
    assert!(first.is_some() && second.is_some() && hold("acme").await.is_none());
    for _ in 0..10 {
        drop(hold("other").await.expect("within the rate"));
    }
    let peek = limiter.peek(api.charge("other", 0)).await.unwrap();
    assert_eq!(peek.binding().unwrap().standing().remaining, 90, "no unit of a rate comes back");
    api.set_key_quota("acme", Quota::concurrent(3), far()).unwrap();
    let third = hold("acme").await;
    assert!(third.is_some() && hold("acme").await.is_none());
    drop(first);
    assert!(hold("acme").await.is_some());
    assert!(api.remove_key_quota("acme"));
    drop((second, third));
    let peek = limiter.peek(api.charge("acme", 0)).await.unwrap();
    assert_eq!(peek.binding().unwrap().standing().remaining, 100, "all are released");
}
