//! A changed file acts while the service runs.

use std::{fs, sync::Arc};

use metrics_util::debugging::DebuggingRecorder;
use plimsoll::{Limiter, Policy};
use plimsoll_control::{
    Config, ConfigError, KeyType, Origin, Override, OverrideKind, Overrides, Registry,
};
use plimsoll_testing::{alone, calm::eventually, log::Log};

use crate::service::{Directory, Service};

const TWO: &str = "
policies.api = '2/h'

[[rules]]
policy = 'api'
key = 'peer_ip'
";

#[tokio::test]
async fn a_changed_file_acts_and_spent_units_stay_spent() {
    let directory = Directory::new("changed");
    let path = directory.write("limits.toml", TWO);
    let config = Config::from_path(&path).unwrap();
    config.watch();
    let service = Service::start(&config).await;
    for expected in [200, 200, 429] {
        assert_eq!(service.status("/").await, expected);
    }

    directory.write("limits.toml", &TWO.replace("2/h", "3/h"));
    eventually("reloaded", async || config.status().version() == 2).await;
    for expected in [200, 429] {
        assert_eq!(service.status("/").await, expected);
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_acts_like_one_that_is_written() {
    let directory = Directory::new("replaced");
    let path = directory.write("limits.toml", TWO);
    let config = Config::from_path(&path).unwrap();
    config.watch();

    // Many editors write another file and rename it.
    let new = directory.write("limits.toml.new", &TWO.replace("2/h", "3/h"));
    fs::rename(new, &path).unwrap();
    eventually("reloaded", async || config.status().version() == 2).await;
    assert_eq!(config.registry().get("api").unwrap().policy().quota().limit(), 3);
}

/// Kubernetes mounts a ConfigMap as a link to a link to a directory, and swaps the second link.
#[cfg(unix)]
#[tokio::test]
async fn a_config_map_that_is_swapped_acts() {
    use std::os::unix::fs::symlink;

    let directory = Directory::new("config-map");
    let at = |name: &str| directory.path().join(name);
    for (version, quota) in [("..1", "2/h"), ("..2", "3/h")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("limits.toml"), TWO.replace("2/h", quota)).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/limits.toml", at("limits.toml")).unwrap();
    let config = Config::from_path(at("limits.toml")).unwrap();
    config.watch();

    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    eventually("reloaded", async || config.status().version() == 2).await;
    assert_eq!(config.registry().get("api").unwrap().policy().quota().limit(), 3);
}

#[tokio::test]
async fn a_file_with_a_mistake_changes_nothing_until_it_is_mended() {
    let directory = Directory::new("mistake");
    let path = directory.write("limits.toml", TWO);
    let config = Config::from_path(&path).unwrap();
    config.watch();
    let service = Service::start(&config).await;

    // The policy is valid, and would act if a file with a mistake were applied by halves.
    let mistake = TWO.replace("2/h", "9/h").replace("'peer_ip'", "'peerip'");
    directory.write("limits.toml", &mistake);
    eventually("refused", async || config.status().error().is_some()).await;
    let status = config.status();
    assert_eq!(status.version(), 1);
    assert_eq!(status.error().and_then(ConfigError::line), Some(6));
    for expected in [200, 200, 429] {
        assert_eq!(service.status("/").await, expected);
    }

    fs::remove_file(&path).unwrap();
    let is_missing = |error: &ConfigError| error.message().contains("cannot be read");
    eventually("missed", async || config.status().error().is_some_and(is_missing)).await;
    assert_eq!(service.status("/").await, 429);

    directory.write("limits.toml", "");
    let is_empty = |error: &ConfigError| error.message().contains("is empty");
    eventually("found empty", async || config.status().error().is_some_and(is_empty)).await;
    assert_eq!(service.status("/").await, 429);

    directory.write("limits.toml", TWO);
    eventually("mended", async || config.status().error().is_none()).await;
    assert_eq!(service.status("/").await, 429);
}

#[test]
fn a_text_without_a_field_is_refused_and_policies_that_go_are_reported() {
    let directory = Directory::new("no-field");
    for (name, some, empty) in [
        ("a.toml", "policies = { api = '2/h', b = '1/h' }", "# later\n"),
        ("a.yaml", "policies: { api: 2/h, b: 1/h }", "# later\n---\n"),
        ("b.yaml", "policies: { api: 2/h, b: 1/h }", "{}\n"),
        ("a.json", r#"{"policies": {"api": "2/h", "b": "1/h"}}"#, "{ }"),
    ] {
        let config = Config::from_path(directory.write(name, some)).unwrap();
        let log = Log::default();
        let reload = |text: &str| {
            directory.write(name, text);
            tracing::subscriber::with_default(log.clone(), || config.reload())
        };
        let error = reload(empty).unwrap_err();
        assert!(error.message().contains("is empty"), "{name}: {error}");
        assert!(error.to_string().contains("`policies = {}`"), "{name}: {error}");
        assert_eq!(config.registry().policies().len(), 2, "{name}");
        assert!(!log.take().iter().any(|event| event.contains("no longer")), "{name}");
        assert_eq!(reload(&some.replace("api", "other")), Ok(true));
        let events = log.take();
        let gone = events.iter().find(|event| event.contains("no longer")).unwrap();
        assert!(gone.starts_with("WARN") && gone.ends_with("policies: api"), "{gone}");
    }
}

#[tokio::test]
async fn rules_that_come_and_go_act_on_new_requests() {
    let directory = Directory::new("rules");
    let path = directory.write("limits.toml", TWO);
    let config = Config::from_path(&path).unwrap();
    let service = Service::start(&config).await;
    assert_eq!(service.status("/search").await, 200);

    let added = "
        policies.search = '1/h'
        rules = [{ policy = 'search', key = 'peer_ip', only = ['/search'] }]
    ";
    directory.write("limits.toml", added);
    assert_eq!(config.reload(), Ok(true));
    assert!(config.registry().get("api").is_none());
    for (path, expected) in [("/search", 200), ("/search", 429), ("/", 200), ("/", 200), ("/", 200)]
    {
        assert_eq!(service.status(path).await, expected, "{path}");
    }

    // The rule that is back finds what was spent under it.
    directory.write("limits.toml", TWO);
    assert_eq!(config.reload(), Ok(true));
    assert_eq!(config.reload(), Ok(false));
    for expected in [200, 429] {
        assert_eq!(service.status("/search").await, expected);
    }

    // Without a rule, the file is refused while a layer follows it.
    directory.write("limits.toml", "policies.api = '2/h'");
    assert!(config.reload().unwrap_err().message().contains("no rules"));
    directory.write("limits.toml", &format!("enabled = false\n{TWO}"));
    assert_eq!(config.reload(), Ok(true));
    assert_eq!(service.status("/search").await, 200);
}

#[tokio::test]
async fn a_request_in_flight_ends_under_the_rules_with_which_it_began() {
    let directory = Directory::new("in-flight");
    let slow = "
        policies.slow = '1 concurrent'
        rules = [{ policy = 'slow', key = 'peer_ip' }]
    ";
    let path = directory.write("limits.toml", slow);
    let config = Config::from_path(&path).unwrap();
    let service = Arc::new(Service::start(&config).await);
    let in_flight = tokio::spawn({
        let service = Arc::clone(&service);
        async move { service.get("/slow").await }
    });
    eventually("in flight", async || service.status("/").await == 429).await;

    directory.write("limits.toml", &slow.replace("1 concurrent", "2 concurrent"));
    assert_eq!(config.reload(), Ok(true));
    // The unit of the request in flight counts under the new limit.
    let second = tokio::spawn({
        let service = Arc::clone(&service);
        async move { service.get("/slow").await }
    });
    eventually("full", async || service.status("/").await == 429).await;
    for _ in 0..2 {
        service.slow.send(()).await.unwrap();
    }
    for request in [in_flight, second] {
        let response = request.await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert!(response.contains("\"slow\";q="), "{response}");
    }
    eventually("free", async || service.status("/").await == 200).await;
}

#[tokio::test]
async fn a_policy_that_is_switched_off_limits_nothing() {
    let directory = Directory::new("off");
    let config = Config::from_path(directory.write("limits.toml", TWO)).unwrap();
    let service = Service::start(&config).await;
    let overrides = Overrides::in_memory(config.registry().clone(), Limiter::in_memory());
    let set = async |kind| {
        let new = Override::new("api", kind, "dora", "a test");
        overrides.set(new, None).await.unwrap();
    };
    set(OverrideKind::Off).await;
    for _ in 0..4 {
        assert_eq!(service.status("/").await, 200);
    }
    // A reload keeps the switch.
    directory.write("limits.toml", &TWO.replace("2/h", "3/h"));
    assert_eq!(config.reload(), Ok(true));
    assert_eq!(service.status("/").await, 200);
    // It keeps an override too.
    set(OverrideKind::Quota("1/h".parse().unwrap())).await;
    directory.write("limits.toml", &TWO.replace("2/h", "4/h"));
    assert_eq!(config.reload(), Ok(true));
    for expected in [200, 429] {
        assert_eq!(service.status("/").await, expected);
    }
}

#[test]
fn a_mistake_is_reported_once_and_shows_in_metrics() {
    // The subscriber of another test, or none, would decide whether the event is recorded.
    if !alone("reload::a_mistake_is_reported_once_and_shows_in_metrics") {
        return;
    }
    let directory = Directory::new("reported");
    let path = directory.write("limits.toml", TWO);
    let (log, recorder) = (Log::default(), DebuggingRecorder::new());
    let metrics = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        tracing::subscriber::with_default(log.clone(), || {
            let config = Config::from_path(&path).unwrap();
            directory.write("limits.toml", &TWO.replace("policy =", "polcy ="));
            assert!(config.reload().is_err());
            for _ in 0..3 {
                assert_eq!(config.reload(), Ok(false));
            }
            assert_eq!(config.status().error().and_then(ConfigError::column), Some(1));
        });
    });
    let events = log.take();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("did you mean `policy`?"), "{events:?}");
    let metrics = format!("{:?}", metrics.snapshot().into_vec());
    for expected in ["plimsoll_config_is_current", "Gauge(0.0)", "Counter(1)", "refused"] {
        assert!(metrics.contains(expected), "{expected} in {metrics}");
    }
}

#[test]
fn another_store_needs_a_restart_and_the_rules_act_at_once() {
    let directory = Directory::new("store");
    let path = directory.write("limits.toml", TWO);
    let config = Config::from_path(&path).unwrap();
    let other = format!("{}\n[store.redis]\nurl = 'redis://other/'", TWO.replace("2/h", "3/h"));
    directory.write("limits.toml", &other);
    assert_eq!(config.reload(), Ok(true));
    assert!(config.status().needs_restart());
    assert_eq!(config.store().url(), None);
    assert_eq!(config.registry().get("api").unwrap().policy().quota().limit(), 3);
    directory.write("limits.toml", TWO);
    assert_eq!(config.reload(), Ok(true));
    assert!(!config.status().needs_restart());
}

#[test]
fn a_policy_of_the_program_stays_as_it_is() {
    let directory = Directory::new("program");
    let path = directory.write("limits.toml", TWO);
    let registry = Registry::default();
    let of_program = |name, quota| {
        let policy = Policy::new(name, quota).unwrap();
        registry.register(policy, Origin::Code, KeyType::Integer).unwrap()
    };
    of_program("api", "5/h");
    let error = Config::from_path_with(&path, registry.clone()).unwrap_err();
    assert_eq!((error.line(), error.column()), (Some(2), Some(10)));
    assert!(error.message().contains("is registered with 5/h, and cannot have 2/h"), "{error}");

    // A rule of the file can name it, and no reload removes it.
    let named = directory.write("named.toml", "rules = [{ policy = 'api', key = 'peer_ip' }]");
    let config = Config::from_path_with(&named, registry.clone()).unwrap();
    config.layer(&Limiter::in_memory()).unwrap();
    directory.write("named.toml", "enabled = false\nrules = [{ policy = 'api', key = 'peer_ip' }]");
    assert_eq!(config.reload(), Ok(true));
    let policy = registry.get("api").unwrap();
    assert_eq!((policy.origin(), policy.policy().quota().limit()), (Origin::Code, 5));

    // The unit of a policy belongs to its handle, which rules and overrides have.
    directory.write("named.toml", "policies.traffic = '9/h'");
    let config = Config::from_path_with(&named, registry).unwrap();
    directory.write("named.toml", "policies.traffic = { quota = '9/h', unit = 'kib' }");
    assert!(config.reload().unwrap_err().message().contains("cannot have the unit \"kib\""));
}

/// The task that watches holds no configuration alive, and ends with the last clone.
#[tokio::test]
async fn the_task_ends_with_the_last_clone() {
    let directory = Directory::new("task");
    let config = Config::from_path(directory.write("limits.toml", TWO)).unwrap();
    config.watch();
    config.watch();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1);
    let layer = config.layer(&Limiter::in_memory()).unwrap();
    drop(config);
    assert_eq!(tasks(), 1);
    drop(layer);
    eventually("ended", async || tasks() == 0).await;
}
