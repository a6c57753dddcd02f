//! The state in Redis, and its loss.

use std::{
    collections::BTreeSet,
    fmt,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use plimsoll::{Limiter, Policy, by::ClientIp};
use plimsoll_control::{
    AuditAction, AuditEntry, Fleet, KeyType, Offenders, Origin, OverrideError, OverrideKind,
    Overrides, OverridesConfig, Registry,
};
use plimsoll_testing::servers::Server;
use tokio::{
    sync::Barrier,
    task::JoinSet,
    time::{Instant, sleep},
};
use tracing::{
    Event, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
};

use crate::{Instance as Service, connect, instance, new, quota, reader, shown, stored};

#[tokio::test]
async fn the_second_of_two_operators_learns_of_the_first() {
    let server = Server::start();
    let (one, two) = (instance(&server.url()).await, instance(&server.url()).await);
    let first = one.overrides.set(new(None, quota("5/min"), None), Some(0)).await.expect("set");
    let error =
        two.overrides.set(new(None, quota("7/min"), None), Some(0)).await.expect_err("a conflict");
    let found = first.version;
    assert!(
        matches!(error, OverrideError::Conflict { expected: 0, found: it } if it == found),
        "{error:?}"
    );
    let next = new(None, quota("7/min"), None);
    let second = two.overrides.set(next, Some(found)).await.expect("set");
    assert_eq!(second.before, first.after);
    // The second instance has learnt what the first one had changed.
    let change = one.overrides.set(new(Some(1), quota("3/min"), None), None).await.expect("set");
    assert!(change.version > second.version);
    assert_eq!(one.policy.quota().limit(), 7);
    one.overrides.remove("api", None, None, "dora", "done").await.expect("removed");
    let again = two.overrides.remove("api", None, None, "dora", "done").await;
    assert!(matches!(again, Err(OverrideError::NotFound)), "{again:?}");
    let past = new(None, OverrideKind::Off, Some(Duration::ZERO));
    let error = one.overrides.set(past, None).await.expect_err("it would end at once");
    assert!(error.to_string().starts_with("until is a time in the past"), "{error}");
}

#[tokio::test]
async fn the_audit_log_is_bounded_and_shows_no_keys() {
    let server = Server::start();
    let one = instance(&server.url()).await;
    one.overrides.set(new(Some(424_242), quota("5/min"), None), None).await.expect("set");
    one.overrides.set(new(Some(424_242), OverrideKind::Block, None), None).await.expect("set");
    let mut reset = AuditEntry::new(AuditAction::Reset, "api", "dora", "a test");
    (reset.key, reset.before) = (Some("424242".into()), Some("1 unit spent".into()));
    one.overrides.record(reset.clone()).await.expect("written");
    one.overrides.remove("api", Some("424242"), None, "dora", "done").await.expect("removed");
    let audit = one.overrides.audit(10).await.expect("an answer");
    let lines: Vec<_> = audit
        .iter()
        .map(|it| {
            (it.action, it.before.as_deref().unwrap_or(""), it.after.as_deref().unwrap_or(""))
        })
        .collect();
    assert_eq!(
        lines,
        [
            (AuditAction::Remove, "block", ""),
            (AuditAction::Reset, "1 unit spent", ""),
            (AuditAction::Set, "5/min", "block"),
            (AuditAction::Set, "", "5/min"),
        ]
    );
    let key = audit[0].key.clone().expect("a key");
    assert!(audit.iter().all(|it| it.key.as_ref() == Some(&key)) && key.starts_with('#'));
    let raw: redis::Value = server.ask("XRANGE plim:{overrides}:audit - +");
    assert!(!format!("{raw:?}").contains("424242"), "{raw:?}");

    for _ in 0..Overrides::MAX_AUDIT + 500 {
        one.overrides.record(reset.clone()).await.expect("written");
    }
    let length: usize = server.ask("XLEN plim:{overrides}:audit");
    assert!((Overrides::MAX_AUDIT..Overrides::MAX_AUDIT + 200).contains(&length), "{length}");
    server.assert_all_keys_expire();
}

/// A reload of the configuration of one instance, after which a policy is gone there.
#[tokio::test]
async fn a_block_stays_when_one_instance_loses_its_policy() {
    let server = Server::start();
    let (one, two) = (instance(&server.url()).await, instance(&server.url()).await);
    one.overrides.set(new(Some(7), OverrideKind::Block, None), None).await.expect("set");
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    let start = Instant::now();
    while two.policy.quota().limit() != 5 {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    two.registry.remove("api");
    while two.policy.quota().limit() != 1 {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    // The other instance has ended what is its own, and follows the overrides twice more.
    let is_allowed = async || {
        let peeked = one.limiter.peek(one.policy.charge(7, 1)).await;
        peeked.expect("an answer").is_allowed()
    };
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_200) {
        assert!(!is_allowed().await);
        sleep(Duration::from_millis(50)).await;
    }
    one.overrides.remove("api", Some("7"), None, "dora", "done").await.expect("removed");
    assert!(is_allowed().await);
}

/// Waits until an instance has seen a loss, and compares the overrides that it names.
async fn until_lost(instance: &Service, lost: &[&str]) {
    let start = Instant::now();
    while instance.overrides.status().losses == 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", instance.overrides.status());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(instance.overrides.status().losses, 1);
    assert_eq!(shown(instance.overrides.clone().show_keys().status().lost), lost);
}

/// Redis is flushed, or starts empty. The overrides end, and the instances name what was lost.
#[tokio::test]
async fn what_redis_has_lost_is_named_and_ends_until_it_is_set_again() {
    let server = Server::start();
    let one = instance(&server.url()).await;
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    one.overrides.set(new(Some(1), quota("6/min"), None), None).await.expect("set");
    one.overrides.set(new(Some(2), OverrideKind::Block, None), None).await.expect("set");
    let ended = one.overrides.set(new(Some(3), quota("7/min"), None), None).await.expect("set");
    one.overrides.remove("api", Some("3"), None, "dora", "done").await.expect("removed");
    let two = instance(&server.url()).await;
    server.ask::<()>("FLUSHALL");
    for instance in [&one, &two] {
        until_lost(instance, &["all=5/min", "1=6/min", "2=block"]).await;
        assert!(instance.overrides.list().is_empty());
        let start = Instant::now();
        while instance.policy.charge(1, 1).quota().limit() != 1 {
            assert!(start.elapsed() < Duration::from_secs(30));
            sleep(Duration::from_millis(10)).await;
        }
    }
    // No key is shown unless the handle shows keys.
    assert!(
        one.overrides.status().lost.iter().flat_map(|it| &it.key).all(|it| it.starts_with('#'))
    );
    // It is set again as the first one, and is not named any more. The versions grow.
    let again = two.overrides.set(new(Some(1), quota("6/min"), None), Some(0)).await.expect("set");
    assert!(again.version > ended.version && again.before.is_none(), "{again:?}");
    let start = Instant::now();
    while one.overrides.status().lost.len() > 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", one.overrides.status());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stored(&server).await, ["1=6/min"]);
    assert_eq!((one.overrides.status().losses, two.overrides.status().losses), (1, 1));
}

/// An operator changes an emptied Redis before an instance looks again.
#[tokio::test]
async fn a_loss_is_seen_although_an_operator_was_faster() {
    let server = Server::start();
    let (one, other) = (instance(&server.url()).await, instance(&server.url()).await);
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    one.overrides.set(new(Some(1), quota("6/min"), None), None).await.expect("set");
    let start = Instant::now();
    while other.policy.charge(1, 1).quota().limit() != 6 {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    just_polled(&one).await;
    server.ask::<()>("FLUSHALL");
    // This one is the instance that the operator asks.
    other.overrides.set(new(Some(1), quota("8/min"), None), None).await.expect("set");
    for instance in [&one, &other] {
        until_lost(instance, &["all=5/min"]).await;
    }
    assert_eq!(stored(&server).await, ["1=8/min"]);
}

/// A primary that had not copied its last changes before it failed over, or a snapshot from before.
#[tokio::test]
async fn changes_that_an_older_copy_of_the_data_lacks_are_named() {
    let server = Server::start();
    let (one, other) = (instance(&server.url()).await, instance(&server.url()).await);
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    one.overrides.set(new(Some(1), quota("6/min"), None), None).await.expect("set");
    server.ask::<()>("COPY plim:{overrides}:entries {overrides}");
    one.overrides.set(new(Some(2), quota("7/min"), None), None).await.expect("set");
    one.overrides.set(new(None, quota("8/min"), None), None).await.expect("set");
    one.overrides.remove("api", Some("1"), None, "dora", "done").await.expect("removed");
    let start = Instant::now();
    while other.overrides.list().len() != 2 || other.policy.quota().limit() != 8 {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", other.overrides.list());
        sleep(Duration::from_millis(10)).await;
    }
    server.ask::<()>("COPY {overrides} plim:{overrides}:entries REPLACE");
    // The change of this one is in the place of what it has lost.
    one.overrides.set(new(Some(3), quota("9/min"), None), None).await.expect("set");
    until_lost(&one, &["all=8/min", "2=7/min"]).await;
    // The removed overrides are in force again, as the page says.
    assert_eq!(stored(&server).await, ["all=5/min", "1=6/min", "3=9/min"]);
    assert_eq!(one.policy.quota().limit(), 5);
}

/// Waits until an instance polls. Its next poll is a second later.
async fn just_polled(instance: &Service) {
    while instance.overrides.status().since_reply > Duration::from_millis(100) {
        sleep(Duration::from_millis(10)).await;
    }
}

/// Values that another program has written.
#[tokio::test]
async fn what_is_no_override_is_skipped() {
    let server = Server::start();
    let one = instance(&server.url()).await;
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    for value in ["x", "1", "{}", "{\"policy\":1}", "[]", "9999999999999999999999"] {
        let mut connection = server.client().get_connection().expect("a connection");
        let mut set = redis::cmd("HSET");
        set.arg("plim:{overrides}:entries").arg(format!("api:{value}")).arg(value);
        set.query::<()>(&mut connection).expect("set");
    }
    assert_eq!(stored(&server).await, ["all=5/min"]);
    one.overrides.set(new(Some(1), quota("6/min"), None), None).await.expect("set");
    assert_eq!(stored(&server).await, ["all=5/min", "1=6/min"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_overrides_apply_everywhere() {
    let server = Server::start();
    let (one, two) = (instance(&server.url()).await, instance(&server.url()).await);
    let start = Instant::now();
    for key in 0..Overrides::MAX as u64 {
        one.overrides.set(new(Some(key), quota("5/min"), None), None).await.expect("set");
    }
    eprintln!("{} overrides set in {:?}", Overrides::MAX, start.elapsed());
    let start = Instant::now();
    while two.policy.key_quotas().len() < Overrides::MAX {
        assert!(start.elapsed() < Duration::from_secs(120));
        sleep(Duration::from_millis(10)).await;
    }
    eprintln!("known to another instance {:?} later", start.elapsed());
    let error = two.overrides.set(new(Some(1 << 40), quota("5/min"), None), None).await;
    assert!(matches!(error, Err(OverrideError::TooMany)), "{error:?}");
    let start = Instant::now();
    let three = instance(&server.url()).await;
    eprintln!("known to a new instance {:?} after its start", start.elapsed());
    assert_eq!(three.overrides.list().len(), Overrides::MAX);
    assert_eq!(three.policy.key_quotas().len(), Overrides::MAX);
    server.ask::<()>("FLUSHALL");
    let start = Instant::now();
    while two.overrides.status().lost.len() != Overrides::MAX || !two.policy.key_quotas().is_empty()
    {
        assert!(start.elapsed() < Duration::from_secs(120));
        sleep(Duration::from_millis(100)).await;
    }
    eprintln!("the loss was seen after {:?}", start.elapsed());
}

/// The rights of a user that the page on overrides names are enough.
#[tokio::test]
async fn the_rights_on_the_page_are_enough() {
    let server = Server::start();
    let page = include_str!("../../docs/overrides.md");
    let rights = page.lines().find(|line| line.starts_with("`+evalsha")).expect("the rights");
    let rights = rights.trim_matches('`');
    server.ask::<()>(&format!("ACL SETUSER operator on >pw ~plim:{{overrides}}:* {rights}"));
    let url = format!("redis://operator:pw@127.0.0.1:{}/", server.port);
    let (registry, limiter) = (Registry::default(), Limiter::in_memory());
    let policy = Policy::new("api", "1/min").expect("a policy");
    registry.register(policy, Origin::Code, KeyType::Integer).expect("a new name");
    let overrides = Overrides::connect(OverridesConfig::new(url, "plim"), registry, limiter)
        .await
        .expect("an answer");
    overrides.set(new(Some(1), quota("5/min"), None), None).await.expect("set");
    overrides.remove("api", Some("1"), None, "dora", "done").await.expect("removed");
    overrides
        .set(new(Some(2), quota("5/min"), Some(Duration::from_secs(2))), None)
        .await
        .expect("set");
    assert_eq!(overrides.audit(10).await.expect("an answer").len(), 3);
    assert_eq!(overrides.fleet().await.error, None);
    let start = Instant::now();
    while !overrides.list().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", overrides.status());
        sleep(Duration::from_millis(10)).await;
    }
    // The first change after its end removes it. The version and the epoch stay.
    overrides.set(new(Some(3), quota("5/min"), None), None).await.expect("set");
    assert_eq!(server.ask::<u64>("HLEN plim:{overrides}:entries"), 3);
    server.ask::<()>("FLUSHALL");
    while overrides.status().losses == 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", overrides.status());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_instance_sends_one_command_a_second_and_none_for_a_check() {
    let server = Server::start();
    let (registry, limiter) = (Registry::default(), Limiter::in_memory());
    let policy = Policy::new("api", "1/min").expect("a policy");
    registry.register(policy.clone(), Origin::Code, KeyType::Integer).expect("a new name");
    let overrides =
        Overrides::connect(OverridesConfig::new(server.url(), "plim"), registry, limiter.clone())
            .await;
    let overrides = overrides.expect("an answer");
    let offenders = Offenders::new(10);
    overrides.publish(&offenders);
    overrides.set(new(Some(1), quota("5/min"), None), None).await.expect("set");
    let scripts = || {
        let calls = server.info("commandstats", "cmdstat_evalsha");
        let calls = calls.trim_start_matches("calls=").split(',').next().map(str::parse::<u64>);
        calls.and_then(Result::ok).unwrap_or_default()
    };
    let (before, start) = (scripts(), Instant::now());
    while start.elapsed() < Duration::from_secs(3) {
        for key in 0..100 {
            offenders.record(&limiter.check_now(policy.charge(key, 1)).expect("a decision"));
        }
        sleep(Duration::from_millis(10)).await;
    }
    let (sent, most) = (scripts() - before, start.elapsed().as_secs() + 1);
    assert!((1..=most).contains(&sent), "{sent} commands in {:?}", start.elapsed());
    // The same commands have published the units.
    let admitted = overrides.fleet().await.policies[0].units.admitted;
    assert!((100..=105).contains(&admitted), "{admitted}");
}

/// More instances than are kept are not known, and the known ones stay. Instances that have ended make room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_are_bounded() {
    let server = Server::start();
    let one = connect(&server.url(), Registry::default()).await;
    let ids = |fleet: Fleet| fleet.instances.into_iter().map(|it| it.id).collect::<Vec<_>>();
    let first = ids(one.fleet().await);
    assert_eq!(first.len(), 1);
    // Other instances, of which the announcements are no JSON.
    let fill = "local now = redis.call('TIME')[1] * 1000; for i = 1, 999 do \
                redis.call('ZADD', KEYS[1], now + 3000, i); redis.call('HSET', KEYS[2], i, '-') end";
    let keys = ["plim:{overrides}:seen", "plim:{overrides}:announcements"];
    let mut command = redis::cmd("EVAL");
    command.arg(fill).arg(2).arg(&keys);
    let mut connection = server.client().get_connection().expect("a connection");
    command.query::<()>(&mut connection).expect("an answer");
    let another = connect(&server.url(), Registry::default()).await;
    assert_eq!(ids(one.fleet().await), first);
    let start = Instant::now();
    while ids(one.fleet().await).len() != 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", one.fleet().await);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(ids(another.fleet().await), ids(one.fleet().await));
    // Those that have ended are removed, at most 100 by each command.
    for key in ["ZCARD plim:{overrides}:seen", "HLEN plim:{overrides}:announcements"] {
        while server.ask::<u64>(key) != 2 {
            assert!(start.elapsed() < Duration::from_secs(60), "{key}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// An instance whose rights do not let it learn the changes of others changes nothing.
#[tokio::test]
async fn a_change_needs_the_changes_of_others() {
    let server = Server::start();
    server.ask::<()>("ACL SETUSER writer on >pw ~* +@all -hgetall");
    let url = format!("redis://writer:pw@127.0.0.1:{}/", server.port);
    let (one, two) = (instance(&url).await, instance(&server.url()).await);
    two.overrides.set(new(Some(1), quota("6/min"), None), None).await.expect("set");
    let refused = one.overrides.set(new(None, quota("5/min"), None), None).await;
    let error = refused.expect_err("it cannot learn the other one").to_string();
    assert!(error.starts_with("Redis does not answer, nothing was changed: "), "{error}");
    assert_eq!(one.policy.quota().limit(), 1);
    assert_eq!(stored(&server).await, ["1=6/min"]);
}

/// Four instances set the same overrides, each if there is none. One of them is the first, and the others learn that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_changes_at_the_same_time_is_the_first() {
    let server = Server::start();
    let mut changes = JoinSet::new();
    let barrier = Arc::new(Barrier::new(4));
    for limit in 1..5 {
        let one = instance(&server.url()).await;
        let barrier = Arc::clone(&barrier);
        changes.spawn(async move {
            let mut made = 0;
            for key in 0..20 {
                barrier.wait().await;
                let new = new(Some(key), quota(&format!("{limit}/h")), None);
                match one.overrides.set(new, Some(0)).await {
                    Ok(_) => made += 1,
                    Err(OverrideError::Conflict { expected: 0, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            made
        });
    }
    assert_eq!(changes.join_all().await.iter().sum::<usize>(), 20);
    assert_eq!(stored(&server).await.len(), 20);
    let audit = reader(&server).await.audit(100).await.expect("an answer");
    let versions: BTreeSet<_> = audit.iter().filter_map(|it| it.version).collect();
    assert_eq!((audit.len(), versions.len()), (20, 20));
}

#[tokio::test]
async fn an_override_of_an_unknown_policy_is_removed() {
    let server = Server::start();
    let one = instance(&server.url()).await;
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    one.overrides.set(new(Some(7), OverrideKind::Block, None), None).await.expect("set");
    one.overrides.set(new(Some(8), quota("3/min"), None), None).await.expect("set");
    let other = reader(&server).await;
    let error = other.remove("app", None, None, "dora", "done").await.expect_err("there is none");
    assert!(matches!(error, OverrideError::UnknownPolicy { .. }), "{error:?}");
    let change = other.remove("api", None, None, "dora", "done").await.expect("removed");
    assert_eq!(change.in_force_after, None);
    other.remove("api", Some("7"), None, "dora", "done").await.expect("removed");
    let left = connect(&server.url(), Registry::default()).await;
    let key = left.list()[0].key.clone();
    left.remove("api", key.as_deref(), None, "dora", "done").await.expect("removed by its digest");
    assert!(stored(&server).await.is_empty());
    let start = Instant::now();
    let is_allowed = async || {
        let peeked = one.limiter.peek(one.policy.charge(7, 1)).await;
        peeked.expect("an answer").is_allowed()
    };
    while !is_allowed().await || one.policy.charge(8, 1).quota().limit() != 1 {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
}

/// Two versions of a program, of which the other one has another algorithm, or cannot read a key.
#[tokio::test]
async fn what_does_not_fit_here_is_not_applied_and_reported() {
    let server = Server::start();
    let one = instance(&server.url()).await;
    let registry = Registry::default();
    let policy = Policy::new("api", "1/min token-bucket(1)").expect("a policy");
    let keys = KeyType::Address(ClientIp::peer());
    let api = registry.register(policy.clone(), Origin::Code, keys).expect("a new name");
    let two = connect(&server.url(), registry).await;
    one.overrides.set(new(Some(13), quota("7/min"), None), None).await.expect("set");
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    let until = async |expected: &str| {
        let start = Instant::now();
        while !two.status().error.is_some_and(|it| it.contains(expected)) {
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", two.status());
            sleep(Duration::from_millis(10)).await;
        }
    };
    until("counts by sliding-log, allowed is").await;
    assert_eq!(policy.quota(), "1/min token-bucket(1)".parse().expect("a quota"));
    one.overrides.set(new(None, OverrideKind::Off, None), None).await.expect("set");
    until("its key has another type here").await;
    let start = Instant::now();
    while api.is_enabled() {
        assert!(start.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    let error = two.set(new(Some(13), quota("5/min token-bucket(1)"), None), None).await;
    assert!(error.is_err_and(|it| it.to_string().contains("an IP address")));
}

#[tokio::test]
async fn a_change_of_the_state_is_reported_once_and_once_when_it_is_over() {
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let lines = Lines::default();
    let _lines = tracing::subscriber::set_default(lines.clone());
    let count = |text: &str| {
        lines.0.lock().expect("no panic").iter().filter(|it| it.contains(text)).count()
    };
    let metric = |name: &str| {
        let all = metrics.snapshot().into_hashmap();
        let found = all.into_iter().find(|(key, _)| key.key().name() == name);
        match found.expect("it is emitted").1.2 {
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Counter(count) => count as f64,
            DebugValue::Histogram(_) => unreachable!("there is none"),
        }
    };
    let mut server = Server::start();
    let overrides = connect(&server.url(), Registry::default()).await;
    let one = instance(&server.url()).await;
    one.overrides.set(new(None, quota("5/min"), None), None).await.expect("set");
    drop(one);
    let until = async |is: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is() {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", overrides.status());
            sleep(Duration::from_millis(10)).await;
        }
    };
    until(&|| !overrides.list().is_empty()).await;
    server.kill();
    until(&|| overrides.status().since_reply > Duration::from_secs(3)).await;
    assert_eq!(count("the overrides stay as they are"), 1, "{lines:?}");
    assert!(metric("plimsoll_overrides_seconds_since_reply") > 1.0);
    assert_eq!(count("the overrides are followed again"), 0);
    server.run();
    until(&|| overrides.status().error.is_none()).await;
    assert_eq!(count("the overrides are followed again"), 1);
    assert_eq!(count("No longer in force are 1: all keys under api: 5/min"), 1, "{lines:?}");
    assert_eq!(metric("plimsoll_overrides_losses_total"), 1.0);
}

/// The log lines of the library's target.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "plimsoll"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |_: &Field, value: &dyn fmt::Debug| {
            self.0.lock().expect("no panic").push(format!("{value:?}"));
        });
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A server that keeps its connections and does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_ends_while_redis_hangs_and_redis_is_followed_again() {
    let server = Server::start();
    let one = instance(&server.url()).await;
    let left = Duration::from_secs(3);
    let ends = Instant::now() + left;
    one.overrides.set(new(None, OverrideKind::Off, Some(left)), None).await.expect("set");
    let api = one.registry.get("api").expect("it is registered");
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &server.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    };
    signal("-STOP");
    let change = one.overrides.set(new(Some(1), quota("5/min"), None), None).await;
    let message = change.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(message.contains("nothing was changed: no reply within"), "{message}");
    let refused = matches!(change, Err(OverrideError::Unavailable { may_apply: false, .. }));
    assert!(refused, "{change:?}");
    assert!(one.overrides.status().since_reply > Duration::from_secs(1));
    // They wait for each other, but not without an end.
    let start = Instant::now();
    let waiting: Vec<_> = (0..10)
        .map(|key| {
            let overrides = one.overrides.clone();
            tokio::spawn(
                async move { overrides.set(new(Some(key), quota("5/min"), None), None).await },
            )
        })
        .collect();
    for waiting in waiting {
        assert!(waiting.await.expect("it ends").is_err());
    }
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    while !api.is_enabled() {
        assert!(ends.elapsed() < Duration::from_secs(5));
        sleep(Duration::from_millis(10)).await;
    }
    assert!(Instant::now() >= ends);
    signal("-CONT");
    let start = Instant::now();
    while one.overrides.set(new(None, quota("7/min"), None), None).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(one.policy.quota().limit(), 7);
    assert_eq!(one.overrides.status().error, None);
}

/// A Redis without memory refuses writes. A change from before is still followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_are_read_while_redis_refuses_writes() {
    let server = Server::start();
    let (one, other) = (instance(&server.url()).await, instance(&server.url()).await);
    one.overrides.set(new(None, quota("7/min"), None), None).await.expect("set");
    server.ask::<()>("CONFIG SET maxmemory 1");
    assert!(
        one.overrides.set(new(None, quota("8/min"), None), None).await.is_err(),
        "it is refused"
    );
    let start = Instant::now();
    while other.policy.quota().limit() != 7 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", other.overrides.status());
        sleep(Duration::from_millis(10)).await;
    }
    // Announcements are refused, and an instance says so.
    let refused = "Redis has not taken the announcement of this instance";
    while other.overrides.fleet().await.error.as_deref() != Some(refused) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", other.overrides.fleet().await);
        sleep(Duration::from_millis(100)).await;
    }
}
