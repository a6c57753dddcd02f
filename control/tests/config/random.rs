//! Random texts never panic, and act as a whole or not at all.

use std::{cell::Cell, convert::Infallible, fmt::Write, net::SocketAddr};

use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Request, Response},
};
use plimsoll::{Limiter, MemoryStore, clock::ManualClock, memory::MemoryConfig};
use plimsoll_control::{Claims, Config, ConfigLayer, Format, Registry};
use plimsoll_testing::seed::property;
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};
use tokio::runtime::Builder;
use tower::{Layer, ServiceExt};

use crate::service::Directory;

const EXAMPLES: [(Format, &str); 3] = [
    (Format::Toml, include_str!("../../docs/config/limits.toml")),
    (Format::Yaml, include_str!("../../docs/config/limits.yaml")),
    (Format::Json, include_str!("../../docs/config/limits.json")),
];

/// A change of a text at a random place.
#[derive(Debug, Clone)]
enum Change {
    Insert(Index, String),
    Remove(Index, usize),
    /// Copies a part of the text to another place.
    Copy(Index, Index, usize),
    /// Exchanges two words.
    Words(Index, Index),
    /// Replaces a digit.
    Digit(Index, u8),
    Truncate(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let piece = prop_oneof![
        select(vec![
            "\"",
            "'",
            "[",
            "]",
            "{",
            "}",
            "=",
            ":",
            "-",
            "\n",
            " ",
            "#",
            ",",
            "0",
            "-1",
            "true",
            "null",
            "off",
            "&a",
            "*a",
            "<<: *a",
            "${",
            "${HOME}",
            "\u{feff}",
            "é",
            "1e400",
            "99999999999999999999",
            "policy",
            "key",
            "10/s",
            "1979-05-27",
            "inf",
            "!!binary",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,6}",
    ];
    prop_oneof![
        3 => (any::<Index>(), piece).prop_map(|(at, text)| Change::Insert(at, text)),
        3 => (any::<Index>(), 1..20_usize).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (any::<Index>(), any::<Index>(), 1..60_usize)
            .prop_map(|(from, to, count)| Change::Copy(from, to, count)),
        3 => (any::<Index>(), any::<Index>()).prop_map(|(one, other)| Change::Words(one, other)),
        6 => (any::<Index>(), 0..10_u8).prop_map(|(at, digit)| Change::Digit(at, digit)),
        1 => any::<Index>().prop_map(Change::Truncate),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text: Vec<char> = text.replace("${REDIS_URL}", "redis://localhost").chars().collect();
    for change in changes {
        let len = text.len();
        let range = |at: &Index, count: usize| {
            let at = at.index(len + 1);
            at..(at + count).min(len)
        };
        match change {
            Change::Insert(at, piece) => drop(text.splice(range(at, 0), piece.chars())),
            Change::Remove(at, count) => drop(text.drain(range(at, *count))),
            Change::Copy(from, to, count) => {
                let part = text[range(from, *count)].to_vec();
                text.splice(range(to, 0), part);
            }
            Change::Words(one, other) => {
                let joined: String = text.iter().collect();
                let mut words: Vec<&str> = joined.split_inclusive([' ', '\n', '"']).collect();
                let count = words.len();
                if count > 0 {
                    words.swap(one.index(count), other.index(count));
                }
                text = words.concat().chars().collect();
            }
            Change::Digit(at, digit) => {
                let mut digits: Vec<_> = text.iter_mut().filter(|c| c.is_ascii_digit()).collect();
                let count = digits.len();
                if count > 0 {
                    *digits[at.index(count)] = char::from(b'0' + digit);
                }
            }
            Change::Truncate(at) => text.truncate(at.index(len + 1)),
        }
    }
    text.into_iter().collect()
}

/// Everything that a configuration has put into a registry.
fn state(registry: &Registry) -> String {
    registry.policies().iter().fold(String::new(), |mut text, entry| {
        let (policy, unit) = (entry.policy(), entry.policy().unit());
        writeln!(text, "{} {} {unit:?} {}", policy.name(), policy.quota(), entry.keys()).unwrap();
        text
    })
}

type Headers = &'static [(&'static str, &'static str)];

/// Requests that meet the rules of the examples, each as a method, a path and headers.
const REQUESTS: [(&str, &str, Headers); 7] = [
    ("GET", "/", &[]),
    ("GET", "/", &[("x-api-key", "k1")]),
    ("POST", "/orders", &[("x-api-key", "k1")]),
    ("GET", "/search", &[("x-forwarded-for", "192.0.2.1")]),
    ("POST", "/login", &[("x-account", "Dave ")]),
    ("GET", "/reports/2026", &[("cookie", "session=a")]),
    ("GET", "/health", &[]),
];

/// The answers of new layers to all requests, some more often than their limits allow: the statuses and the
/// headers.
async fn answers(config: &Config, clock: &ManualClock) -> Option<Vec<String>> {
    let store = MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
    let layer = config.layer(&Limiter::new(store)).ok()?;
    Some(answers_of(&layer).await)
}

async fn answers_of(layer: &ConfigLayer) -> Vec<String> {
    let inner = || tower::service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::empty())));
    let mut answers = Vec::new();
    for _ in 0..7 {
        for (method, path, headers) in REQUESTS {
            let claims = Claims::from_iter([("plan", "standard")]);
            let mut request = Request::builder().method(method).uri(path).extension(claims);
            request = request.extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Body::empty()).expect("a request");
            let response = layer.layer(inner()).oneshot(request).await.expect("a response");
            answers.push(format!("{} {:?}", response.status(), response.headers()));
        }
    }
    answers
}

#[test]
fn a_changed_text_acts_as_a_whole_or_not_at_all() {
    let directory = Directory::new("random");
    let (accepted, refused, denied) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let clock = ManualClock::at(1_000_000_000_000);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let cases = (select(EXAMPLES.to_vec()), vec(change(), 1..4));
    property("random configurations", ProptestConfig::with_cases(1_000), cases, |it| {
        let ((format, example), changes) = it;
        let text = changed(example, &changes);
        let name = format!("limits.{format}");
        let unchanged = example.replace("${REDIS_URL}", "redis://localhost");
        let path = directory.write(&name, &unchanged);
        let config = Config::from_path(&path).unwrap();
        let of_clock = || MemoryStore::new(MemoryConfig::default().clock(clock.clone()));
        // The layer follows the configuration, and has decided nothing before.
        let layer = config.layer(&Limiter::new(of_clock())).unwrap();
        let before = state(config.registry());

        directory.write(&name, &text);
        let reloaded = config.reload();
        let after = state(config.registry());
        let fresh = match &reloaded {
            Ok(_) => Config::from_text(&text, format).unwrap(),
            Err(_) => Config::from_path(directory.write(&name, &unchanged)).unwrap(),
        };
        let (got, expected) =
            runtime.block_on(async { (answers_of(&layer).await, answers(&fresh, &clock).await) });
        denied.set(denied.get() + u32::from(got.iter().any(|it| it.starts_with("429"))));
        prop_assert_eq!(Some(got), expected, "{}", text);
        match reloaded {
            Ok(_) => {
                prop_assert_eq!(after, state(fresh.registry()), "{}", text);
                accepted.set(accepted.get() + 1);
            }
            Err(error) => {
                prop_assert_eq!(after, before, "{}", text);
                prop_assert!(error.to_string().starts_with("error: "));
                refused.set(refused.get() + 1);
            }
        }
        Ok(())
    });
    // Both ways were taken often.
    let (accepted, refused) = (accepted.get(), refused.get());
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
    assert!(denied.get() > 500, "{} with denials", denied.get());
}

#[test]
fn texts_and_bytes_of_all_kinds_are_errors_and_no_panics() {
    for format in [Format::Toml, Format::Yaml, Format::Json] {
        property("random texts", ProptestConfig::with_cases(500), ".{0,200}", |text| {
            let _ = Config::from_text(&text, format);
            Ok(())
        });
        for deep in ["[", "{\"a\":", "a: [", "- ", "a = [", "{a: "] {
            assert!(Config::from_text(&deep.repeat(10_000), format).is_err());
        }
    }
    let bomb = (1..30).fold("a0: &a0 [x]\n".to_owned(), |text, i| {
        format!("{text}a{i}: &a{i} [*a{p}, *a{p}, *a{p}]\n", p = i - 1)
    });
    assert!(Config::from_text(&bomb, Format::Yaml).is_err());

    // A message of a long line is short, and shows the mistake.
    for (format, name, length) in
        [(Format::Json, "x".to_owned(), 1_000_000), (Format::Json, "y".repeat(1_000_000), 10)]
    {
        let text =
            format!("{{\"policies\": {{\"a\": \"1/s\"}}, {}\"{name}\": 1}}", " ".repeat(length));
        let message = Config::from_text(&text, format).unwrap_err().to_string();
        assert!(message.len() < 2_000 && message.contains("^^^"), "{message:.2000}");
        assert!(message.contains(&format!("\"{name:.20}")), "{message}");
    }
    let escape = Config::from_text("\"\\u001b[31m\" = 1 # \t \u{7f}", Format::Toml).unwrap_err();
    assert!(!escape.to_string().contains('\u{1b}'), "{escape}");

    let directory = Directory::new("bytes");
    let path = directory.path().join("limits.toml");
    for (bytes, message) in [
        (&b"policies.api = '1/s' # \xff"[..], "UTF-8"),
        (&b" \n"[..], "empty"),
        (&vec![b'#'; (1 << 20) + 1][..], "1 MiB"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = Config::from_path(&path).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    for name in ["limits.tml", "limits", ".toml"] {
        let error = Config::from_path(directory.path().join(name)).unwrap_err().to_string();
        assert!(error.contains("allowed: a name that ends with .toml"), "{error}");
    }
}
