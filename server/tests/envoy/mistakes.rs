//! Mistakes in configurations.

use Says::{Free, Ok, Over};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit::{
    Day, Hour,
};
use plimsoll_control::ConfigError;
use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};
use plimsoll_testing::shapes::{Wrong, word_of_rust, wrong_shapes};
use serde_json::{Value, json};

use crate::support::{Says, Service};

fn error(yaml: &str) -> String {
    let read = EnvoyConfig::from_text("limits.yaml", yaml, EnvoyOptions::default());
    read.expect_err(yaml).to_string()
}

/// A file with one descriptor, whose fields behind `key: user` are these lines.
fn descriptor(lines: &str) -> String {
    format!("domain: shop\ndescriptors:\n  - key: user\n    {}", lines.replace('\n', "\n    "))
}

#[test]
fn each_mistake_says_where_it_is_and_what_is_allowed() {
    let limit = |fields: &str| descriptor(&format!("rate_limit: {{ {fields} }}"));
    for (yaml, place, message) in [
        ("descriptors:".to_owned(), "limits.yaml", "the field `domain` is missing or empty"),
        ("domain: ''".to_owned(), "limits.yaml:1:", "the field `domain` is missing or empty"),
        ("'''".to_owned(), "limits.yaml", "error: "),
        ("domain: shop\ndescriptors:\n  - value: x".to_owned(), "limits.yaml:3:", "`key`"),
        ("domain: shop\ndescriptors: [a, b]".to_owned(), "limits.yaml:2:", "found the text \"a\""),
        ("0.25: shop".to_owned(), "limits.yaml:1:1", "error: "),
        (
            "domain: shop\ndescriptors: [{ key: a, value: b }, { key: a, value: b }]".to_owned(),
            "limits.yaml:2:",
            "the descriptor `a_b` is there twice",
        ),
        (limit("unit: foo, requests_per_unit: 5"), "limits.yaml:4:25", "unknown unit `foo`"),
        (
            limit("unit: minutes, requests_per_unit: 5"),
            "limits.yaml:4:25",
            "did you mean `minute`?",
        ),
        (limit("requests_per_unit: 5"), "limits.yaml:4:", "a limit has no kind, or several"),
        (
            limit("unit: day, requestsperunit: 5"),
            "limits.yaml:4:30",
            "did you mean `requests_per_unit`?",
        ),
        (limit("unit: day, requests_per_unit: -5"), "limits.yaml:4:", "found the number -5"),
        (limit("unit: day, requests_per_unit: 4294967296"), "limits.yaml:4:", "4294967296"),
        (descriptor("ratelimit: { unit: day }"), "limits.yaml:4:5", "did you mean `rate_limit`?"),
        (
            limit("unit: day, requests_per_unit: 5, shadow_mode: true"),
            "limits.yaml:4:52",
            "allowed: `shadow_mode` in a descriptor, beside its `key`",
        ),
        (descriptor("unit: day"), "limits.yaml:4:5", "allowed: `unit` in a `rate_limit`"),
        (limit("unlimited: true, unit: day"), "limits.yaml:4:", "a limit has no kind, or several"),
        (
            limit("name: self, replaces: [{ name: self }], unit: day, requests_per_unit: 5"),
            "limits.yaml:4:",
            "a limit cannot replace itself",
        ),
        (
            limit("replaces: [{ name: }], unit: day, requests_per_unit: 5"),
            "limits.yaml:4:",
            "the name of the limit to replace is empty",
        ),
        (descriptor("value: plain\nshare_threshold: true"), "limits.yaml:5:22", "needs a pattern"),
        (limit("quota: 20 concurrent"), "limits.yaml:4:26", "Envoy does not say which request"),
        (limit("quota: 100/minut"), "limits.yaml:4:26", "did you mean `100/minute`?"),
        (limit("quota: 100/min, unit: day"), "limits.yaml:4:", "a limit has no kind, or several"),
        (
            limit("quota: 100/min, requests_per_unit: 1"),
            "limits.yaml:4:",
            "a limit has no kind, or several",
        ),
        (
            limit("quota: 100/min, unlimited: true"),
            "limits.yaml:4:",
            "a limit has no kind, or several",
        ),
        (descriptor("shadow_mode: maybe"), "limits.yaml:4:", "true or false"),
    ] {
        let error = error(&yaml);
        assert!(error.contains(&format!("--> {place}")), "{yaml}\n{error}");
        assert!(error.contains(message), "{yaml}\n{error}");
    }
}

#[test]
fn values_of_wrong_types_are_shown_together_in_words() {
    let limit = json!({
        "unit": "day", "requests_per_unit": 5, "unlimited": false, "name": "n",
        "replaces": [{ "name": "other" }],
    });
    let descriptor = json!({
        "key": "user", "value": "x*", "rate_limit": limit, "shadow_mode": true, "quota_mode": true,
        "detailed_metric": true, "value_to_metric": true, "share_threshold": true, "count_denied": true,
        "metadata": { "plan": "free" },
        "descriptors": [{ "key": "path", "rate_limit": { "quota": "5/min" } }],
    });
    let file = json!({ "domain": "shop", "descriptors": [descriptor] });
    let mistakes = |file: &Value| -> Vec<String> {
        // JSON is YAML too.
        let text = serde_json::to_string_pretty(file).expect("a text");
        let read = EnvoyConfig::from_text("limits.yaml", &text, EnvoyOptions::default());
        let errors = read.err().map(|error| error.errors().to_vec()).unwrap_or_default();
        let shown = |error: &ConfigError| {
            let (error, message) = (error.to_string(), error.message());
            let allowed = error.lines().find_map(|line| line.split_once("= allowed: "));
            format!("{message}, {}", allowed.map_or("", |it| it.1))
        };
        errors.iter().map(shown).collect()
    };
    assert_eq!(mistakes(&file), Vec::<String>::new());
    let (mut found, mut last): (usize, Option<(Wrong, Vec<String>)>) = (0, None);
    for wrong in wrong_shapes(&file) {
        let document = wrong.in_document(&file);
        let alone = mistakes(&document);
        assert_eq!(word_of_rust(&alone.concat()), None, "{wrong:?}: {alone:?}");
        // A value of the right type that is not allowed is found later.
        if !alone.iter().any(|it| it.starts_with("found ") || it.starts_with("unknown field ")) {
            continue;
        }
        found += 1;
        if let Some((other, before)) = last.filter(|(it, _)| it.is_apart_from(&wrong)) {
            let (mut both, mut expected) =
                (mistakes(&other.in_document(&document)), [before, alone.clone()].concat());
            both.sort();
            expected.sort();
            assert_eq!(both, expected, "{wrong:?} and {other:?}");
        }
        last = Some((wrong, alone));
    }
    assert!(found > 120, "{found}");
}

/// YAML 1.1, which envoyproxy/ratelimit reads, has other words for truth values, and octal numbers.
#[tokio::test]
async fn values_of_yaml_1_1_are_read_where_they_mean_one_thing() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    for (word, is_shadow) in
        [("yes", true), ("On", true), ("y", true), ("no", false), ("OFF", false), ("true", true)]
    {
        let service = Service::new(&descriptor(&format!("shadow_mode: {word}\n{limit}")));
        assert_eq!(service.says("shop", "user=a").await, Ok(1, Day, 0), "{word}");
        let second = if is_shadow { Ok(1, Day, 0) } else { Over(1, Day) };
        assert_eq!(service.says("shop", "user=a").await, second, "{word}");
    }
    // Where a text is needed, the words are texts, and numbers are as they are written.
    for value in ["yes", "off", "010", "007", "1_000"] {
        let service = Service::new(&descriptor(&format!("value: {value}\n{limit}")));
        let says = service.says("shop", &format!("user={value}")).await;
        assert_eq!(says, Ok(1, Day, 0), "{value}");
        assert_eq!(service.says("shop", "user=other").await, Free, "{value}");
    }
    let error = |lines: &str| error(&descriptor(lines));
    assert!(error("shadow_mode: \"yes\"").contains("found the text \"yes\""));
    let octal = error("rate_limit: { unit: day, requests_per_unit: 010 }");
    assert!(octal.contains("found a number that begins with 0"), "{octal}");
}

/// Fields of envoyproxy/ratelimit that only its metrics have. A file keeps its limits.
#[tokio::test]
async fn fields_without_an_effect_are_named() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let fields = "detailed_metric: true\nvalue_to_metric: true";
    let yaml = descriptor(&format!("{fields}\n{limit}"));
    let config = EnvoyConfig::from_text("limits.yaml", &yaml, EnvoyOptions::default()).unwrap();
    let ignored: Vec<_> = config.ignored_fields().collect();
    assert_eq!(ignored, ["detailed_metric", "value_to_metric"]);
    assert_eq!(Service::of(config).says("shop", "user=a").await, Ok(1, Day, 0));
}

#[test]
fn all_mistakes_of_all_files_are_shown_with_their_lines() {
    let texts = [
        (
            "a.yaml",
            "domain: a\ndescriptors:\n  - key: x\n    rate_limit: { unit: hous }\n  - value: y",
        ),
        ("b.yaml", "domain: b\n"),
        ("c.yaml", "domian: c\n"),
    ];
    let error = EnvoyConfig::from_texts(texts, EnvoyOptions::default()).unwrap_err();
    let places: Vec<_> = error.errors().iter().map(|it| (it.line(), it.message())).collect();
    assert_eq!(places.len(), 3, "{error}");
    assert_eq!(places[0], (Some(4), "unknown unit `hous`"));
    assert_eq!(places[1].0, Some(5));
    assert_eq!(places[2], (Some(1), "unknown field `domian`"));
    let shown = error.to_string();
    assert!(shown.contains(" 4 |     rate_limit: { unit: hous }"), "{shown}");
    assert!(shown.contains(" |                         ^^^^"), "{shown}");
}

#[tokio::test]
async fn files_and_folders_are_read() {
    let folder = plimsoll_testing::servers::directory();
    let limit = "descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 5 } }]";
    std::fs::create_dir_all(folder.join("..hidden")).unwrap();
    std::fs::create_dir_all(folder.join("folder.yaml")).unwrap();
    for (name, text) in [
        ("b.yml", format!("domain: b\n{limit}")),
        ("a.yaml", format!("domain: a\n{limit}")),
        ("c.json", r#"{"domain": "c", "descriptors": [{"key": "user"}]}"#.to_owned()),
        (".hidden.yaml", "hidden: yes".to_owned()),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let alone = plimsoll_testing::servers::directory().join("alone");
    std::fs::write(&alone, format!("domain: d\n{limit}")).unwrap();
    let config = EnvoyConfig::load([&folder, &alone], EnvoyOptions::default()).unwrap();
    assert_eq!(config.domains(), 4);
    let service = Service::of(config);
    for domain in ["a", "b", "d"] {
        assert_eq!(service.says(domain, "user=x").await, Ok(5, Hour, 4), "{domain}");
    }
    let error = EnvoyConfig::load([folder.join("nothing")], EnvoyOptions::default()).unwrap_err();
    assert!(error.to_string().contains("the file cannot be read"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A descriptor has one limit, also with envoyproxy/ratelimit.
#[test]
fn a_second_limit_of_a_descriptor_is_an_error_that_names_the_way_to_it() {
    let limit = |unit: &str| format!("{{ unit: {unit}, requests_per_unit: 5 }}");
    let (second, day) = (limit("second"), limit("day"));
    for descriptor in [
        format!("  - key: user\n    rate_limit: {second}\n    rate_limit: {day}\n"),
        format!("  - key: user\n    rate_limit: [{second}, {day}]\n"),
        format!("  - key: user\n    rate_limit: {second}\n  - key: user\n    rate_limit: {day}\n"),
    ] {
        let text = format!("domain: shop\ndescriptors:\n{descriptor}");
        let error = EnvoyConfig::from_text("shop.yaml", &text, EnvoyOptions::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("second descriptor with another `descriptor_key`"), "{error}");
        assert!(error.contains("shop.yaml:"), "{error}");
    }
}
