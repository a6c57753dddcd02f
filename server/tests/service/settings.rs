//! Flags, environment variables, the settings file, and what they print.

use std::{fs, path::Path};

use plimsoll_server::settings::Flags;
use plimsoll_testing::{
    servers::directory,
    shapes::{Wrong, word_of_rust, wrong_shapes},
};
use serde_json::{Map, Value};

use crate::support::{Service, program};

fn output(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = program().args(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_version_and_the_default_config_are_printed() {
    let (code, out, _) = output(&["--version"], &[]);
    assert_eq!(
        (code, &*out),
        (Some(0), concat!("plimsoll-server ", env!("CARGO_PKG_VERSION"), "\n"))
    );
    let (code, out, _) = output(&["--print-default-config"], &[]);
    assert_eq!(code, Some(0));
    let folder = directory();
    let file = write(&folder, "limits.toml", &out);
    let (code, out, _) = output(&["--check", "--config", &file], &[]);
    assert_eq!((code, &*out), (Some(0), "the settings and the limits are valid: 1 policy\n"));
}

#[test]
fn a_check_finds_the_mistake_and_its_line() {
    let folder = directory();
    let file = write(&folder, "limits.toml", "[policies]\napi = \"100/fortnight\"\n");
    let (code, out, error) = output(&["--check", "--config", &file], &[]);
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(error.starts_with("error: ") && error.contains("limits.toml:2:7"), "{error}");
    for (arguments, expected) in [
        (&["--check", "--config", "/nowhere/limits.toml"][..], "/nowhere/limits.toml"),
        (&["--check", "--settings", "/nowhere/settings.toml"], "/nowhere/settings.toml"),
        (&["--check", "--receipt-lifetime", "25h"], "allowed is 1s to 24h"),
        (&["--check", "--http", "0.0.0.0:8080"], "--unauthenticated"),
        (&["--check", "--grpc", "[::]:8081"], "--unauthenticated"),
        (&["--check", "--redis-primary", "main"], "redis-sentinels with redis-primary"),
        (&["--check", "--htpt", "x"], "--http"),
        (&["--check", "--log-format", "xml"], "expected `text` or `json`"),
    ] {
        let (code, _, error) = output(arguments, &[]);
        assert!(
            code.is_some_and(|code| code > 0) && error.contains(expected),
            "{arguments:?}: {error}"
        );
    }
    let open = ["--check", "--http", "0.0.0.0:8080"];
    assert_eq!(output(&[&open[..], &["--unauthenticated"]].concat(), &[]).0, Some(0));
    assert_eq!(output(&open, &[("PLIMSOLL_TOKEN", "0123456789abcdef")]).0, Some(0));
}

#[test]
fn a_check_reads_the_urls_of_redis_and_connects_to_none() {
    let folder = directory();
    let file = |url: &str| {
        write(&folder, "limits.toml", &format!("policies.a = '1/s'\nstore.redis.url = '{url}'"))
    };
    let wrong = [
        "http://user:the-password@x/",
        "redis://user:the-password@x:99999/",
        "redis://user:the/the-password@x/",
        "redis://user:1#the-password@x/",
        "redis://user:1?the-password@x/",
        "x",
        "",
    ];
    for url in wrong {
        for (field, arguments) in [
            ("redis", &["--redis", url][..]),
            ("redis-cluster", &["--redis-cluster", &format!("redis://127.0.0.1:1/,{url}")]),
            ("redis-sentinels", &["--redis-sentinels", url, "--redis-primary", "main"]),
            ("overrides-redis", &["--overrides-redis", url]),
        ] {
            let (code, out, error) = output(&[&["--check"], arguments].concat(), &[]);
            assert_eq!((code, &*out), (Some(1), ""), "{arguments:?}");
            assert!(error.contains(&format!("{field} is not valid")), "{arguments:?}: {error}");
            assert!(!error.contains("the-password"), "{error}");
        }
    }
    let wrong_file = file("redis://user:the-password@x:99999/");
    let (code, _, error) = output(&["--check", "--config", &wrong_file], &[]);
    assert!(code == Some(1) && error.contains("limits.toml:2:"), "{error}");
    assert!(!error.contains("the-password"), "{error}");
    // No server is at these ports.
    let right_file = file("rediss://user:the-password@127.0.0.1:1/2");
    for arguments in [
        &["--redis", "redis://:the-password@127.0.0.1:1/0"][..],
        &["--redis", "unix:///run/redis.sock"],
        &["--redis-cluster", "redis://127.0.0.1:1/,redis://127.0.0.1:2/"],
        &["--redis-sentinels", "redis://127.0.0.1:1/", "--redis-primary", "main"],
        &["--overrides-redis", "redis://127.0.0.1:1/"],
        &["--config", &right_file],
    ] {
        let (code, _, error) = output(&[&["--check"], arguments].concat(), &[]);
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
    }
}

#[test]
fn a_check_names_the_store_of_a_region_whose_url_is_wrong() {
    let folder = directory();
    let check = |local: &str, home: &str| {
        let limits = format!(
            "policies.a = '1/s'\nstore.redis.url = '{local}'\n\
             store.regions = {{ count = 2, home = {{ url = '{home}' }} }}"
        );
        output(&["--check", "--config", &write(&folder, "limits.toml", &limits)], &[])
    };
    let right = "redis://:the-password@127.0.0.1:1/";
    let (code, out, error) = check(right, right);
    assert_eq!(
        (code, &*out),
        (Some(0), "the settings and the limits are valid: 1 policy\n"),
        "{error}"
    );
    for wrong in ["http://user:the-password@x/", "redis://user:the-password@x:99999/"] {
        for (local, home, expected) in
            [(wrong, right, "limits.toml:2:"), (right, wrong, "limits.toml:3:")]
        {
            let (code, out, error) = check(local, home);
            assert_eq!((code, &*out), (Some(1), ""), "{error}");
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(!error.contains("the-password"), "{error}");
        }
    }
}

#[test]
fn an_empty_variable_is_not_set() {
    let names = [
        "PLIMSOLL_SETTINGS",
        "PLIMSOLL_HTTP",
        "PLIMSOLL_CONFIG",
        "PLIMSOLL_REDIS",
        "PLIMSOLL_REDIS_CLUSTER",
        "PLIMSOLL_REDIS_LAZY",
        "PLIMSOLL_MAX_CONNECTIONS",
        "PLIMSOLL_DRAIN",
        "PLIMSOLL_LOG_FORMAT",
        "PLIMSOLL_UNAUTHENTICATED",
        "PLIMSOLL_TOKEN",
    ];
    for name in names {
        let (code, out, error) = output(&["--check"], &[(name, "")]);
        assert_eq!(code, Some(0), "{name}: {error}");
        assert!(out.contains("1 policy"), "{out}");
    }
    let (code, _, error) = output(&["--check"], &[("PLIMSOLL_HTTP", " ")]);
    assert!(code.is_some_and(|code| code > 0) && error.contains("--http"), "{error}");
}

#[test]
fn a_folder_has_files_in_all_formats() {
    let folder = directory();
    write(&folder, "a.toml", "policies.a = '1/s'");
    write(&folder, "b.yaml", "policies: {b: 1/s}");
    write(&folder, "c.json", "{\"policies\": {\"c\": \"1/s\"}}");
    write(&folder, ".hidden.toml", "no limits");
    let path = folder.to_str().unwrap();
    let (_, out, error) = output(&["--check", "--config", path], &[]);
    assert!(out.contains("3 policies"), "{out}{error}");
    let service = Service::start(&["--config", path]);
    for policy in ["a", "b", "c"] {
        assert_eq!(service.check(policy, "alice", 1).status, 200, "{policy}");
    }
    // A name is one policy.
    write(&folder, "d.toml", "policies.a = '2/s'");
    let (code, _, error) = output(&["--check", "--config", path], &[]);
    assert!(code == Some(1) && error.contains("\"a\" is registered with 1/s"), "{error}");
    let (_, _, error) = output(&["--check", "--config", "/proc/self/fdinfo"], &[]);
    assert!(error.contains("files that would not be read"), "{error}");
}

#[test]
fn flags_are_before_variables_and_both_before_the_file() {
    let folder = directory();
    let settings = write(
        &folder,
        "settings.toml",
        "receipt-lifetime = '1h'\nhttp = 'off'\nconfig = ['limits.toml']",
    );
    write(&folder, "limits.toml", "policies.api = '5/s'");
    let expires = |service: &Service| {
        let body = "{\"charges\":[{\"policy\":\"api\",\"key\":\"a\"}]}";
        service.post("/v1/reserve", body).json()["expires_in"].as_f64().unwrap()
    };
    let of_file = Service::start(&["--settings", &settings]);
    assert_eq!(expires(&of_file), 3_600.0);
    let variables = [("PLIMSOLL_SETTINGS", &*settings), ("PLIMSOLL_RECEIPT_LIFETIME", "2h")];
    let of_variables = Service::start_with(&[], &variables);
    assert_eq!(expires(&of_variables), 7_200.0);
    let of_flags = Service::start_with(&["--receipt-lifetime", "30min"], &variables);
    assert_eq!(expires(&of_flags), 1_800.0);
}

/// A settings file with each field that it can have.
fn every_setting() -> Value {
    let text = r#"{
        "http": "off", "grpc": "off", "admin": "off", "unauthenticated": true, "config": ["limits.toml"],
        "envoy-config": ["envoy.yaml"], "on-failure": "deny", "receipt-lifetime": "1min",
        "redis-sentinels": ["redis://one", "redis://two"], "redis-primary": "main", "redis-lazy": true,
        "overrides-redis": "redis://one", "max-connections": 100,
        "head-timeout": "10s", "request-timeout": "10s", "idle-timeout": "10s",
        "max-connection-age": "1h", "drain": "1s", "shutdown-timeout": "10s", "log-format": "json",
        "log": "info", "instance": "one", "show-keys": true, "token": "0123456789abcdef",
        "admin-token": "0123456789abcde0", "receipt-secret": "0123456789abcdef",
        "clients": [{ "name": "a", "token": "0123456789abcde1", "policies": ["*"] }],
        "operators": [{ "name": "o", "token": "0123456789abcde2", "role": "read" }],
        "envoy": {
            "decide": "each", "algorithm": "fixed-window", "remove-domains": true, "shadow-mode": true,
            "quota-mode": true, "strict-looks": true, "on-failure": "deny", "ratelimit-headers": true,
            "dynamic-metadata": true
        }
    }"#;
    serde_json::from_str(text).expect("JSON")
}

/// Writes JSON as TOML, or returns `None` if it has null or a number that TOML has not.
fn toml(value: &Value) -> Option<String> {
    let fields = |fields: &Map<String, Value>, equals: &str, between: &str| {
        let fields = fields.iter().map(|(name, it)| Some(format!("{name:?}{equals}{}", toml(it)?)));
        Some(fields.collect::<Option<Vec<_>>>()?.join(between))
    };
    Some(match value {
        Value::Null => return None,
        Value::Number(number) if number.as_u64() > Some(i64::MAX as u64) => return None,
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::Object(table) => format!("{{ {} }}", fields(table, " = ", ", ")?),
        other => other.to_string(),
    })
}

/// Returns the mistakes of a settings file, without their places.
fn mistakes_of(settings: &Value, file: &Path) -> Option<Vec<String>> {
    let fields = settings.as_object().expect("a table").iter();
    let lines = fields.map(|(name, value)| Some(format!("{name} = {}\n", toml(value)?)));
    fs::write(file, lines.collect::<Option<String>>()?).expect("written");
    let flags = Flags::parse_from(["plimsoll-server", "--settings", file.to_str()?]);
    let Err(error) = flags.expect("flags").settings() else { return Some(Vec::new()) };
    let error = error.to_string();
    let without_place = |mistake: &str| {
        let lines = mistake.lines().filter(|line| !line.contains("-->"));
        lines.map(str::trim).collect::<Vec<_>>().join("\n")
    };
    Some(error.split("\n\n").map(without_place).collect())
}

#[test]
fn settings_of_wrong_types_are_shown_together_in_words() {
    let (file, settings) = (directory().join("settings.toml"), every_setting());
    assert_eq!(mistakes_of(&settings, &file), Some(Vec::new()));
    let (mut found, mut last): (usize, Option<(Wrong, Vec<String>)>) = (0, None);
    for wrong in wrong_shapes(&settings) {
        let document = wrong.in_document(&settings);
        let Some(alone) = mistakes_of(&document, &file).filter(|it| !it.is_empty()) else {
            continue;
        };
        assert_eq!(word_of_rust(&alone.concat()), None, "{wrong:?}: {alone:?}");
        if !alone[0].starts_with("error: ") {
            // A value of the right type that is not allowed is found later.
            continue;
        }
        found += 1;
        if let Some((other, mistakes)) = last.filter(|(other, _)| other.is_apart_from(&wrong)) {
            let (mut both, mut expected) = (
                mistakes_of(&other.in_document(&document), &file).expect("TOML"),
                [mistakes, alone.clone()].concat(),
            );
            both.sort();
            expected.sort();
            assert_eq!(both, expected, "{wrong:?} and {other:?}");
        }
        last = Some((wrong, alone));
    }
    assert!(found > 250, "{found}");
}

#[test]
fn secrets_are_checked_and_not_printed() {
    let folder = directory();
    let client =
        |token: &str| format!("[[clients]]\nname = 'a'\ntoken = '{token}'\npolicies = ['*']\n");
    for (settings, expected) in [
        (client("short-secret"), "16 to 1024 printable"),
        (client("with a space in the secret"), "16 to 1024 printable"),
        (client("${NOT_SET_ANYWHERE}"), "not set"),
        (client("a-long-secret-00").repeat(2), "another client"),
        (format!("{}tokn = 1\n", client("a-long-secret-00")), "= help: did you mean `token`?"),
        (format!("{}tokn = 1\n", client("a-long-secret-00")), "settings.toml:5:1"),
        ("token = 'a-long-secret-00\n".to_owned(), "settings.toml:1"),
        (
            "[[clients]]\nname = 'a'\ntoken = 'a-long-secret-00'\npolicies = []\n".to_owned(),
            "one policy or more",
        ),
    ] {
        let file = write(&folder, "settings.toml", &settings);
        let (code, _, error) = output(&["--check", "--settings", &file], &[]);
        assert!(code == Some(1) && error.contains(expected), "{settings}: {error}");
        assert!(!error.contains("secret-00") && !error.contains("short-secret"), "{error}");
    }
    for variable in ["PLIMSOLL_TOKEN", "PLIMSOLL_ADMIN_TOKEN", "PLIMSOLL_RECEIPT_SECRET"] {
        let (code, _, error) = output(&["--check"], &[(variable, "short-secret")]);
        assert!(
            code == Some(1) && error.contains("16 to 1024") && !error.contains("short-secret"),
            "{error}"
        );
    }
}

#[test]
fn the_page_lists_each_setting() {
    let page = include_str!("../../README.md");
    let (_, help, _) = output(&["--help"], &[]);
    let mut count = 0;
    for line in help.lines().map(str::trim).filter(|line| line.starts_with("--")) {
        let flag = line.split([' ', '[']).next().unwrap();
        let Some(variable) = line.split("[env: ").nth(1).and_then(|it| it.split('=').next()) else {
            continue;
        };
        let row = page.lines().find(|row| is_row_of(row, flag));
        let row = row.unwrap_or_else(|| panic!("no row for {flag}"));
        assert!(row.contains(&format!("`{variable}`")), "{row}");
        let default =
            row.split(" | ").nth(2).and_then(|it| it.strip_prefix('`')?.strip_suffix('`'));
        if let Some(default) = default {
            assert!(line.contains(&format!("[default: {default}]")), "{default}: {line}");
        }
        count += 1;
    }
    assert!(count > 20, "{help}");
    for variable in ["PLIMSOLL_TOKEN", "PLIMSOLL_ADMIN_TOKEN", "PLIMSOLL_RECEIPT_SECRET"] {
        assert!(page.contains(&format!("| `{variable}`")), "no row for {variable}");
    }
}

fn is_row_of(row: &str, flag: &str) -> bool {
    let rest = row.strip_prefix("| `").and_then(|row| row.strip_prefix(flag));
    rest.is_some_and(|rest| rest.starts_with(['`', ' ']))
}
