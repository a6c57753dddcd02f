//! The files that are read: each below a folder, whatever its name is, and the errors about the others.

use std::{fs, path::Path};

use plimsoll::Limiter;
use plimsoll_control::{Offenders, Registry};
use plimsoll_server::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use plimsoll_testing::servers::directory;

fn domain(name: &str) -> String {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 5 }";
    format!("domain: {name}\ndescriptors:\n  - key: user\n    {limit}\n")
}

fn domains(folder: &Path) -> Vec<String> {
    let config = EnvoyConfig::load([folder], EnvoyOptions::default()).unwrap();
    let (registry, offenders) = (Registry::default(), Offenders::new(10));
    Envoy::new(config, Limiter::in_memory(), registry.clone(), offenders).unwrap();
    let names = registry.policies().into_iter().map(|it| it.policy().name().to_owned());
    names.map(|name| name.split('.').nth(1).unwrap().to_owned()).collect()
}

fn error(folder: &Path) -> String {
    EnvoyConfig::load([folder], EnvoyOptions::default()).unwrap_err().to_string()
}

/// envoyproxy/ratelimit reads each file below its root, also at a reload.
#[test]
fn each_file_below_a_folder_is_read_whatever_its_name_is() {
    let folder = directory();
    fs::create_dir_all(folder.join("team/deep")).unwrap();
    let names = ["a.YAML", "b.conf", "c.txt", "d", "e.yml", "f.toml", "team/deep/g.yaml", "team/h"];
    for (name, number) in names.iter().zip(1..) {
        fs::write(folder.join(name), domain(&format!("d{number}"))).unwrap();
    }
    fs::write(folder.join("i.json"), r#"{"domain": "d9", "descriptors": []}"#).unwrap();
    assert_eq!(domains(&folder), ["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"]);
    assert_eq!(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap().domains(), 9);
    // Hidden ones are not.
    fs::create_dir(folder.join(".git")).unwrap();
    for name in [".d.yaml.swp", ".git/d", "team/.keep"] {
        fs::write(folder.join(name), domain("hidden")).unwrap();
    }
    assert_eq!(EnvoyConfig::load([&folder], EnvoyOptions::default()).unwrap().domains(), 9);
    // A file without limits is an error that names it, and so is the backup of an editor.
    for (name, text, expected) in [
        ("README.md", "# Limits\n".to_owned(), "the field `domain` is missing"),
        ("a.tmp", String::new(), "the field `domain` is missing"),
        ("d~", domain("d4"), "the descriptor `user` is there twice"),
        ("#d#", domain("d4"), "the descriptor `user` is there twice"),
        ("notes", "Ask us first: always.\n".to_owned(), "unknown field"),
        ("todo", "Ask us first.\n".to_owned(), "found the text"),
        ("limits.tar", "\0\0".to_owned(), ""),
    ] {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        let error = error(&folder);
        // If two files have one domain, the error names the second one in the order of their names.
        let named = if name == "#d#" { folder.join("d") } else { file.clone() };
        let is_named = error.contains(&named.display().to_string());
        assert!(is_named && error.contains(expected), "{name}: {error}");
        fs::remove_file(file).unwrap();
    }
    fs::write(folder.join("latin"), b"domain: caf\xe9").unwrap();
    assert!(error(&folder).contains("latin") && error(&folder).contains("is not UTF-8"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_or_a_file_without_limits_is_an_error() {
    let folder = directory();
    assert!(error(&folder).contains("the folder has no file with limits"), "{}", error(&folder));
    fs::create_dir_all(folder.join("empty/..2026")).unwrap();
    fs::write(folder.join(".hidden.yaml"), domain("shop")).unwrap();
    fs::write(folder.join("empty/..2026/shop.yaml"), domain("shop")).unwrap();
    let text = error(&folder);
    assert!(text.contains("does not begin with a dot"), "{text}");
    assert!(text.contains(&folder.display().to_string()), "{text}");
    assert!(error(&folder.join("missing")).contains("cannot be read"));
    for text in ["", "---\n", "# later\n", "{}", "domain:\n", "descriptors: []\n"] {
        fs::write(folder.join("shop.yaml"), text).unwrap();
        assert!(error(&folder).contains("`domain` is missing"), "{text:?}: {}", error(&folder));
    }
    // One of two paths.
    fs::write(folder.join("shop.yaml"), domain("shop")).unwrap();
    let both = EnvoyConfig::load([&folder, &folder.join("empty")], EnvoyOptions::default())
        .unwrap_err()
        .to_string();
    assert!(both.contains("the folder has no file with limits"), "{both}");
    fs::remove_dir_all(folder).unwrap();
}

/// A ConfigMap with a path of two parts is mounted as a link to a folder.
#[cfg(unix)]
#[test]
fn links_to_folders_are_followed_and_their_circles_are_errors() {
    use std::os::unix::{fs::symlink, net::UnixListener};

    let folder = directory();
    fs::create_dir_all(folder.join("..1/team")).unwrap();
    fs::write(folder.join("..1/team/shop.yaml"), domain("shop")).unwrap();
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/team", folder.join("team")).unwrap();
    assert_eq!(domains(&folder), ["shop"]);
    for target in [".", "team"] {
        symlink(target, folder.join("again")).unwrap();
        let text = error(&folder);
        assert!(text.contains("shows this folder a second time"), "{target}: {text}");
        fs::remove_file(folder.join("again")).unwrap();
    }
    symlink("nowhere", folder.join("dangling")).unwrap();
    assert!(error(&folder).contains("dangling"), "{}", error(&folder));
    fs::remove_file(folder.join("dangling")).unwrap();
    let _socket = UnixListener::bind(folder.join("socket")).unwrap();
    assert!(error(&folder).contains("neither a file nor a folder"), "{}", error(&folder));
    fs::remove_file(folder.join("socket")).unwrap();
    for number in 0..1_001 {
        fs::write(folder.join(number.to_string()), "").unwrap();
    }
    assert!(error(&folder).contains("more than 1000 files"), "{}", error(&folder));
    fs::remove_dir_all(folder).unwrap();
}
