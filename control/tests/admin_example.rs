//! The example `admin`, as its first lines say.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use plimsoll_testing::{
    example::{self, Example, Reply},
    servers::{Server, directory},
};
use serde_json::{Value, json};

const TOKEN: (&str, &str) = ("authorization", "Bearer s3cret");
const JSON: (&str, &str) = ("content-type", "application/json");

/// The options with which the example has the features of this test.
const PACKAGE: [&str; 4] = [
    "--package",
    "plimsoll-control",
    "--features",
    if cfg!(feature = "cli") { "admin,cli" } else { "admin" },
];

/// Returns the command of the example, without settings.
fn program() -> Command {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let mut program = example::at(PATH.get_or_init(|| example::build("admin", &PACKAGE)));
    program.env("ADDR", "127.0.0.1:0").env_remove("CONFIG").env_remove("ADMIN_TOKEN");
    program
}

/// Starts the example, and returns it with the line about the page.
fn start(token: Option<&str>) -> (Example, String) {
    let mut program = program();
    if let Some(token) = token {
        program.env("ADMIN_TOKEN", token);
    }
    let mut process = program.spawn().expect("it is built");
    let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
    let mut line = || lines.next().expect("a line").unwrap();
    let address = line().strip_prefix("listening on http://").expect("an address").to_owned();
    let page = line();
    (Example { process, address }, page)
}

fn get(shop: &Example, path: &str) -> Value {
    let reply = shop.send("GET", path, &[TOKEN], "");
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

fn change(shop: &Example, method: &str, path: &str, body: &Value) -> Reply {
    shop.send(method, path, &[TOKEN, JSON], &body.to_string())
}

fn ask(shop: &Example, key: &str) -> u16 {
    shop.send("GET", "/", &[("x-api-key", key)], "").status
}

#[test]
fn an_operator_sees_and_changes_the_limits_of_the_shop() {
    let (shop, page) = start(Some("s3cret"));
    assert_eq!(page, format!("admin on http://{}/admin/ with token s3cret", shop.address));
    assert!(shop.get("/admin/").body.starts_with("<!doctype html>"));
    assert_eq!(shop.get("/admin").status, 308);
    assert_eq!(shop.get("/admin/api/policies").status, 401);

    // 5 in any 10 seconds for each key.
    let statuses: Vec<_> = (0..7).map(|_| ask(&shop, "k1")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
    let policies = get(&shop, "/admin/api/policies");
    let demo = policies.as_array().unwrap().iter().find(|it| it["name"] == "demo").unwrap();
    assert_eq!((&demo["quota"], &demo["source"]), (&json!("5/10s"), &json!("limits.toml")));
    let offenders = get(&shop, "/admin/api/offenders?policy=demo");
    assert_eq!(offenders[0]["key"], "k1");
    // At the end of a minute, counts are halved.
    assert!([json!(2), json!(1)].contains(&offenders[0]["denied"]), "{offenders}");
    let standings = get(&shop, "/admin/api/keys?key=k1");
    assert_eq!(standings["standings"][0]["policy"], "demo");
    assert_eq!(standings["standings"][0]["remaining"], 0);

    let reset = json!({ "policy": "demo", "key": "k1", "reason": "a test" });
    assert_eq!(change(&shop, "POST", "/admin/api/reset", &reset).status, 200);
    assert_eq!(ask(&shop, "k1"), 200);
    let raise = json!({
        "policy": "demo", "key": "k1", "quota": "100/10s", "reason": "a launch", "until": "2h",
    });
    assert_eq!(change(&shop, "PUT", "/admin/api/overrides", &raise).status, 200);
    assert!((0..20).all(|_| ask(&shop, "k1") == 200));
    let all = json!({ "policy": "demo", "quota": "1/10s", "reason": "an attack" });
    assert_eq!(change(&shop, "PUT", "/admin/api/overrides", &all).status, 200);
    assert_eq!([ask(&shop, "k2"), ask(&shop, "k2")], [200, 429]);
    assert_eq!(get(&shop, "/admin/api/overrides").as_array().unwrap().len(), 2);
    let audit = get(&shop, "/admin/api/audit");
    let reasons: Vec<_> = audit.as_array().unwrap().iter().map(|it| &it["reason"]).collect();
    assert_eq!(reasons, ["an attack", "a launch", "a test"]);

    let metrics = shop.get("/metrics").body;
    let denied = r#"plimsoll_decisions_total{policy="demo",outcome="denied"} 3"#;
    assert!(metrics.contains(denied), "{metrics}");
}

/// Returns the command of the example with a file that has this text.
fn with_file(text: &str) -> (Command, PathBuf) {
    let folder = directory();
    fs::write(folder.join("limits.toml"), text).unwrap();
    let mut program = program();
    program.env("CONFIG", folder.join("limits.toml"));
    (program, folder)
}

#[test]
fn a_file_may_limit_addresses() {
    let rule = "rules = [{ policy = 'api', key = 'client_ip', only = ['/orders'] }]";
    let (mut program, folder) = with_file(&format!("policies.api = '2/h'\n{rule}"));
    let shop = example::start_program(&mut program);
    // The clients of the shop have another address.
    let statuses = [(); 3].map(|()| shop.get("/orders").status);
    assert_eq!(statuses, [200, 200, 429]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_redis_of_a_file_keeps_the_overrides_too() {
    let server = Server::start();
    let rule = "rules = [{ policy = 'api', key = { header = 'x-api-key' } }]";
    let text = format!(
        "policies.api = '2/h'\n{rule}\nstore.redis = {{ url = '{}', prefix = 'shop' }}",
        server.url()
    );
    let (mut program, folder) = with_file(&text);
    // The file says more than the environment.
    program.env("ADMIN_TOKEN", "s3cret").env("REDIS_URL", "redis://127.0.0.1:1");
    let shop = example::start_program(&mut program);
    let raise = json!({ "policy": "api", "quota": "9/h", "reason": "a launch" });
    assert_eq!(change(&shop, "PUT", "/admin/api/overrides", &raise).status, 200);
    assert!(server.keys().contains(&b"shop:{overrides}:entries".to_vec()));
    fs::remove_dir_all(folder).unwrap();
}

/// Asks for the instances of the service until they are as expected.
fn fleet_when(shop: &Example, what: &str, is_expected: impl Fn(&Value) -> bool) -> Value {
    let start = now();
    loop {
        let fleet = get(shop, "/admin/api/fleet");
        if is_expected(&fleet) {
            return fleet;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: {fleet:#}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[expect(clippy::disallowed_methods, reason = "processes take their own time")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the units of the policy `demo` that the fleet has admitted and denied.
fn demo(fleet: &Value) -> (u64, u64) {
    let policies = fleet["policies"].as_array().unwrap();
    let demo = policies.iter().find(|it| it["policy"] == "demo");
    demo.map_or((0, 0), |it| (it["admitted"].as_u64().unwrap(), it["denied"].as_u64().unwrap()))
}

fn ids(fleet: &Value) -> Vec<String> {
    let instances = fleet["instances"].as_array().unwrap().iter();
    instances.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

/// Each instance shows all instances, and the sums of what they have admitted and denied. One that is killed disappears.
#[test]
fn each_instance_shows_the_counts_of_the_whole_fleet() {
    let mut server = Server::start();
    // The machine may be busy.
    let rule = "rules = [{ policy = 'demo', key = { header = 'x-api-key' }, only = ['/'] }]";
    let text = format!("resilience.deadline = '10s'\npolicies.demo = '5/h'\n{rule}");
    let (_, folder) = with_file(&text);
    let start = || {
        let mut program = program();
        program.env("CONFIG", folder.join("limits.toml"));
        program.env("REDIS_URL", server.url()).env("ADMIN_TOKEN", "s3cret");
        example::start_program(&mut program)
    };
    let mut shops = vec![start(), start(), start()];
    // Each has admitted 5 units of its key, and denied another number of them.
    for (number, shop) in shops.iter().enumerate() {
        let statuses: Vec<_> = (0..=5 + number).map(|_| ask(shop, &format!("k{number}"))).collect();
        assert_eq!(statuses.iter().filter(|it| **it == 200).count(), 5, "{statuses:?}");
    }
    let expected = |instances, units| {
        move |fleet: &Value| ids(fleet).len() == instances && demo(fleet) == units
    };
    for shop in &shops {
        let fleet = fleet_when(shop, "all three", expected(3, (15, 6)));
        assert_eq!(fleet["error"], Value::Null);
        let instances = fleet["instances"].as_array().unwrap();
        assert_eq!(instances.iter().filter(|it| it["is_this"] == true).count(), 1);
        for instance in instances {
            assert_eq!(instance["version"], env!("CARGO_PKG_VERSION"));
            let time = |field: &str| instance[field].as_u64().unwrap();
            assert!(time("since") <= time("last_seen"), "{instance}");
            assert!(time("last_seen") + 5_100 > fleet["time"].as_u64().unwrap(), "{instance}");
            assert_eq!(time("admitted"), 5);
        }
    }
    // Both keys expire, and what is announced names no host, address or key.
    let announced: Vec<String> = server.ask("HVALS plim:{overrides}:announcements");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for text in [host.trim(), "127.0.0.1", "k0", &shops[0].address] {
        assert!(announced.iter().all(|it| !it.contains(text)), "{text}: {announced:?}");
    }
    let ttl = |key: &str| server.ask::<i64>(&format!("PTTL plim:{{overrides}}:{key}"));
    assert!([ttl("seen"), ttl("announcements")].iter().all(|it| (1..=5_000).contains(it)));

    // A quiet fleet has rates of 0, and a busy one has the rate of its requests.
    let rate = |fleet: &Value| fleet["policies"][0]["denied_per_second"].as_f64().unwrap();
    fleet_when(&shops[0], "quiet", |fleet| rate(fleet) == 0.0);
    let begin = now();
    let mut most = 0.0_f64;
    let mut sent = 0_u32;
    while begin.elapsed() < Duration::from_secs(7) {
        for (number, shop) in shops.iter().enumerate() {
            assert_eq!(ask(shop, &format!("k{number}")), 429);
            sent += 1;
        }
        thread::sleep(Duration::from_millis(60));
        most = most.max(rate(&get(&shops[0], "/admin/api/fleet")));
    }
    let mean = f64::from(sent) / begin.elapsed().as_secs_f64();
    assert!(most > 0.5 * mean && most < 1.5 * mean, "{most} a second of {mean}");
    let denied = 6 + u64::from(sent);
    let fleet = fleet_when(&shops[1], "busy", expected(3, (15, denied)));

    // A killed instance has gone after its expiry, and its units with it.
    let (last, before) = (shops.pop().unwrap(), ids(&fleet));
    let own = get(&last, "/admin/api/fleet")["instances"].clone();
    let own = own.as_array().unwrap().iter().find(|it| it["is_this"] == true).unwrap().clone();
    drop(last);
    let left = (10, denied - own["denied"].as_u64().unwrap());
    let fleet = fleet_when(&shops[0], "one is killed", expected(2, left));
    let gone = before.iter().find(|id| !ids(&fleet).contains(id));
    assert_eq!(gone.map(String::as_str), own["id"].as_str());

    // A restarted one is another one, and no rate is negative.
    shops.push(start());
    let fleet = fleet_when(&shops[0], "one is restarted", expected(3, left));
    assert!(!ids(&fleet).iter().any(|id| Some(id) == gone));
    let fields = ["admitted_per_second", "denied_per_second"];
    let instances = fleet["instances"].as_array().unwrap();
    assert!(instances.iter().all(|it| fields.iter().all(|field| it[field].as_f64() >= Some(0.0))));

    // After a loss of all data they are there again, with their counts.
    server.ask::<()>("FLUSHALL");
    fleet_when(&shops[2], "all data is lost", expected(3, left));
    // The metrics of an instance are of itself.
    let metrics = shops[2].get("/metrics").body;
    let named = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(named("plimsoll_instance_start_seconds{id="), 1, "{metrics}");
    assert_eq!(named("plimsoll_instance_seen_seconds{id="), 1);

    // Without Redis, an instance knows itself, and says why it knows no other one.
    server.kill();
    let fleet = fleet_when(&shops[0], "no Redis", |fleet| !fleet["error"].is_null());
    assert_eq!(fleet["error"], "No data of other instances because Redis does not answer");
    assert_eq!((fleet["instances"].as_array().unwrap().len(), demo(&fleet).0), (1, 5));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_with_a_cluster_needs_a_server_for_the_overrides() {
    let rule = "rules = [{ policy = 'api', key = { header = 'x-api-key' } }]";
    let redis = "store.redis = { cluster = ['redis://127.0.0.1:1'], lazy = true }";
    let (mut program, folder) = with_file(&format!("policies.api = '2/h'\n{rule}\n{redis}"));
    let output = program.stderr(Stdio::piped()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && message.contains("a Redis Cluster"), "{message}");
    assert!(message.contains("one Redis server"), "{message}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn each_key_has_two_slow_requests_in_flight() {
    let (shop, page) = start(None);
    let (_, token) = page.split_once(" with token ").unwrap();
    assert!(token.len() == 32 && start(None).1.split_once(" with token ").unwrap().1 != token);
    let denied = || {
        let statuses: Vec<_> = thread::scope(|scope| {
            let ask = || shop.send("GET", "/slow", &[("x-api-key", "k")], "").status;
            let asked: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            asked.into_iter().map(|it| it.join().unwrap()).collect()
        });
        statuses.into_iter().filter(|status| *status == 429).count()
    };
    // On a machine that stands still for the second of a request, it ends before the third one comes.
    let denied = (0..10).map(|_| denied()).find(|denied| *denied > 0);
    assert_eq!(denied, Some(1));
    assert_eq!(shop.send("GET", "/slow", &[("x-api-key", "k")], "").status, 200);
}

/// The commands of `docs/runbook.md` are run as they are written there.
#[test]
fn the_commands_of_the_runbook_work() {
    let (shop, _) = start(Some("s3cret"));
    let runbook = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/runbook.md"));
    let runbook = runbook.unwrap();
    let (_, functions) = runbook.split_once("TOKEN=..\n").expect("the variables");
    let (functions, rest) = functions.split_once("```").expect("the end of the functions");
    let commands: Vec<_> = rest
        .lines()
        .map(str::trim)
        .filter(|line| ["see ", "change ", "plimsoll "].iter().any(|it| line.starts_with(it)))
        // These need a file, or do not end.
        .filter(|line| !["config", "watch"].iter().any(|it| line.contains(it)))
        .collect();
    assert!(commands.len() > 28, "{commands:?}");
    // It is built with the feature `cli`.
    let program = option_env!("CARGO_BIN_EXE_plimsoll").unwrap_or("true");
    for command in commands {
        let output = Command::new("bash")
            .env("PLIMSOLL_ADMIN_URL", format!("http://{}/admin/", shop.address))
            .env("PLIMSOLL_ADMIN_TOKEN", "s3cret")
            .args(["-euc", &format!("plimsoll() {{ {program} \"$@\"; }}\n{functions}\n{command}")])
            .output()
            .expect("bash and curl are installed");
        if command.starts_with("plimsoll ") {
            let message = String::from_utf8(output.stderr).unwrap();
            let may_be_absent = command.contains(" end") && message.contains("No such override");
            assert!(output.status.success() || may_be_absent, "{command}: {message}");
            continue;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let answer: Value = serde_json::from_str(&text).expect(command);
        // No override of the whole policy is in force.
        let may_be_absent = command.contains("DELETE") && answer["status"] == 404;
        assert!(answer["status"].is_null() || may_be_absent, "{command}: {answer}");
    }
    let audit = get(&shop, "/admin/api/audit");
    let made = |action: &str| audit.as_array().unwrap().iter().any(|it| it["action"] == action);
    assert!(["reset", "set", "remove"].into_iter().all(made), "{audit}");
    // All is rolled back.
    assert_eq!(get(&shop, "/admin/api/overrides"), json!([]));
}
