//! Typical mistakes, each with its message: the text before the line `====` is the configuration, and
//! the text behind it is the message. With `PLIMSOLL_REWRITE` set, the messages are written anew.

use std::{env, fs, path::Path};

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

fn format(path: &Path) -> Format {
    match path.extension().and_then(|end| end.to_str()) {
        Some("yaml") => Format::Yaml,
        Some("json") => Format::Json,
        _ => Format::Toml,
    }
}
