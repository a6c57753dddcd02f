//! The page on guarantees: each witness exists. The bounds of the README agree with the tests and the proofs.

use std::{fs, path::Path};

use plimsoll::{Algorithm, Quota};
use plimsoll_testing::algorithms::{Returns, facts, most};

const PAGE: &str = "docs/guarantees.md";

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the cells of the rows of tables in `text`.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// Returns whether `text` has a test function of this name that is not ignored. Its attributes are between
/// it and the end of the item before.
fn has_test(text: &str, name: &str) -> bool {
    let is_it = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ").is_some_and(|rest| rest.starts_with(&format!("{name}(")))
    };
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().enumerate().filter(|(_, line)| is_it(line)).any(|(at, _)| {
        let before = lines[..at].iter().rev().map(|line| line.trim());
        let attributes: Vec<&str> = before
            .take_while(|line| line.starts_with(['#', '/']) || line.ends_with(")]"))
            .collect();
        let has = |attribute: &str| attributes.iter().any(|line| line.starts_with(attribute));
        (has("#[test]") || has("#[tokio::test")) && !has("#[ignore")
    })
}

/// Returns the text of the file of a module below a folder, whose root file is `root` or stands beside it.
fn module(folder: &str, root: &str, path: &[&str]) -> Option<String> {
    let within = format!("{folder}/{}", path.join("/"));
    let files = match path {
        [] => vec![format!("{folder}/{root}"), format!("{folder}.rs")],
        _ => vec![format!("{within}.rs"), format!("{within}/mod.rs")],
    };
    files.into_iter().find_map(|file| fs::read_to_string(file).ok())
}

/// Returns whether a witness such as `redis differential::standalone_decides_as_memory_does` exists. A target
/// of another package has its name: `control/config`.
fn exists(target: &str, path: &str) -> bool {
    let mut names: Vec<&str> = path.split("::").collect();
    let name = names.pop().expect("a name");
    match target {
        "coq" => {
            let files = fs::read_dir("proofs").expect("the proofs");
            files.map(|file| file.expect("an entry").path()).any(|file| {
                let is_proof = file.extension().is_some_and(|it| it == "v");
                is_proof && read(file).contains(&format!("\nTheorem {name} "))
            })
        }
        "contract" => {
            let files = fs::read_dir("contract/src").expect("the contract");
            let files = files.map(|file| file.expect("an entry").path());
            let files: Vec<_> = files.chain(["testing/src/delays.rs".into()]).collect();
            let listed = read("contract/src/suite.rs") + &read("testing/src/lib.rs");
            let mut words = listed.split(|it: char| !it.is_alphanumeric() && it != '_');
            let definition = format!("pub async fn {name}(");
            words.any(|word| word == name)
                && files.iter().any(|file| read(file).contains(&definition))
        }
        "doc" => fs::read_to_string(path).is_ok_and(|text| text.contains("/// ```compile_fail")),
        "lib" => {
            let found = module("src", "lib.rs", &names);
            // The model of the leases stands with the tests.
            let model = names.strip_prefix(&["remote", "leases", "model"][..]);
            let model = model.and_then(|names| module("tests/leases/model", "mod.rs", names));
            found.or(model).is_some_and(|text| has_test(&text, name))
        }
        _ => {
            let folder = match target.split_once('/') {
                Some((package, target)) => format!("{package}/tests/{target}"),
                None => format!("tests/{target}"),
            };
            if !Path::new(&folder).exists() {
                // A program of one file.
                let text = fs::read_to_string(format!("{folder}.rs"));
                return names.is_empty() && text.is_ok_and(|text| has_test(&text, name));
            }
            module(&folder, "main.rs", &names).is_some_and(|text| has_test(&text, name))
        }
    }
}

#[test]
fn each_guarantee_has_its_witnesses() {
    let page = read(PAGE);
    let (mut number, mut witnesses, mut wrong) = (0, 0, Vec::new());
    for row in rows(&page).filter(|row| row.len() == 4 && row[0].starts_with('G')) {
        number += 1;
        assert_eq!(row[0], format!("G{number}"), "the numbers are in order, each once");
        let named: Vec<&str> = row[3].split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !row[2].contains("*type*") {
            wrong.push(format!("{} has no witness", row[0]));
        }
        for witness in named {
            witnesses += 1;
            let found = witness.split_once(' ').is_some_and(|(target, path)| exists(target, path));
            if !found {
                wrong.push(format!("{}: there is no {witness}", row[0]));
            }
        }
        // The part that keeps it is in the repository.
        let is_path = |part: &&str| {
            ["src", "lua", "proofs", "control/", "lookup/", "pace/", "regions/", "server/"]
                .iter()
                .any(|it| part.starts_with(it))
        };
        for part in row[2].split('`').skip(1).step_by(2).filter(is_path) {
            if !Path::new(part).exists() {
                wrong.push(format!("{}: there is no {part}", row[0]));
            }
        }
    }
    assert!(
        number > 45 && witnesses > 90,
        "{number} guarantees and {witnesses} witnesses are found"
    );
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

/// A number that a page or a comment refers to is one of the page.
#[test]
fn guarantees_that_are_referred_to_exist() {
    let page = read(PAGE);
    let count = rows(&page).filter(|row| row[0].starts_with('G')).count();
    let outside = page.lines().filter(|line| !line.starts_with('|'));
    for word in outside.flat_map(|line| line.split(|it: char| !it.is_alphanumeric())) {
        let number = word.strip_prefix('G').and_then(|it| it.parse::<usize>().ok());
        assert!(number.is_none_or(|it| (1..=count).contains(&it)), "{PAGE} has no {word}");
    }
}

#[test]
fn a_witness_that_is_gone_is_found() {
    assert!(exists("structure", "guarantees::each_guarantee_has_its_witnesses"));
    for (target, path) in [
        ("structure", "guarantees::each_guarantee_had_its_witnesses"),
        ("structure", "guarantees::exists"),
        ("structure", "gone::each_guarantee_has_its_witnesses"),
        ("gone", "guarantees::each_guarantee_has_its_witnesses"),
        ("contract", "each_guarantee_has_its_witnesses"),
        ("coq", "published"),
        ("control/config", "gone"),
        ("doc", "src/lib.rs"),
    ] {
        assert!(!exists(target, path), "{target} {path}");
    }
    let ignored =
        "#[test]\n#[ignore = \"it is slow\"]\nfn is_slow() {}\n\n#[test]\nfn is_fast() {}\n";
    assert!(has_test(ignored, "is_fast") && !has_test(ignored, "is_slow"));
}

/// The table of the README has a row of each algorithm, with the facts of the tests and the bound of the proof.
#[test]
fn the_table_of_algorithms_has_their_facts() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("## Choosing an algorithm").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let rows: Vec<_> = rows(section).filter(|row| row[0].starts_with("[`")).collect();
    let quota = |row: &[&str]| -> Quota { row[1].trim_matches('`').parse().expect("a quota") };
    let proofs = read("proofs/Published.v");
    let (_, proven) = proofs.split_once("Definition most ").expect("the bounds of the proof");
    for algorithm in Algorithm::EACH {
        let name = algorithm.name();
        let row = rows.iter().find(|row| quota(row).algorithm().name() == name);
        let row =
            row.unwrap_or_else(|| panic!("README.md, choosing an algorithm: no row of {name}"));
        // The documentation promises one unit more than a token bucket admits.
        let most = most(&quota(row));
        let example: u64 = row[3].parse().expect("a number");
        assert!((most..=most + 1).contains(&example), "README.md, {name}: {example} for {most}");
        let facts = facts(*algorithm);
        let returns = match facts.returns {
            Returns::AfterWindow => "a window after their charge",
            Returns::ByPeriod => "with their period",
            Returns::AtRate => "at the rate",
        };
        assert!(row[4].starts_with(returns), "README.md, {name}: units return {returns}");
        assert_eq!(
            row[2].contains("tested, not proven"),
            facts.proof.is_none(),
            "README.md, {name}"
        );
        let Some(of_proof) = facts.proof else { continue };
        let mut cases = proven.lines().filter_map(|line| line.trim().strip_prefix("| "));
        let bound = cases.find_map(|case| {
            let (constructor, bound) = case.split_once(" => ")?;
            (constructor.split(' ').next() == Some(of_proof)).then_some(bound)
        });
        let bound = bound.expect("a bound").replace(' ', "").replace("2*L", "2L");
        let here = row[2].split('`').nth(1).expect("a bound").replace(' ', "");
        assert_eq!(here, bound, "README.md, {name}");
    }
    assert_eq!(rows.len(), Algorithm::EACH.len());
}
