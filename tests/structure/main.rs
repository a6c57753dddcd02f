//! The modules import each other without circles: each only from the rows above it. [`files`] compares
//! single files, [`pages`] the documentation, and [`guarantees`] the promises with their witnesses.

mod files;
mod guarantees;
mod known;
mod pages;
mod report;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The rows of the module table in CONTRIBUTING.md, from the top. A file belongs to the longest path
/// that it begins with; a row imports from itself and from the rows above it.
const ROWS: &[&[&str]] = &[
    &["base64", "error", "random", "sync", "clock", "key"],
    &["decision/standing"],
    &["decision/charge_reply"],
    &["quota"],
    &["algorithm"],
    &["policy"],
    &["decision"],
    &["telemetry"],
    &["runtime"],
    &["store"],
    &["memory", "redis"],
    &["remote"],
    &["regions"],
    &["limiter"],
    &["rule"],
    &["outcome"],
    &["middleware"],
];

/// Modules that hold documentation alone, and those that tests of other packages share.
const NO_ROW: &[&str] = &["algorithms", "guide", "resilience", "seed"];

/// Returns the row and the module of a path below `src`, such as `redis/wire`.
fn place(path: &str) -> Option<(usize, &'static str)> {
    let begins = |module: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let modules = ROWS.iter().enumerate().flat_map(|(row, modules)| {
        modules.iter().filter(|module| begins(module)).map(move |module| (row, *module))
    });
    modules.max_by_key(|(_, module)| module.len())
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the code of a file without comments and without its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("UTF-8");
    let text = text.split("#[cfg(test)]\nmod ").next().expect("some").to_owned();
    let lines = text.lines().map(|line| line.split("//").next().expect("some"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paths after `crate::` in `code`, with `/` for `::`. A group in braces, such as in
/// `crate::{clock::Clock, store::{Answer, redis::Wire}}`, is one path for each member.
fn imports(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        members("", &code[at + "crate::".len()..], &mut paths);
    }
    paths
}

/// Reads one path at the beginning of `rest`, and returns how long it is.
fn members(before: &str, rest: &str, paths: &mut Vec<String>) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let path = [before, &rest[..name]].into_iter().filter(|it| !it.is_empty());
    let path = path.collect::<Vec<_>>().join("/");
    if rest[name..].starts_with("::") {
        return name + 2 + members(&path, &rest[name + 2..], paths);
    }
    if name > 0 || !rest.starts_with('{') {
        paths.push(path);
        return name;
    }
    let mut at = 1;
    loop {
        at += rest[at..].find(|c: char| is_name(c) || c == '{' || c == '}').expect("a brace");
        if rest[at..].starts_with('}') {
            return at + 1;
        }
        at += members(before, &rest[at..], paths);
    }
}

/// Returns the path of the file where the first name of `import` is, if `file` exports it from one of
/// its own modules: `decision/Mark` is `decision/standing/Mark`.
fn resolve(import: &str) -> String {
    let (module, name) = import.rsplit_once('/').unwrap_or(("", import));
    let file = if module.is_empty() { "src/lib.rs" } else { &format!("src/{module}/mod.rs") };
    if !name.starts_with(char::is_uppercase) || !Path::new(file).exists() {
        return import.to_owned();
    }
    let (code, mut paths) = (code(Path::new(file)), Vec::new());
    for (at, start) in code.match_indices("use self::") {
        members(module, &code[at + start.len()..], &mut paths);
    }
    let ending = format!("/{name}");
    let found = paths.into_iter().find(|path| path.ends_with(&ending) && path != import);
    // A folder may export what one of its own folders exports.
    found.map_or_else(|| import.to_owned(), |path| resolve(&path))
}

#[test]
fn modules_import_only_from_rows_above() {
    let mut found = Vec::new();
    files(Path::new("src"), &mut found);
    assert!(found.len() > 50, "the sources are here");
    let (mut wrong, mut edges) = (BTreeSet::new(), 0);
    for file in found.iter().filter(|file| *file != Path::new("src/lib.rs")) {
        let path = file.strip_prefix("src").expect("below").with_extension("");
        let path = path.to_str().expect("UTF-8").trim_end_matches("/mod").to_owned();
        if NO_ROW.contains(&path.as_str()) {
            continue;
        }
        let Some((row, module)) = place(&path) else { panic!("{path} has no row") };
        for import in imports(&code(file)) {
            let Some((from, other)) = place(&resolve(&import)) else {
                let first = import.split('/').next().expect("some");
                assert!(NO_ROW.contains(&first), "{path} imports {import}, which has no row");
                continue;
            };
            edges += 1;
            if from > row || (from == row && other != module) {
                wrong.insert(format!("{path} imports {import}: row {from}, its own is {row}"));
            }
        }
    }
    assert!(edges > 100, "imports are found");
    assert!(wrong.is_empty(), "imports from rows below:\n{}", Vec::from_iter(wrong).join("\n"));
}

#[test]
fn groups_are_read() {
    let found = imports("use crate::{a::B, c::{D, e::{F, G}}, h};\nfn i() -> crate::j::K<L> {}");
    assert_eq!(found, ["a/B", "c/D", "c/e/F", "c/e/G", "h", "j/K"]);
}

#[test]
fn each_example_is_listed() {
    let mut listed = 0;
    for folder in ["examples", "examples/heavy"] {
        let manifest = fs::read_to_string(format!("{folder}/Cargo.toml")).expect("UTF-8");
        for entry in fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.file_name().expect("a name").to_str().expect("UTF-8");
                let line = format!("path = \"{name}\"");
                assert!(manifest.contains(&line), "{folder}/Cargo.toml has no [[example]] {line}");
                listed += 1;
            }
        }
    }
    assert!(listed > 5, "the examples are here");
}

/// Each step of `./scripts/test` runs in one job of the workflow.
#[test]
fn each_step_has_a_job() {
    let script = fs::read_to_string("scripts/test").expect("UTF-8");
    let lanes = script.lines().filter_map(|line| {
        let list = line.strip_prefix("WAITING=(").or_else(|| line.strip_prefix("COMPUTING=("))?;
        list.strip_suffix(')')
    });
    // The step `build` runs before those that need its programs.
    let steps: Vec<_> =
        lanes.flat_map(str::split_whitespace).filter(|step| *step != "build").collect();
    assert!(steps.len() > 15, "the steps are found: {steps:?}");
    let workflow = fs::read_to_string(".github/workflows/test.yml").expect("UTF-8");
    let rows = workflow.lines().filter_map(|line| line.strip_prefix("          - "));
    let mut jobs: Vec<_> = rows.flat_map(str::split_whitespace).collect();
    jobs.sort_unstable();
    let mut wanted = steps;
    wanted.sort_unstable();
    assert_eq!(jobs, wanted);
}
