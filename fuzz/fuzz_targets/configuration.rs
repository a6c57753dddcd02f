//! A configuration file in any format is accepted as a whole, or refused with a message for people.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll::Limiter;
use plimsoll_control::{Config, Format};

fuzz_target!(|input: &str| {
    // The first letter says the format.
    let mut letters = input.chars();
    let format = match letters.next() {
        Some('t') => Format::Toml,
        Some('y') => Format::Yaml,
        Some('j') => Format::Json,
        _ => return,
    };
    let text = letters.as_str();
    match Config::from_text(text, format) {
        Ok(config) => {
            // An accepted file makes a layer, if it has rules, and the same policies each time.
            if let Err(error) = config.layer(&Limiter::in_memory()) {
                let message = error.to_string();
                assert!(message.contains("the configuration has no rules"), "{message}");
            }
            let again = Config::from_text(text, format).expect("it was accepted before");
            assert_eq!(policies(&config), policies(&again));
        }
        Err(error) => {
            let message = error.to_string();
            let is_safe = |it: char| !it.is_control() || it == '\n';
            assert!(message.chars().all(is_safe), "{message:?}");
            assert!(!message.is_empty() && message.len() < 16_384, "{} bytes", message.len());
        }
    }
});

fn policies(config: &Config) -> Vec<(String, String)> {
    let policies = config.registry().policies();
    let written = |it: &plimsoll::Policy| (it.name().to_owned(), it.quota().to_string());
    policies.iter().map(|it| written(it.policy())).collect()
}
