//! The command line, over the admin page of a running service or the store of a limits file.

mod environment;
mod explain;
mod live;
mod typed;
mod units;

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use plimsoll::{Decision, Limiter};
use plimsoll_control::{
    Config, Format, Offenders, Overrides, OverridesConfig,
    admin::{Access, AdminConfig, router},
};
use plimsoll_testing::servers::{Server, directory};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[policies]
demo = "5/10min"
customers = "3 concurrent expires(60s)"

[[rules]]
policy = "demo"
key = { header = "x-api-key" }

[[rules]]
policy = "customers"
key = "client_ip"
"#;

const TOKEN: &str = "8b1f2a9c5d7e";

/// A service with an admin page, its Redis, and the arguments with which the command line finds them.
struct Service {
    limiter: Limiter,
    config: Config,
    offenders: Offenders,
    target: Vec<String>,
    folder: PathBuf,
    server: Server,
}

impl Service {
    async fn start() -> Self {
        Self::with(CONFIG).await
    }

    /// A service with this configuration.
    async fn with(text: &str) -> Self {
        let (server, folder) = (Server::start(), directory());
        // The machine may be busy.
        let text = format!("resilience.deadline = '10s'\n{text}");
        fs::write(folder.join("limits.toml"), &text).expect("written");
        let config = Config::from_text(&text, Format::Toml).expect("valid");
        let limiter = config.store().with_url(&server.url()).connect().await.expect("a store");
        let place = OverridesConfig::new(server.url(), "plim");
        let overrides = Overrides::connect(place, config.registry().clone(), limiter.clone()).await;
        let overrides = overrides.expect("connected");
        let offenders = Offenders::new(100);
        let access = Access::tokens().write("alice", TOKEN);
        let admin = AdminConfig::new(overrides, offenders.clone(), access);
        let app = axum::Router::new().nest("/admin", router(admin));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
        let base = format!("http://{address}/admin/");
        let target = ["--admin", &base, "--token", TOKEN].map(str::to_owned).to_vec();
        Self { limiter, config, offenders, target, folder, server }
    }

    /// Spends units of a key under the policy `demo`. Returns how many were admitted.
    async fn spend(&self, key: &str, times: u64) -> u64 {
        let demo = self.config.registry().get("demo").expect("registered");
        let mut admitted = 0;
        for _ in 0..times {
            let decision = self.limiter.check(demo.policy().charge(key, 1)).await;
            let decision = decision.expect("an answer");
            self.offenders.record(&decision);
            admitted += u64::from(matches!(decision, Decision::Allowed(_)));
        }
        admitted
    }

    /// Waits until the service admits a key. It may remember a denial for a second.
    async fn admits(&self, key: &str) {
        let admitted = async {
            while self.spend(key, 1).await == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), admitted).await.expect("admitted in time");
    }

    /// Returns the command with what names the service, and these arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let target = self.target.iter().map(String::as_str);
        let arguments: Vec<_> = target.chain(arguments.iter().copied()).collect();
        plimsoll(&arguments)
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        ran.expect("no panic").expect("started")
    }

    /// Runs a command that succeeds, and returns what it prints.
    async fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    async fn answers(&self, arguments: &[&str]) -> Value {
        let arguments = [&["--json"], arguments].concat();
        serde_json::from_str(&self.prints(&arguments).await).expect("JSON")
    }

    /// Runs a command that fails, and returns its message.
    async fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The commands of an operator about a key that is limited.
async fn walk(service: &Service) {
    let audit = service.prints(&["audit"]).await;
    assert_eq!(audit.trim(), "nothing was changed yet, or Redis has lost its data");
    assert_eq!(service.spend("42", 7).await, 5);
    let peek = service.answers(&["peek", "42", "--policy", "demo"]).await;
    assert_eq!((&peek[0]["remaining"], &peek[0]["admitted"]), (&0.into(), &false.into()));
    let peek = service.prints(&["peek", "42"]).await;
    assert!(peek.contains("0 of 5") && peek.contains("limited"), "{peek}");
    assert!(peek.contains("No data because the keys of this policy have another form"), "{peek}");
    let peek = service.prints(&["peek", "unknown", "--policy", "demo"]).await;
    assert!(peek.contains("no units spent"), "{peek}");

    let raised = ["override", "demo", "50/10min", "--key", "42"];
    let raised = [&raised[..], &["--for", "2h", "--reason", "a large order"]].concat();
    let change = service.prints(&raised).await;
    let change = change.trim().strip_prefix("42 under demo: 50/10min until 20").expect(&change);
    assert!(change.ends_with("Z, before 5/10min"), "{change}");
    let peek = service.answers(&["peek", "42", "--policy", "demo"]).await;
    assert_eq!((&peek[0]["limit"], &peek[0]["remaining"]), (&50.into(), &45.into()));
    let list = service.prints(&["override"]).await;
    assert!(list.contains("a large order") && list.contains("alice"), "{list}");
    let end = ["override", "demo", "end", "--key", "42", "--reason", "it was shipped"];
    service.prints(&end).await;
    assert!(service.prints(&["override"]).await.contains("no override"));

    let reset = ["reset", "42", "--policy", "demo", "--reason", "a wrong limit"];
    let change = service.prints(&reset).await;
    assert_eq!(change.trim(), "42 under demo: 5 of 5 left, before 0 of 5 left");
    service.admits("42").await;
    let unknown = ["reset", "unknown", "--policy", "demo", "--reason", "a wrong limit"];
    let change = service.prints(&unknown).await;
    assert!(change.contains("the key had spent nothing, and was not blocked"), "{change}");

    let block = ["block", "42", "--policy", "demo", "--for", "10m", "--reason", "it attacks"];
    let change = service.prints(&block).await;
    let change = change.trim().strip_prefix("42 under demo: blocked until 20").expect(&change);
    assert!(change.ends_with("Z, before 5/10min"), "{change}");
    assert_eq!(service.spend("42", 1).await, 0);
    service.prints(&["unblock", "42", "--policy", "demo", "--reason", "a mistake"]).await;
    service.admits("42").await;

    let audit = service.prints(&["audit"]).await;
    for reason in ["a large order", "it was shipped", "a wrong limit", "it attacks", "a mistake"] {
        assert!(audit.contains(reason), "{reason}: {audit}");
    }
    compare_and_set(service).await;
    set_again(service).await;
    switch_off(service).await;
    let wrong = ["reset", "42", "--policy", "dmo", "--reason", "x"];
    let message = service.fails(&wrong).await;
    assert!(
        message.contains("\"dmo\"") && message.contains("allowed is customers, demo"),
        "{message}"
    );
    let wrong = ["reset", "42", "--policy", "customers", "--reason", "x"];
    let message = service.fails(&wrong).await;
    assert!(message.contains("an IP address"), "{message}");
    let wrong = ["override", "demo", "50/10min token-bucket(9)", "--reason", "x"];
    let message = service.fails(&wrong).await;
    assert!(message.contains("counts by token-bucket"), "{message}");
}

/// A change is made only if the operator has seen the override that is in force.
async fn compare_and_set(service: &Service) {
    let change = async |quota: &str, version: &str| {
        let set = ["override", "demo", quota, "--key", "43"];
        service.run(&[&set[..], &["--if-version", version, "--reason", "a launch"]].concat()).await
    };
    assert!(change("50/10min", "0").await.status.success());
    let list = service.answers(&["override"]).await;
    let version = list[0]["version"].to_string();
    assert!(service.prints(&["override"]).await.contains(&version));
    let stale = change("60/10min", "0").await;
    let message = String::from_utf8_lossy(&stale.stderr);
    assert!(!stale.status.success() && message.contains("Another version"), "{message}");
    assert!(change("70/10min", &version).await.status.success());
    assert!(!change("80/10min", &version).await.status.success());
    let list = service.answers(&["override"]).await;
    assert_eq!(list[0]["kind"]["quota"], "70/10min");
    let end = ["override", "demo", "end", "--key", "43", "--reason", "done"];
    service.prints(&end).await;
}

/// An export is set again after a loss, and what was set meanwhile stays.
async fn set_again(service: &Service) {
    service.prints(&["override", "demo", "6/10min", "--for", "2h", "--reason", "a launch"]).await;
    service.prints(&["override", "demo", "50/10min", "--key", "44", "--reason", "an order"]).await;
    service.prints(&["block", "45", "--policy", "demo", "--reason", "it attacks"]).await;
    let file = service.folder.join("overrides.json");
    let before = service.prints(&["--json", "override"]).await;
    let texts = before.replace(&digest(44), "44").replace(&digest(45), "45");
    fs::write(&file, &texts).expect("written");
    service.prints(&["override", "demo", "end"]).await;
    service.prints(&["override", "demo", "end", "--key", "45"]).await;
    let from = ["override", "--from", &file.display().to_string()];
    let output = service.run(&from).await;
    let printed = String::from_utf8_lossy(&output.stdout);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("demo: 6/10min until 20") && printed.contains("45 under demo: blocked")
    );
    assert!(message.contains("44 under demo: Another version"), "{message}");
    assert!(message.contains("1 of 3 overrides were not set"), "{message}");
    assert_eq!(output.status.code(), Some(1));
    let kept = |text: &str| {
        let rows: Vec<Value> = serde_json::from_str(text).expect("JSON");
        let kept = |row: &Value| {
            [&row["key"], &row["kind"], &row["until"], &row["reason"]].map(ToString::to_string)
        };
        rows.iter().map(kept).collect::<Vec<_>>()
    };
    assert_eq!(kept(&service.prints(&["--json", "override"]).await), kept(&before));
    // One that has ended meanwhile is left out, and is no failure.
    let ended = json!([{
        "policy": "demo", "key": "46", "kind": "block", "until": 1_000, "reason": "long ago",
    }]);
    fs::write(&file, ended.to_string()).expect("written");
    let output = service.run(&from).await;
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(message, "46 under demo: has ended, and is not set again\n");
    assert!(output.status.success());
    assert_eq!(kept(&service.prints(&["--json", "override"]).await), kept(&before));
    // A digest is no key that could be set again.
    fs::write(&file, before).expect("written");
    assert!(service.fails(&from).await.contains("show_keys"));
    fs::write(&file, "{}").expect("written");
    assert!(service.fails(&from).await.contains("is no list of overrides"));
    assert!(service.prints(&["override", "--lost"]).await.contains("no override is lost"));
    for key in [&[][..], &["--key", "44"], &["--key", "45"]] {
        service.prints(&[&["override", "demo", "end"], key].concat()).await;
    }
}

/// Returns how lists show a key.
fn digest(key: u64) -> String {
    format!("{:?}", plimsoll::Key::from(key.to_string())).replace("Key(", "").replace(')', "")
}

async fn switch_off(service: &Service) {
    let off = ["override", "demo", "off", "--for", "10m", "--if-version", "0"];
    let change = service.prints(&[&off[..], &["--reason", "an outage"]].concat()).await;
    let change = change.trim().strip_prefix("demo: off until 20").expect(&change);
    assert!(change.ends_with("Z, before 5/10min"), "{change}");
    let list = service.answers(&["override"]).await;
    assert_eq!((&list[0]["kind"], &list[0]["reason"]), (&"off".into(), &"an outage".into()));
    service.prints(&["override", "demo", "end", "--reason", "it is over"]).await;
}

/// Returns the first two keys of `top`, once it has two.
async fn top(service: &Service, arguments: &[&str]) -> [String; 2] {
    let found = async {
        loop {
            let top = service.answers(&[&["top"], arguments].concat()).await;
            let key = |at: usize| top["offenders"][at]["key"].as_str().map(str::to_owned);
            if let (Some(first), Some(second)) = (key(0), key(1)) {
                return [first, second];
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("two keys in time")
}

/// One key is denied most, and another one spends most.
async fn order(service: &Service) {
    let customers = service.config.registry().get("customers").expect("registered");
    let charge =
        customers.policy().charge("192.0.2.1".parse::<std::net::IpAddr>().expect("an address"), 3);
    // One in 64 admitted checks is counted, on average.
    for _ in 0..2_000 {
        let decision = service.limiter.check(charge.clone()).await.expect("an answer");
        service.offenders.record(&decision);
        service.limiter.reset(charge.clone()).await.expect("an answer");
    }
    service.spend("denied", 20).await;
    let by_denials = top(service, &[]).await;
    assert_eq!(top(service, &["--by", "denied"]).await, by_denials);
    let mut by_units = top(service, &["--by", "spent"]).await;
    by_units.reverse();
    assert_eq!(by_units, by_denials);
    let table = service.prints(&["top", "--policy", "demo"]).await;
    // At the end of a minute, counts are halved.
    let has_denials = [" 15 ", " 7 ", " 3 "].iter().any(|denials| table.contains(denials));
    assert!(table.contains(&by_denials[0]) && has_denials, "{table}");
}

/// A script sees all instances, their rates, the store and the keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_sees_the_fleet_once() {
    let service = Service::start().await;
    // Another process of the same service, which admits and denies too.
    let (registry, other) = (service.config.registry(), Offenders::new(10));
    let place = OverridesConfig::new(service.server.url(), "plim").version("1.4.2 beta");
    let overrides = Overrides::connect(place, registry.clone(), Limiter::in_memory()).await;
    let overrides = overrides.expect("connected");
    overrides.publish(&other);
    assert_eq!(service.spend("42", 7).await, 5);
    let limiter = Limiter::in_memory();
    let demo = registry.get("demo").expect("registered");
    for _ in 0..15 {
        other.record(&limiter.check_now(demo.policy().charge("42", 1)).expect("a decision"));
    }
    let all = async {
        loop {
            let top = service.answers(&["top"]).await;
            let units = &top["fleet"]["policies"][0];
            if (units["admitted"].as_u64(), units["denied"].as_u64()) == (Some(10), Some(12)) {
                return top;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let top = tokio::time::timeout(Duration::from_secs(60), all).await.expect("both in time");
    assert_eq!(top["fleet"]["instances"].as_array().map(Vec::len), Some(2));
    assert_eq!(top["status"]["store"]["breaker"]["state"], "closed");
    assert_eq!(top["policies"].as_array().map(Vec::len), Some(2));
    let once = service.prints(&["top", "--once"]).await;
    for part in
        ["2 announced", "1 of version 1.4.2 beta", "the breaker is closed", "5/10min", "answers"]
    {
        assert!(once.contains(part), "{part}: {once}");
    }
    assert!(!once.contains('\u{1b}'), "{once}");
    let of_customers = service.prints(&["top", "--once", "--policy", "customers"]).await;
    assert!(of_customers.contains("3 concurrent") && !of_customers.contains("5/10min"));
    let message = service.fails(&["top", "--once", "--policy", "dmo"]).await;
    assert!(message.contains("allowed is customers, demo"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_have_two_orders() {
    order(&Service::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_admin_page() {
    let service = Service::start().await;
    walk(&service).await;
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(&service.target[..2])
        .args(["--token", "wrong", "audit"])
        .output()
        .expect("started");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("token"), "{message}");
}

/// A mistake in the arguments is refused, and the message says what is allowed.
#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_refused() {
    let service = Service::start().await;
    let block = ["block", "42", "--policy", "demo", "--reason", "x", "--for"];
    for (time, allowed) in [
        ("0s", "1s to 400days"),
        ("500ms", "1s to 400days"),
        ("1000d", "such as 10m, 2h or 1day"),
        ("ten", "such as 10m, 2h or 1day"),
    ] {
        let output = service.run(&[&block[..], &[time]].concat()).await;
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(allowed), "{message}");
    }
    assert!(service.prints(&["override"]).await.contains("no override"));

    let page = &service.target[1];
    for (admin, says) in [
        ("foo", "allowed is the address of an admin page, such as https://HOST/admin/"),
        ("127.0.0.1:3000/admin", "allowed is the address of an admin page"),
        ("ftp://127.0.0.1/admin", "allowed is the address of an admin page"),
        (&page.replace("/admin", "/"), "is this the address of the admin page"),
    ] {
        let message = fails(&["--admin", admin, "--token", TOKEN, "audit"]);
        assert!(message.contains(says), "{admin}: {message}");
    }
    let message = fails(&["--admin", page, "--token", "a\nb", "audit"]);
    assert!(message.contains("the token has a line break"), "{message}");
    let message = fails(&["--json", "--admin", page, "--token", "wrong", "audit"]);
    let error: Value = serde_json::from_str(&message).expect("JSON");
    assert!(error["error"].as_str().expect("a text").contains("token"), "{message}");
    // The runbook has the address of the API, which works too.
    let api = format!("{page}api/");
    let output = plimsoll(&["--admin", &api, "--token", TOKEN, "audit"]).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program that reads no more, such as `head`, ends a command without an error.
#[tokio::test(flavor = "multi_thread")]
async fn output_that_no_program_reads_is_no_error() {
    let service = Service::start().await;
    for arguments in
        [&["completions", "bash"][..], &["peek", "42"], &["block", "42", "--policy", "demo"]]
    {
        let mut command = service.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        drop(child.stdout.take());
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output()).await;
        let output = ended.expect("no panic").expect("it ends");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && message.is_empty(), "{arguments:?}: {message}");
    }
}

/// Returns a command that no variable changes.
fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments);
    for (name, _) in env::vars().filter(|(name, _)| name.starts_with("PLIMSOLL_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a command that fails, and returns its message.
fn fails(arguments: &[&str]) -> String {
    let output = plimsoll(arguments).output().expect("started");
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_checked() {
    let service = Service::start().await;
    let file = service.folder.join("limits.toml").display().to_string();
    let valid = service.prints(&["check-config", &file]).await;
    assert!(valid.contains("is valid, with 2 policies") && valid.contains("5/10min"), "{valid}");
    let is_shown = |part: &str| assert!(valid.contains(part), "{part}: {valid}");
    is_shown("\n  policy  demo  ");
    is_shown("\n  rule    demo by ");
    fs::write(&file, CONFIG.replace("policy = \"demo\"", "polcy = \"demo\"")).expect("written");
    let message = service.fails(&["check-config", &file]).await;
    assert!(message.contains("polcy") && message.contains("policy"), "{message}");
    let output = service.run(&["check-config", &file, "--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["valid"], false);
    assert!(answer["error"].as_str().expect("a text").contains("polcy"), "{answer}");
}

#[test]
fn a_check_prints_the_rules_and_what_is_probably_not_meant() {
    let folder = env::temp_dir().join(format!("plimsoll-check-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let check = |text: &str| {
        let file = folder.join("limits.toml");
        fs::write(&file, text).expect("written");
        let output = plimsoll(&["check-config", &file.display().to_string()]).output();
        let output = output.expect("started");
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
        (output.status.success(), printed)
    };
    let policies = "policies.api = '100/min token-bucket(10)'\npolicies.old = '5/min'\n";
    let rule = "[[rules]]\npolicy = 'api'\nkey = 'peer_ip'\ncost = 2\n";
    let redis = "[store.redis]\nurl = 'redis://shop:p@ss-word@localhost/99'\n";
    let (is_valid, printed) = check(&[policies, rule, redis].concat());
    assert!(is_valid, "{printed}");
    for line in [
        "is valid, with 2 policies and 1 rule\n",
        "  policy  api  100/min token-bucket(10)\n",
        "  rule    api by peer_ip, cost 2\n",
        "  hint    no rule uses the policy `old`\n",
        "  hint    a URL of Redis names the database 99, and ",
        "  hint    a URL of Redis has a user or a password with a bare `@`",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(!printed.contains("ss-word"), "{printed}");
    let (is_valid, printed) = check(policies);
    assert!(is_valid && printed.matches("  hint    ").count() == 1, "{printed}");
    assert!(printed.contains("there are no rules: a layer refuses the file"), "{printed}");
    for (wrong, line) in [
        (rule.replace('2', "11"), "the policy `api` admits at most 10 at once"),
        (redis.replace('@', "/@"), "percent-encoded"),
        (redis.replace('@', "#@"), "percent-encoded"),
    ] {
        let (is_valid, printed) = check(&[policies, &wrong].concat());
        assert!(!is_valid && printed.contains(line), "{wrong}: {printed}");
    }
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn shells_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["completions", shell]).output();
        let script = String::from_utf8(output.expect("started").stdout).expect("UTF-8");
        assert!(script.contains("plimsoll") && script.contains("override"), "{shell}");
    }
}
