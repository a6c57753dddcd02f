//! The dashboard and the alerts name metrics that the packages emit, in queries that Prometheus understands.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    time::Duration,
};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use plimsoll::{Limiter, OnFailure, Policy, RedisStore};
use plimsoll_control::{Config, Overrides, OverridesConfig, Registry};
use plimsoll_testing::servers::Server;
use serde_json::Value;
use tokio::time::sleep;

/// The steps until a metric must have been emitted.
const PATIENCE: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn each_metric_of_the_dashboards_is_emitted() {
    let named: BTreeSet<_> =
        ["grafana.json", "alerts.yml"].iter().flat_map(|file| names(&read(file))).collect();
    assert!(named.len() > 10, "{named:?}");

    let prometheus = PrometheusBuilder::new().set_buckets(&[0.01, 0.1]).unwrap();
    let prometheus = prometheus.install_recorder().unwrap();
    let mut redis = Server::start();
    let limiter = Limiter::new(RedisStore::connect(&redis.url()).await.unwrap());
    reload_a_file_with_a_mistake();
    deny_and_lease(&limiter).await;
    wait_for_redis(&limiter, &redis, &prometheus).await;
    let overrides = Overrides::connect(
        OverridesConfig::new(redis.url(), "plim"),
        Registry::default(),
        limiter.clone(),
    )
    .await;
    let _overrides = overrides.unwrap();
    miss_a_deadline(&limiter, &redis).await;
    limiter.close().await.unwrap();
    redis.kill();
    let missing = || {
        let emitted = names(&prometheus.render());
        named.difference(&emitted).cloned().collect::<Vec<_>>()
    };
    let policy = Policy::new("outage", "5/s").unwrap();
    for key in 0..PATIENCE {
        let _ = limiter.check(policy.charge(key as u64, 1)).await;
        if missing().is_empty() {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(missing(), [] as [String; 0], "not emitted");
}

fn reload_a_file_with_a_mistake() {
    let path = env::temp_dir().join(format!("plimsoll-dashboards-{}.toml", process::id()));
    let file = |text: &str| fs::write(&path, text).unwrap();
    file("policies.api = \"5/s\"\nrules = [{ policy = \"api\", key = \"anonymous\" }]\n");
    let config = Config::from_path(&path).unwrap();
    file("policies.api = \"5 a second\"\n");
    assert!(config.reload().is_err());
    fs::remove_file(&path).unwrap();
}

/// Denies requests also from the deny cache, compares a trial, and leases and refunds units.
async fn deny_and_lease(limiter: &Limiter) {
    let live = Policy::new("live", "2/min").unwrap();
    let trial = Policy::new("trial", "4/min").unwrap();
    for _ in 0..10 {
        let charges = [live.charge("mallory", 1), trial.charge("mallory", 1).trial()];
        let _ = limiter.check(charges).await.unwrap();
        let _ = limiter.check(live.charge("mallory", 1)).await.unwrap();
    }
    let leased = Policy::new("leased", "60000/min leased(5s)").unwrap();
    while limiter.status().leased_units == 0 {
        let _ = limiter.check(leased.charge("hot", 1)).await.unwrap();
    }
    for _ in 0..100 {
        let _ = limiter.check(leased.charge("hot", 1)).await.unwrap();
    }
}

/// Makes Redis answer after 20 ms, which measures the scheduling delay.
async fn wait_for_redis(limiter: &Limiter, redis: &Server, prometheus: &PrometheusHandle) {
    let policy = Policy::new("waits", "1000/s").unwrap();
    for key in 0..PATIENCE {
        if prometheus.render().contains("plimsoll_scheduling_delay_seconds") {
            return;
        }
        let _: String = redis.ask("CLIENT PAUSE 25 ALL");
        let charge = policy.charge(key as u64, 1).with_on_failure(OnFailure::Allow);
        let _ = limiter.check(charge).await;
    }
}

/// Makes Redis answer after the deadline of a check, which is 50 ms.
async fn miss_a_deadline(limiter: &Limiter, redis: &Server) {
    let policy = Policy::new("late", "1000/s").unwrap();
    let _: String = redis.ask("CLIENT PAUSE 200 ALL");
    let _ = limiter.check(policy.charge("late", 1)).await;
    // Redis looks at the end of a pause up to 100 ms late.
    let _: String = redis.ask("PING");
}

#[test]
fn prometheus_understands_each_query() {
    let dashboard: Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (number, target) in targets.enumerate() {
        let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
        rules += &format!("      - record: query:{number}\n        expr: '{query}'\n");
    }
    let file = env::temp_dir().join(format!("plimsoll-dashboard-{}.yml", process::id()));
    fs::write(&file, rules).unwrap();
    for rules in [&file, &folder().join("alerts.yml")] {
        let promtool = Command::new("promtool").args(["check", "rules"]).arg(rules).output();
        let output = promtool.expect("promtool is installed: it is in Debian's package prometheus");
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert!(output.status.success(), "{text}");
    }
    fs::remove_file(&file).unwrap();
}

/// The series are those that a process emits, the same each half hour for eight days.
#[test]
fn the_marks_of_a_wrong_limit_fire() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let limiter = Limiter::in_memory();
        // 9 % of the checks are denied, then 2 %, 0 %, and 0 % of a few.
        for (policy, quota, checks) in [
            ("strict", "100/h", 110),
            ("right", "98/h", 100),
            ("idle", "5000/h", 1_000),
            ("rare", "5000/h", 0),
        ] {
            let policy = Policy::new(policy, quota).unwrap();
            for _ in 0..checks {
                let _ = limiter.check_now(policy.charge("alice", 1)).unwrap();
            }
        }
    });
    let emitted = recorder.handle().render();
    let mut series = String::new();
    for line in emitted.lines().filter(|line| line.starts_with("plimsoll_decisions_total{")) {
        let (name, count) = line.rsplit_once(' ').unwrap();
        let name = name.replace('{', "{job=\"shop\",");
        series += &format!("      - series: '{name}'\n        values: '0+{count}x384'\n");
    }
    assert!(series.matches("series").count() >= 16, "{emitted}");
    let alerts = read("alerts.yml");
    let case = |time: &str, alert: &str, policies: &[&str]| {
        let rule = alerts.split_once(&format!("alert: {alert}\n")).unwrap().1;
        let summary = rule.split_once("summary: \"").unwrap().1.split_once("\"\n").unwrap().0;
        let expected = policies.iter().map(|policy| {
            let summary = summary.replace("{{ $labels.policy }}", policy);
            format!(
                "          - exp_labels: {{ severity: ticket, job: shop, policy: {policy} }}\n            \
                 exp_annotations: {{ summary: '{summary}' }}\n"
            )
        });
        let expected: String = expected.collect();
        format!(
            "      - eval_time: {time}\n        alertname: {alert}\n        exp_alerts:\n{expected}"
        )
    };
    let cases = [
        case("50m", "PlimsollLimitTooStrict", &[]),
        case("2d", "PlimsollLimitTooStrict", &["strict"]),
        case("8d", "PlimsollLimitTooStrict", &["strict"]),
        case("50m", "PlimsollLimitProtectsNothing", &[]),
        case("8d", "PlimsollLimitProtectsNothing", &["idle"]),
    ];
    let text = format!(
        "rule_files: ['{}']\nevaluation_interval: 10m\ntests:\n  - interval: 30m\n    input_series:\n{series}    \
         alert_rule_test:\n{}",
        folder().join("alerts.yml").display(),
        cases.concat()
    );
    let file = env::temp_dir().join(format!("plimsoll-alerts-{}.yml", process::id()));
    fs::write(&file, text).unwrap();
    let promtool = Command::new("promtool").args(["test", "rules"]).arg(&file).output();
    let output = promtool.expect("promtool is installed: it is in Debian's package prometheus");
    let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
    assert!(output.status.success(), "{text}");
    fs::remove_file(&file).unwrap();
}

/// Each alert that the library's page has is here too, word for word.
#[test]
fn the_package_has_the_alerts_of_the_library() {
    let page = folder().join("../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let rules = page.split_once("```yaml\n").unwrap().1.split_once("\n```").unwrap().0;
    let rules = rules.split_once("    rules:\n").unwrap().1;
    assert!(read("alerts.yml").contains(rules));
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    text.match_indices("plimsoll_")
        .map(|(start, _)| {
            let name: String = text[start..]
                .chars()
                .take_while(|it| it.is_ascii_lowercase() || *it == '_')
                .collect();
            let suffixes = ["_bucket", "_sum", "_count"];
            let base = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
            base.map_or(name.clone(), str::to_owned)
        })
        .collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(folder().join(file)).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards")
}
