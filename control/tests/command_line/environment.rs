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
    assert!(server.len() > 30 && shell.len() == 5, "{server:?} {shell:?}");
    // The kind of value in both programs.
    let both = [
        ("PLIMSOLL_ADMIN_TOKEN", "operator"),
        ("PLIMSOLL_CONFIG", "limits"),
        ("PLIMSOLL_OVERRIDES_REDIS", "overrides"),
        ("PLIMSOLL_REDIS", "Redis server"),
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

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_the_token_of_the_environment() {
    let mut service = Service::start().await;
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
