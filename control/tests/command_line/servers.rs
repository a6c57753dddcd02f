//! The servers that the command line finds, and what it does to them.

use std::collections::BTreeMap;

use plimsoll_testing::servers::{Certificates, free_port};

use super::*;

const RULES: &str = "
policies.demo = '5/h'
policies.customers = '5/h'
rules = [{ policy = 'demo', key = { header = 'x-api-key' } }]
";

/// Runs the command line with a file alone, and returns its message.
fn fails_with(store: &str) -> String {
    let folder = plimsoll_testing::servers::directory();
    let file = folder.join("limits.toml");
    fs::write(&file, format!("{RULES}{store}")).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("--config")
        .arg(&file)
        .args(["peek", "42"])
        .env_remove("REDIS_URL")
        .output()
        .expect("started");
    fs::remove_dir_all(&folder).expect("removed");
    assert!(!output.status.success(), "{store}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn a_file_without_one_server_is_an_error_that_says_what_is_missing() {
    for (store, what) in [
        ("", "the units are counted in the memory of the service"),
        ("store.redis.cluster = ['redis://127.0.0.1:1']", "the file names a Redis Cluster"),
        (
            "store.redis = { sentinels = ['redis://127.0.0.1:1'], primary = 'main' }",
            "the file names Redis Sentinel",
        ),
        (
            "[store]\nredis.url = 'redis://127.0.0.1:1'\n\
             regions = { count = 2, home.url = 'redis://127.0.0.1:2' }",
            "the file names regions",
        ),
    ] {
        let message = fails_with(store);
        assert!(message.contains(what) && message.contains("--redis URL"), "{store}: {message}");
        assert!(!message.contains("127.0.0.1"), "{message}");
    }
}

/// Units are counted where the file says, and overrides are kept by the server of the option.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_in_regions_keeps_its_overrides_on_another_server() {
    let (local, home) = (Server::start(), Server::start());
    let (local_url, home_url) = (local.url(), home.url());
    let regions =
        format!("regions = {{ count = 2, share_percent = 100, home.url = '{home_url}' }}");
    let text = format!("{RULES}\n[store]\nredis.url = '{local_url}'\n{regions}");
    let service = Service::with(&text, Server::start()).await;
    service.spend("42", 2).await;
    let peek = service.answers(&["peek", "42", "--policy", "demo"]).await;
    assert_ne!(peek[0]["remaining"], peek[0]["limit"], "{peek}");
    let set = ["override", "demo", "9/h", "--reason", "a launch"];
    service.prints(&set).await;
    assert!(service.server.keys().iter().any(|key| key.ends_with(b":entries")));
    for server in [&local, &home] {
        assert!(!server.keys().iter().any(|key| key.ends_with(b":entries")));
    }
}

/// The settings of the file name the keys, so the command line has all of them.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_found_under_the_secret_and_the_prefix_of_the_file() {
    let redis = "secret = '00112233445566778899aabbccddeeff', prefix = 'shop', plain_keys = true";
    let server = Server::start();
    // The service has another address of the server than the operator.
    let text = format!("{RULES}store.redis = {{ url = '{}', {redis} }}", server.url());
    let service = Service::with(&text, server).await;
    service.spend("42", 3).await;
    let peek = service.answers(&["peek", "42", "--policy", "demo"]).await;
    assert_eq!(peek[0]["remaining"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_option_beats_the_file_and_the_file_beats_the_environment() {
    let server = Server::start();
    let nowhere = format!("redis://127.0.0.1:{}", free_port());
    let text = format!("{RULES}store.redis.url = '{}'", server.url());
    let mut service = Service::with(&text, server).await;
    let peek = ["peek", "42"];
    let redis = service.target.split_off(2);
    let with_variable = |service: &Service, url: &str| {
        service.command(&peek).env("REDIS_URL", url).output().expect("started").status.success()
    };
    assert!(with_variable(&service, &nowhere));
    service.target.extend(["--redis".to_owned(), nowhere.clone()]);
    assert!(!with_variable(&service, &redis[1]));
    // A file without a server leaves it to the environment.
    service.target.truncate(2);
    fs::write(service.folder.join("limits.toml"), RULES).expect("written");
    assert!(with_variable(&service, &redis[1]) && !with_variable(&service, &nowhere));
    // A file on the command line is not about the page in the environment.
    let mut command = service.command(&peek);
    command.env("REDIS_URL", &redis[1]).env("PLIMSOLL_ADMIN_URL", "http://127.0.0.1:1/");
    assert!(command.output().expect("started").status.success());
}

/// Returns each key, its value, and the time at which it expires.
fn content(server: &Server) -> BTreeMap<Vec<u8>, (Vec<u8>, i64)> {
    let mut connection = server.client().get_connection().expect("connected");
    let entry = |key: Vec<u8>| {
        let mut values = redis::pipe();
        values.cmd("DUMP").arg(&key).cmd("PEXPIRETIME").arg(&key);
        let value = values.query(&mut connection).expect("an answer");
        (key, value)
    };
    server.keys().into_iter().map(entry).collect()
}

/// Commands that show something leave Redis as it is, also if it has lost a block or reports are old.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_reads_writes_nothing() {
    let service = Service::with(RULES, Server::start()).await;
    service.spend("42", 3).await;
    let block = ["block", "bob", "--policy", "demo", "--for", "1h", "--reason", "it attacks"];
    service.prints(&block).await;
    let set = ["override", "demo", "9/h", "--reason", "a launch"];
    service.prints(&set).await;
    let demo = service.config.registry().get("demo").expect("registered");
    service.limiter.unblock(demo.policy().charge("bob", 1)).await.expect("an answer");
    let shorter = "PEXPIRE plim:{overrides}:entries 1000000";
    assert_eq!(service.server.ask::<u64>(shorter), 1);
    service.server.ask::<()>("HSET plim:{offenders}:reports old {}");
    service.server.ask::<()>("ZADD plim:{offenders}:times 1 old");
    let before = content(&service.server);
    assert!(before.len() >= 5, "{}", before.len());
    for command in [
        &["peek", "42"][..],
        &["peek", "bob"],
        &["top"],
        &["top", "--by", "spent", "--policy", "demo"],
        &["override"],
        &["audit"],
    ] {
        service.prints(command).await;
        assert!(content(&service.server) == before, "{command:?}");
    }
    let peek = service.answers(&["peek", "42", "--policy", "demo"]).await;
    assert_eq!((&peek[0]["limit"], &peek[0]["remaining"]), (&9.into(), &6.into()));
    // A change is made by the process that was asked for it.
    let end = ["override", "demo", "end", "--key", "bob", "--reason", "done"];
    service.prints(&end).await;
    assert!(content(&service.server) != before);
}

/// Units and overrides are read over TLS, from a server that the machine trusts.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tls() {
    let (certificates, port) = (Certificates::make(), free_port());
    let arguments = certificates.arguments(port);
    let server = Server::start_with(&arguments.each_ref().map(String::as_str));
    let mut service = Service::with(RULES, server).await;
    service.target.truncate(2);
    service.spend("42", 3).await;
    let run = |arguments: &[&str], trusted: &str| {
        let url = format!("rediss://localhost:{port}");
        let mut command = service.command(arguments);
        command.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
        command.args(["--redis", &url]).output().expect("started")
    };
    let set = ["override", "demo", "9/h", "--reason", "a launch"];
    for command in [&set[..], &["peek", "42", "--policy", "demo"]] {
        let output = run(command, &certificates.authority());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {error}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("9/h") && !text.contains("no units"), "{text}");
    }
    assert!(!run(&["peek", "42"], "/dev/null").status.success());
}
