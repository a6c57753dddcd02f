//! Typical mistakes, each with its message: the text before the line `====` is the configuration, and
//! the text behind it is the message. With `PLIMSOLL_REWRITE` set, the messages are written anew.

use std::{env, fs, path::Path, process::Command};

use plimsoll_control::{Config, Format};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/mistakes");
const LINE: &str = "\n====\n";

#[test]
fn each_mistake_has_its_message() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(FOLDER).expect("the folder").flatten() {
        let (path, snapshot) = (entry.path(), fs::read_to_string(entry.path()).expect("a text"));
        let (text, expected) = snapshot.split_once(LINE).unwrap_or((snapshot.trim_end(), ""));
        let message = match Config::from_text(text, format(&path)) {
            Ok(_) => "no mistake".to_owned(),
            Err(error) => error.to_string(),
        };
        if env::var_os("PLIMSOLL_REWRITE").is_some() {
            fs::write(&path, format!("{text}{LINE}{message}\n")).expect("it is written");
        } else if message != expected.trim_end() {
            wrong.push(format!("{}:\n{message}\n", path.display()));
        }
        assert_ne!(message, "no mistake", "{}", path.display());
        count += 1;
    }
    assert!(wrong.is_empty(), "PLIMSOLL_REWRITE=1 writes these messages:\n{}", wrong.join("\n"));
    assert!(count >= 30, "{count}");
}

const SECRETS: [&str; 3] =
    ["hunter2pa55word", "0123456789abcdef0123456789abcdef", "Zx9-fr0m-0utside-77"];

const WITH_SECRETS: [(Format, &str); 4] = [
    (
        Format::Toml,
        "policies.api = '1/s'
[store.redis]
cluster = [
    'redis://user:hunter2pa55word@one',
    \"redis://:hunter2pa55word@two\", 'redis://hunter2pa55word@three',
]
secret = '0123456789abcdef0123456789abcdef'
prefix = 'shop'
[store.regions]
count = 2
home = { url = 'unix:///redis.sock?pass=hunter2pa55word', connections = 3, secret = '${PLIMSOLL_TEST_SECRET}' }
",
    ),
    (
        Format::Toml,
        "policies.api = '1/s'
[store.redis]
primary = '''hunter2pa55word'''
sentinels = ['hunter2pa55word']
secret = \"\"\"
0123456789abcdef0123456789abcdef\"\"\"
",
    ),
    (
        Format::Yaml,
        "policies: { api: 1/s }
store:
  redis:
    url: redis://user:hunter2pa55word@one
    secret: >-
      0123456789abcdef0123456789abcdef
    prefix: shop
  regions:
    count: 2
    home: { secret: 0123456789abcdef0123456789abcdef, url: 'redis://hunter2pa55word@h' }
    password:
      hunter2pa55word
",
    ),
    (
        Format::Json,
        r#"{ "policies": { "api": "1/s" }, "store": { "redis": {
  "url": "redis://user:hunter2pa55word@one", "secret": "0123456789abcdef0123456789abcdef", "lazy": true,
  "cluster":
    ["hunter2pa55word",
     "redis://user:hunter2pa55word@two"
    ],
  "password": "hunter2pa55word" } } }"#,
    ),
];

#[test]
fn a_store_in_memory_and_a_token_bucket_are_no_secrets() {
    for (text, line) in [
        ("policies.api = '5/min token-bucket(x)'\n", "1 | policies.api = '5/min token-bucket(x)'"),
        (
            "policies.api = '5/min'\nstore.memory.max_keys = 123456789012345678\n",
            "2 | store.memory.max_keys = 123456789012345678",
        ),
    ] {
        let error = Config::from_text(text, Format::Toml).unwrap_err().to_string();
        assert!(error.contains(line), "{error}");
    }
}

/// Texts with secrets are broken at each place, in several ways.
#[test]
fn no_message_has_a_secret() {
    if env::var_os("PLIMSOLL_TEST_SECRET").is_none() {
        let mut again = Command::new(env::current_exe().expect("this test"));
        again.args(["--exact", "mistakes::no_message_has_a_secret", "--nocapture"]);
        let status = again.env("PLIMSOLL_TEST_SECRET", SECRETS[2]).status().expect("a process");
        return assert!(status.success());
    }
    let (mut messages, mut leaks) = (0, Vec::new());
    for (format, text) in WITH_SECRETS {
        for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
            for piece in ["\"", "'", "]", "}", "\n", " ", ",", ": ", "=", "#", "5", "\u{1}"] {
                let changed = [&text[..at], piece, &text[at..]].concat();
                let Err(error) = Config::from_text(&changed, format) else { continue };
                messages += 1;
                let message = format!("{error} {error:?}");
                for secret in SECRETS {
                    // A piece may be in the middle of the secret.
                    for start in 0..=secret.len() - 7 {
                        let part = &secret[start..start + 7];
                        if message.contains(part) {
                            leaks.push(format!("{piece:?} at {at}: {error}"));
                            break;
                        }
                    }
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{} leaks, such as {:.4000}", leaks.len(), leaks.join("\n\n"));
    assert!(messages > 10_000, "{messages}");
}

/// Values of a wrong type are named in messages, unless they are secret.
#[test]
fn a_secret_of_a_wrong_type_is_not_named() {
    for field in [
        "cluster = 'hunter2pa55word'",
        "sentinels = 'hunter2pa55word'",
        "secret = 'hunter2pa55word'",
        "password = 'hunter2pa55word'",
        "pasword = 'hunter2pa55word'",
        "connections = 'redis://:hunter2pa55word@host'",
        "url = '${hunter2pa55word@host}'",
        "url = ['hunter2pa55word']",
        "secret = { x = 'hunter2pa55word', secret = 'hunter2pa55word' }",
        "prefix = 'hunter2 pa55word'",
        "hunter2pa55word = 1",
        "url = 'hunter2pa55word'",
        "url = 'redis://:hunter2/pa55word@host'",
        "cluster = [\n    'hunter2pa55word',\n]",
        "primary = 5\nsentinels = [\n    'redis://hunter2/@x' ]",
    ] {
        let text = format!("policies.api = '1/s'\n[store.redis]\n{field}\n");
        let error = Config::from_text(&text, Format::Toml).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{field}: {error}");
    }
    let quota = "policies.api = 'redis://hunter2'";
    let error = Config::from_text(quota, Format::Toml).unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    let redis = "store.redis = 'redis://user:hunter2 pa55word@host'";
    let error = Config::from_text(redis, Format::Toml).unwrap_err().to_string();
    assert!(!error.contains("hunter2") && !error.contains("pa55word"), "{error}");
}

fn format(path: &Path) -> Format {
    match path.extension().and_then(|end| end.to_str()) {
        Some("yaml") => Format::Yaml,
        Some("json") => Format::Json,
        _ => Format::Toml,
    }
}
