//! Values of wrong types: all mistakes are shown, in words for people who do not know Rust.

use plimsoll_control::{Config, Format};
use plimsoll_testing::{
    seed::property,
    shapes::{Wrong, word_of_rust, wrong_shapes},
};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Value, json};

/// A document with each field that a configuration can have.
fn document() -> Value {
    let redis = json!({
        "url": "redis://localhost", "prefix": "shop", "secret": "0123456789abcdef0123456789abcdef",
        "plain_keys": false, "connections": 2, "batching": true, "connect_timeout": "1s",
        "response_timeout": "500ms", "lazy": true,
    });
    let mut nodes = redis.clone();
    let fields = nodes.as_object_mut().expect("a table");
    fields.remove("url");
    fields.insert("sentinels".into(), json!(["redis://one", "redis://two"]));
    fields.insert("primary".into(), json!("main"));
    json!({
        "$schema": "limits.schema.json",
        "enabled": true,
        "policies": { "api": "100/min", "free": { "quota": "50/min", "unit": "kib" }, "new": "9/min" },
        "rules": [
            {
                "policy": "free", "key": { "first_of": [{ "header": "x-api-key" }, "client_ip"] },
                "only": ["GET /search"], "cost": 2, "costs": { "POST": 5 },
                "tier": { "claim": "plan" }, "tiers": { "gold": "api" }, "shadow": true,
                "trials": ["new"], "on_failure": "deny",
            },
            { "policy": "api", "key": { "all_of": [{ "cookie": "id" }, { "claim": "team" }] } },
        ],
        "exempt": ["/health"],
        "exempt_preflights": true,
        "client_ip": {
            "header": "x-forwarded-for", "trusted_proxies": ["10.0.0.0/8"], "ipv6_prefix": 56,
        },
        "headers": {
            "draft11": true, "x_ratelimit": "off", "partition_secret": "0123456789abcdef0123456789abcdef",
        },
        "delay": "1s",
        "jitter": "1s",
        "plain_text": true,
        "store": { "redis": nodes, "regions": {
            "count": 2, "home": redis, "share_percent": 70, "home_deadline": "1s",
        } },
        "resilience": {
            "deadline": "20ms", "instances": 5, "deny_cache": true, "leases": true,
            "breaker": true, "fallback": false,
        },
    })
}

#[test]
fn the_rules_are_shown_as_lines() {
    let config = Config::from_text(&document().to_string(), Format::Json).unwrap();
    assert_eq!(
        config.rules(),
        [
            "free by first_of(header(x-api-key), client_ip), only GET /search, cost 2, costs POST: 5, \
             tier claim(plan), tiers gold: api, trials new, on failure deny, shadow",
            "api by all_of(cookie(id), claim(team))",
        ]
    );
}

/// YAML 1.1 has more words for truth values. They are texts where a text is needed, and in quotes.
#[test]
fn words_of_yaml_1_1_are_truth_values_or_texts() {
    let read = |shadow: &str| {
        let policy = "policies: { yes: 1/s }\nrules:\n  - policy: yes\n    key: { cookie: On }\n";
        let config = Config::from_text(&format!("{policy}    shadow: {shadow}\n"), Format::Yaml);
        config.map(|config| config.rules()).map_err(|error| error.to_string())
    };
    for word in ["yes", "Yes", "ON", "y", "true"] {
        assert_eq!(read(word).expect(word), ["yes by cookie(On), shadow"]);
    }
    for word in ["no", "No", "OFF", "n", "false"] {
        assert_eq!(read(word).expect(word), ["yes by cookie(On)"]);
    }
    let quoted = read("\"yes\"").unwrap_err();
    assert!(quoted.contains("found the text \"yes\""), "{quoted}");
}

/// Returns the mistakes of a document, without their places.
fn mistakes(document: &Value, format: Format) -> Vec<String> {
    let text = serde_json::to_string_pretty(document).expect("a text");
    let Err(error) = Config::from_text(&text, format) else { return Vec::new() };
    let error = error.to_string();
    let is_place = |line: &str| line.contains("-->") || line.contains(" |");
    let without_place = |mistake: &str| {
        mistake.lines().filter(|line| !is_place(line)).map(str::trim).collect::<Vec<_>>().join("\n")
    };
    error.split("\n\n").map(without_place).collect()
}

/// Returns the values that are wrong by their form alone, each with its mistakes. These are shown together with
/// another mistake of form, and mistakes of meaning are not.
fn wrong_by_form(document: &Value, format: Format) -> Vec<(Wrong, Vec<String>)> {
    let all = wrong_shapes(document).into_iter();
    let found = all.filter_map(|wrong| {
        let mut document = wrong.in_document(document);
        let alone = mistakes(&document, format);
        assert_eq!(word_of_rust(&alone.concat()), None, "{wrong:?}: {alone:?}");
        let other = if wrong.pointer.starts_with("/enabled") { "plain_text" } else { "enabled" };
        document[other] = json!("perhaps");
        let is_of_form = mistakes(&document, format).len() == alone.len() + 1;
        (is_of_form && !alone.is_empty()).then_some((wrong, alone))
    });
    found.collect()
}

#[test]
fn the_document_has_each_field() {
    fn names(schema: &Value, found: &mut Vec<String>) {
        if let Some(fields) = schema["properties"].as_object() {
            found.extend(fields.keys().cloned());
        }
        let inside = schema.as_object().into_iter().flat_map(|fields| fields.values());
        inside.chain(schema.as_array().into_iter().flatten()).for_each(|it| names(it, found));
    }
    let (schema, mut found) =
        (serde_json::from_str(Config::JSON_SCHEMA).expect("JSON"), Vec::new());
    names(&schema, &mut found);
    let text = document().to_string();
    // A memory and a cluster are beside no other store, and keys have one name each.
    let others =
        ["memory", "max_keys", "max_bytes", "cluster", "name_in_header", "path_param", "constant"];
    found.retain(|name| !text.contains(&format!("{name:?}:")) && !others.contains(&&**name));
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(mistakes(&document(), Format::Json), Vec::<String>::new());
}

#[test]
fn all_values_of_wrong_types_are_shown_in_words() {
    // JSON is YAML too.
    for format in [Format::Json, Format::Yaml] {
        let document = document();
        let mut wrong = wrong_by_form(&document, format);
        // A key with a second name is wrong as a whole.
        let is_key = |it: &str| it.contains("/key") || it.contains("/tier/");
        wrong.retain(|(it, _)| !(it.pointer.ends_with("zzz-unknown") && is_key(&it.pointer)));
        assert!(wrong.len() > 400, "{}", wrong.len());
        let name = "values of wrong types";
        property(name, ProptestConfig::with_cases(200), vec(any::<Index>(), 2..9), |picks| {
            let mut planted: Vec<&(Wrong, Vec<String>)> = Vec::new();
            for pick in picks {
                let one = pick.get(&wrong);
                if planted.iter().all(|(other, _)| other.is_apart_from(&one.0)) {
                    planted.push(one);
                }
            }
            let document = planted
                .iter()
                .fold(document.clone(), |document, (it, _)| it.in_document(&document));
            let (mut expected, mut shown): (Vec<_>, _) = (
                planted.iter().flat_map(|(_, mistakes)| mistakes.clone()).collect(),
                mistakes(&document, format),
            );
            expected.sort();
            shown.sort();
            prop_assert_eq!(shown, expected, "{:#}", document);
            Ok(())
        });
    }
}

#[test]
fn mistakes_of_meaning_are_shown_together_too() {
    let text = "policies.api = '5/min'
policies.UPPER = '5/min'
[[rules]]
policy = 'apo'
key = { first_of = [] }
only = []
[[rules]]
policy = 'api'
key = 'peer_ip'
tier = { claim = 'plan' }
trials = ['api']
cost = 6
costs = { 'post /x' = 1, 'POST /y' = 7, GET = 5 }
[store.redis]
url = 'localhost'
";
    let error = Config::from_text(text, Format::Toml).unwrap_err().to_string();
    let lines: Vec<_> = error
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--> limits.toml:"))
        .filter_map(|place| place.split(':').next()?.parse::<usize>().ok())
        .collect();
    assert_eq!(lines, [2, 4, 5, 6, 10, 11, 12, 13, 13, 15], "{error}");
}
