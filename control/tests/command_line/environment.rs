//! The environment variables of the command line and of plimsoll-server: a name in both means the same.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const SHELL: &str = include_str!("../../src/bin/plimsoll/args.rs");
const SHELL_PAGE: &str = include_str!("../../docs/command-line.md");
const SERVER: [&str; 3] = [
    include_str!("../../../server/src/settings/flags.rs"),
    include_str!("../../../server/src/settings/options.rs"),
    include_str!("../../../server/src/settings/secrets.rs"),
];
const SERVER_PAGE: &str = include_str!("../../../server/README.md");

/// Returns the variables that a program reads: the texts of its source that are names of one.
fn variables(source: &str) -> BTreeSet<String> {
    let texts = source.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.starts_with("PLIMSOLL_")
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    texts.filter(is_name).map(str::to_owned).collect()
}

/// Returns the rows of a page about a variable: what it says about each.
fn rows(page: &str) -> BTreeMap<String, String> {
    let cell = |line: &str, at: usize| line.split(" | ").nth(at).unwrap_or_default().to_owned();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    rows.map(|line| (cell(line, 1).trim_matches('`').to_owned(), line.to_owned())).collect()
}

#[test]
fn a_name_in_both_programs_means_the_same() {
    let shell = variables(SHELL);
    let server: BTreeSet<_> = SERVER.iter().flat_map(|source| variables(source)).collect();
    assert!(server.len() > 30 && shell.len() >= 5, "{server:?} {shell:?}");
    // Each variable has the same kind of value in both programs. The test below gives one value to both.
    let both = [
        ("PLIMSOLL_ADMIN_TOKEN", "operator"),
        ("PLIMSOLL_CONFIG", "file"),
        ("PLIMSOLL_OVERRIDES_REDIS", "overrides"),
        ("PLIMSOLL_REDIS", "Redis"),
    ];
    let shared: Vec<_> = shell.intersection(&server).map(String::as_str).collect();
    assert_eq!(shared, both.map(|(name, _)| name));
    let (shell, server) = (rows(SHELL_PAGE), rows(SERVER_PAGE));
    for (name, word) in both {
        for page in [&shell, &server] {
            let row = page.get(name).unwrap_or_else(|| panic!("no row for {name}"));
            assert!(row.contains(word), "{row}");
        }
    }
}

/// A shell beside the server, in the environment of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_shell_in_the_environment_of_the_server_finds_the_service() {
    let mut service = Service::over_redis().await;
    service.spend("42", 2).await;
    let (url, folder) = (service.server.url(), service.folder.clone());
    let file = service.target[1].clone();
    service.target.clear();
    let run = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = service.command(arguments);
        command.env("PLIMSOLL_ADMIN", "127.0.0.1:1").env("PLIMSOLL_TOKEN", "token-of-a-client");
        command.env("PLIMSOLL_ADMIN_TOKEN", "token-of-an-operator");
        command.envs(variables.iter().copied()).output().expect("started")
    };
    let finds = |variables: &[(&str, &str)]| {
        let output = run(variables, &["peek", "42"]);
        String::from_utf8_lossy(&output.stdout).contains("3 of 5")
    };
    let folder = folder.display().to_string();
    let redis = ("PLIMSOLL_REDIS", url.as_str());
    assert!(finds(&[("PLIMSOLL_CONFIG", &file), redis]));
    assert!(finds(&[("PLIMSOLL_CONFIG", &format!("{file},")), redis]));
    // The server reads all files of a folder, and one of them is a file of plimsoll.
    let envoy = service.folder.join("envoy.yaml");
    fs::write(&envoy, "domain: shop\ndescriptors: []\n").expect("written");
    assert!(finds(&[("PLIMSOLL_CONFIG", &folder), redis]));
    // The variable beats the file, as it does in the server.
    let nowhere = "[store.redis]\nurl = 'redis://127.0.0.1:1'\n";
    fs::write(&file, format!("{CONFIG}{nowhere}")).expect("written");
    assert!(finds(&[("PLIMSOLL_CONFIG", &file), redis]));
    assert!(!finds(&[("PLIMSOLL_CONFIG", &file), ("REDIS_URL", &url)]));
    // Overrides may be on another server.
    let others = Server::start();
    let overrides = ("PLIMSOLL_OVERRIDES_REDIS", others.url());
    let variables = [("PLIMSOLL_CONFIG", file.as_str()), redis, (overrides.0, &overrides.1)];
    assert!(run(&variables, &["override", "demo", "9/10min"]).status.success());
    let has_overrides = |server: &Server| server.keys().iter().any(|it| it.ends_with(b":entries"));
    assert!(has_overrides(&others) && !has_overrides(&service.server));

    fs::write(service.folder.join("other.toml"), CONFIG).expect("written");
    let output = run(&[("PLIMSOLL_CONFIG", &folder), redis], &["peek", "42"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("PLIMSOLL_CONFIG names 2 files") && message.contains("--config FILE"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_the_token_of_the_environment() {
    let mut service = Service::over_http().await;
    let page = service.target[1].clone();
    service.target.clear();
    let run = |token: &str| {
        let mut command = service.command(&["peek", "42"]);
        command.env("PLIMSOLL_ADMIN_URL", &page).env("PLIMSOLL_ADMIN_TOKEN", token);
        let output = command.output().expect("started");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(run(TOKEN).0);
    let (is_found, message) = run("");
    assert!(!is_found && message.contains("PLIMSOLL_ADMIN_TOKEN"), "{message}");
}
