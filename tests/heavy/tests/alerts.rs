//! Each alert of `docs/operations.md` fires on what a limiter exports, and no other alert does.
//!
//! A scenario takes scrapes of a limiter, one for each minute. `promtool` computes the rules over them. It is
//! in Debian's package `prometheus`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write,
    fs,
    path::Path,
    process::{self, Command},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use plimsoll::{
    Error, Limiter, MemoryStore, Policy, Resilience,
    error::ErrorKind,
    memory::MemoryConfig,
    store::{Answer, Request, Source, Store},
};
use tokio::time::sleep;

/// The upper bounds of the buckets in `examples/heavy/prometheus.rs`.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

/// The scrapes of most scenarios, one for each minute, and the minute in which a store begins to fail.
const MINUTES: u64 = 40;
const FAILS_FROM: u64 = 20;

/// A store that passes for a shared one, and can be slow or fail.
#[derive(Debug)]
struct Shared {
    memory: MemoryStore,
    delay: Duration,
    fails: Mutex<Option<ErrorKind>>,
}

impl Store for Shared {
    fn call(&self, request: Request<'_>, deadline: Option<std::time::Instant>) -> Answer {
        let failure = *self.fails.lock().unwrap();
        let reply = match failure {
            Some(kind) => Err(Error::new(kind, "the store fails")),
            None => self.memory.call(request, deadline).now().expect("ready"),
        };
        let (reply, delay) = (
            reply.map(|mut it| {
                it.source = Source::Shared;
                it
            }),
            self.delay,
        );
        Answer::pending(async move {
            if delay > Duration::ZERO {
                sleep(delay).await;
            }
            reply
        })
    }
}

/// A limiter and its policies, which a scenario uses between two scrapes.
struct World {
    store: Arc<Shared>,
    limiter: Limiter,
    free: Policy,
    overall: Policy,
}

impl World {
    fn new(delay: Duration, resilience: Resilience) -> Self {
        let memory = MemoryStore::new(MemoryConfig::default());
        let store = Arc::new(Shared { memory, delay, fails: Mutex::new(None) });
        let limiter = Limiter::with_resilience(Arc::clone(&store), resilience);
        let policy = |name, quota: &str| Policy::new(name, quota).unwrap();
        Self { store, limiter, free: policy("free", "5/h"), overall: policy("overall", "1000/s") }
    }

    /// Makes ten checks of keys that were not charged before.
    async fn check_new_keys(&self, minute: u64) {
        self.check(minute * 10..minute * 10 + 10).await;
    }

    /// Makes one check for each of these keys.
    async fn check(&self, keys: impl IntoIterator<Item = u64>) {
        for key in keys {
            let charges = [self.free.charge(key, 1), self.overall.charge("all", 1)];
            let _ = self.limiter.check(charges).await.unwrap();
        }
    }
}

/// Returns the texts of `count` scrapes. Before each of them, `minute` is called with its number.
fn scrapes(
    count: u64,
    delay: Duration,
    resilience: Resilience,
    minute: impl AsyncFn(&World, u64),
) -> Vec<String> {
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).unwrap().build_recorder();
    let page = recorder.handle();
    // A store is as slow as the scenario says, and no process is late by itself.
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let world = World::new(delay, resilience);
            let mut pages = Vec::new();
            for number in 0..count {
                minute(&world, number).await;
                pages.push(page.render());
            }
            pages
        })
    })
}

/// The alert rules of the docs.
fn rules() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, after) = page.split_once("```yaml\n").expect("a block of rules");
    after.split_once("\n```").expect("its end").0.to_owned()
}

fn names(rules: &str) -> Vec<&str> {
    rules.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: ")).collect()
}

/// Returns the time series of the scrapes, as `promtool` reads them.
fn series(scrapes: &[String]) -> String {
    let mut values: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (number, page) in scrapes.iter().enumerate() {
        for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            // The labels that Prometheus adds to what it scrapes.
            let name = match name.split_once('{') {
                Some((name, labels)) => format!(r#"{name}{{job="api",instance="host",{labels}"#),
                None => format!(r#"{name}{{job="api",instance="host"}}"#),
            };
            let values = values.entry(name).or_default();
            values.resize(number, "_");
            values.push(value);
        }
    }
    let mut text = String::new();
    for (name, values) in values {
        writeln!(text, "      - series: '{name}'\n        values: '{}'", values.join(" ")).unwrap();
    }
    text
}

/// Checks that the alerts `firing` fire at the end of the scrapes, each with these labels and this summary,
/// and that no other alert does.
fn check(step: &str, scrapes: &[String], firing: &[(&str, &str, &str)]) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let rules = rules();
    let mut expected = String::new();
    for alert in names(&rules) {
        let step_minutes = step.trim_end_matches('m').parse::<usize>().unwrap();
        let end = (scrapes.len() - 1) * step_minutes;
        writeln!(expected, "      - eval_time: {end}m\n        alertname: {alert}").unwrap();
        for (_, labels, summary) in firing.iter().filter(|(name, ..)| *name == alert) {
            writeln!(expected, "        exp_alerts:\n          - exp_labels: {{ {labels} }}")
                .unwrap();
            writeln!(expected, "            exp_annotations: {{ summary: {summary:?} }}").unwrap();
        }
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("plimsoll-alerts-{}-{number}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("rules.yml"), rules).unwrap();
    let tests = format!(
        "rule_files: [rules.yml]\nevaluation_interval: {step}\ntests:\n  - interval: {step}\n    \
         input_series:\n{}    alert_rule_test:\n{expected}",
        series(scrapes)
    );
    fs::write(folder.join("test.yml"), &tests).unwrap();
    for arguments in [["check", "rules", "rules.yml"], ["test", "rules", "test.yml"]] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(&folder)
            .output()
            .expect("promtool is installed: it is in Debian's package prometheus");
        let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert!(output.status.success(), "{text}\n{tests}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Runs all scenarios. The test fails if an alert has none.
#[test]
fn each_alert_fires() {
    let scenarios: BTreeMap<&str, fn()> = BTreeMap::from([
        ("PlimsollStoreDown", store_down as fn()),
        ("PlimsollStoreRefuses", store_refuses),
        ("PlimsollStoreSlow", store_slow),
        ("PlimsollProcessLate", process_late),
        ("PlimsollManyDenials", many_denials),
        ("PlimsollPolicyUnused", policy_unused),
    ]);
    assert_eq!(
        BTreeSet::from_iter(names(&rules())),
        BTreeSet::from_iter(scenarios.keys().copied()),
        "each alert has a scenario"
    );
    for (name, scenario) in scenarios {
        println!("{name}");
        scenario();
    }
}

#[test]
fn no_alert_fires_while_all_is_well() {
    let pages = scrapes(MINUTES, Duration::ZERO, Resilience::default(), async |world, minute| {
        world.check_new_keys(minute).await;
    });
    check("1m", &pages, &[]);
}

fn store_down() {
    let pages = scrapes(MINUTES, Duration::ZERO, Resilience::default(), async |world, minute| {
        if minute == FAILS_FROM {
            *world.store.fails.lock().unwrap() = Some(ErrorKind::Unavailable);
        }
        world.check_new_keys(minute).await;
    });
    let summary = "Redis, or a node of its cluster, decides no checks; the instances decide by \
                   themselves.";
    check("1m", &pages, &[("PlimsollStoreDown", "severity: page, job: api", summary)]);
}

/// The breaker would send only a probe from time to time, which counts as well. Without it, no other
/// alert fires.
fn store_refuses() {
    let resilience = Resilience::default().without_breaker();
    let pages = scrapes(MINUTES, Duration::ZERO, resilience, async |world, minute| {
        if minute == FAILS_FROM {
            *world.store.fails.lock().unwrap() = Some(ErrorKind::OutOfMemory);
        }
        world.check_new_keys(minute).await;
    });
    let labels = "severity: page, job: api, kind: out_of_memory";
    let summary = "Redis refuses the limiter: out_of_memory.";
    check("1m", &pages, &[("PlimsollStoreRefuses", labels, summary)]);
}

fn store_slow() {
    let delay = Duration::from_millis(28);
    let pages = scrapes(MINUTES, delay, Resilience::default(), async |world, minute| {
        world.check([minute]).await;
    });
    let summary = "1% of the calls to Redis take over 20 ms. At 40 ms they count as failures.";
    check("1m", &pages, &[("PlimsollStoreSlow", "severity: ticket, job: api", summary)]);
}

/// Another task advances the clock by 50 ms while a check waits for the store, as if it had blocked the only
/// thread of the runtime. The timer of the check was set for 10 ms, so it is 40 ms late.
fn process_late() {
    let delay = Duration::from_millis(30);
    let pages = scrapes(MINUTES, delay, Resilience::default(), async |world, minute| {
        let block = tokio::time::advance(Duration::from_millis(50));
        let ((), blocking) = tokio::join!(world.check([minute]), tokio::spawn(block));
        blocking.unwrap();
    });
    let labels = "severity: ticket, instance: host";
    let summary = "Tasks of host wait for processor time. Redis is not the cause.";
    check("1m", &pages, &[("PlimsollProcessLate", labels, summary)]);
}

/// The policy that refuses is named, and not `overall`, which refuses nothing.
fn many_denials() {
    let pages = scrapes(MINUTES, Duration::ZERO, Resilience::default(), async |world, _| {
        world.check([7; 10]).await;
    });
    let labels = "severity: ticket, job: api, policy: free";
    let summary = "Half of the requests under the policy free are denied.";
    check("1m", &pages, &[("PlimsollManyDenials", labels, summary)]);
}

/// No request is charged under `exports`, from the start of the program on.
fn policy_unused() {
    let pages = |hours: u64| {
        scrapes(hours * 4, Duration::ZERO, Resilience::default(), async |world, number| {
            if number == 0 {
                Policy::new("exports", "5/h").unwrap();
            }
            world.check([number]).await;
        })
    };
    let labels = "severity: ticket, job: api, policy: exports";
    let summary = "No request was charged under the policy exports for a day.";
    check("15m", &pages(26), &[("PlimsollPolicyUnused", labels, summary)]);
    // A program that has just started has not waited for a day.
    check("15m", &pages(23), &[]);
}
