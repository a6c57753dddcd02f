//! Texts of any form: the parser returns an error and never panics.

use plimsoll_server::envoy::{EnvoyConfig, EnvoyOptions};
use plimsoll_testing::seed;
use proptest::prelude::*;

const SEEDS: [&str; 4] = [
    include_str!("seeds/levels.yaml"),
    include_str!("seeds/patterns.yaml"),
    include_str!("seeds/quotas.yaml"),
    include_str!("seeds/anchors.yaml"),
];

/// Pieces that a mutation puts into a text.
const PIECES: [&str; 22] = [
    "\n",
    " ",
    "  - ",
    ":",
    "*",
    "&a ",
    "*a",
    "<<: ",
    "{",
    "}",
    "[",
    "]",
    "'",
    "\"",
    "|\n",
    "\u{0}",
    "\t",
    "é",
    "9999999999",
    "-1",
    "key",
    "rate_limit: ",
];

fn read(text: &str) {
    let texts = [("a.yaml", text), ("b.yaml", text)];
    if let Err(error) = EnvoyConfig::from_texts(texts, EnvoyOptions::default()) {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn the_seeds_are_right() {
    for seed in SEEDS {
        EnvoyConfig::from_text("seed.yaml", seed, EnvoyOptions::default()).unwrap();
    }
}

#[test]
fn no_text_makes_the_parser_panic() {
    let change = (any::<prop::sample::Index>(), 0..PIECES.len(), 0..8_usize);
    let changes = (0..SEEDS.len(), prop::collection::vec(change, 0..6));
    seed::property(
        "envoy-parser",
        ProptestConfig::with_cases(2_000),
        changes,
        |(seed, changes)| {
            let mut text: Vec<char> = SEEDS[seed].chars().collect();
            for (at, piece, removed) in changes {
                let at = at.index(text.len() + 1);
                let end = (at + removed).min(text.len());
                text.splice(at..end, PIECES[piece].chars());
            }
            read(&text.into_iter().collect::<String>());
            Ok(())
        },
    );
}

#[test]
fn no_random_text_makes_the_parser_panic() {
    seed::property("envoy-texts", ProptestConfig::with_cases(500), ".{0,200}", |text| {
        read(&text);
        Ok(())
    });
}

#[test]
fn deep_and_large_texts_end_soon() {
    let deep = |levels: usize| {
        let mut text = "domain: d\n".to_owned();
        for level in 0..levels {
            let indent = "  ".repeat(2 * level);
            text += &format!("{indent}descriptors:\n{indent}  - key: k\n");
            if level + 1 < levels {
                continue;
            }
            text += &format!("{indent}    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n");
        }
        text
    };
    // Each level of descriptors is a list and a table.
    EnvoyConfig::from_text("deep.yaml", &deep(14), EnvoyOptions::default()).unwrap();
    let error =
        EnvoyConfig::from_text("deep.yaml", &deep(400), EnvoyOptions::default()).unwrap_err();
    assert!(!error.errors().is_empty());
    let mut large = "domain: d\ndescriptors:\n".to_owned();
    for number in 0..10_000 {
        large += &format!(
            "  - key: k{number}\n    rate_limit: {{ unit: hour, requests_per_unit: 1 }}\n"
        );
    }
    let config = EnvoyConfig::from_text("large.yaml", &large, EnvoyOptions::default()).unwrap();
    assert_eq!(config.domains(), 1);
    // Aliases of aliases would be a text of gigabytes.
    let mut laughs = "domain: d\nx0: &x0 [a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..10 {
        let item = format!("*x{}", level - 1);
        laughs += &format!("x{level}: &x{level} [{}]\n", [&*item; 9].join(", "));
    }
    assert!(EnvoyConfig::from_text("laughs.yaml", &laughs, EnvoyOptions::default()).is_err());
}
