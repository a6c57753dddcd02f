//! The links of the README and of the pages in `docs/` work on a git host and in rustdoc.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use tollgate::Algorithm;

/// Files of the repository that rustdoc has no page for.
const NOT_IN_RUSTDOC: [&str; 3] = ["contributing", "mit", "apache"];

fn pages(dir: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && dir == "docs" {
            pages(path.to_str().expect("UTF-8"), found);
        } else if path.extension().is_some_and(|it| it == "md") && !path.ends_with("links.md") {
            found.push(path);
        }
    }
}

/// Returns the labels and the targets of the definitions `[label]: target` in `text`.
fn definitions(text: &str) -> Vec<(&str, &str)> {
    text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
}

/// Returns the targets of the links `[text](target)` in `text`, without code blocks.
fn inline_targets(text: &str) -> Vec<&str> {
    let outside = text.split("```").step_by(2);
    outside
        .flat_map(|text| text.split("](").skip(1))
        .filter_map(|it| it.split(')').next())
        .collect()
}

/// Returns the file and the anchor of a target within the repository.
fn local(page: &Path, target: &str) -> Option<(PathBuf, Option<String>)> {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(f, a)| (f, Some(a)));
    let anchor = anchor.map(str::to_owned);
    if let Some(module) = file.strip_prefix("crate") {
        // An item, or the module of a page.
        let page = match module {
            "" => PathBuf::from("README.md"),
            _ => PathBuf::from(format!("docs{}.md", module.replace("::", "/"))),
        };
        return page.exists().then_some((page, anchor));
    }
    if file.contains("://") || file.contains("::") || file.starts_with("Self") {
        return None;
    }
    let file = if file.is_empty() { page.to_owned() } else { page.parent()?.join(file) };
    Some((file, anchor))
}

/// Returns the anchors of the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside = text.split("```").step_by(2).flat_map(str::lines);
    let headings = outside.filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut found = Vec::new();
    pages(".", &mut found);
    pages("docs", &mut found);
    assert!(found.len() > 15, "the pages are here");
    let (mut wrong, mut followed) = (Vec::new(), 0);
    for page in found {
        let text = fs::read_to_string(&page).expect("UTF-8");
        let defined = definitions(&text).into_iter().map(|(_, target)| target);
        for target in inline_targets(&text).into_iter().chain(defined) {
            let Some((file, anchor)) = local(&page, target) else { continue };
            followed += 1;
            let exists = fs::read_to_string(&file)
                .is_ok_and(|text| anchor.is_none_or(|it| anchors(&text).contains(&it)));
            if !exists {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(followed > 50, "links are found");
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn links_to_files_have_a_target_in_rustdoc() {
    let mut found = vec![PathBuf::from("README.md")];
    pages("docs", &mut found);
    let links = fs::read_to_string("docs/links.md").expect("the definitions of rustdoc");
    let pictures = fs::read_to_string("docs/pictures/links.md").expect("the pictures");
    let known: BTreeSet<&str> = definitions(&links)
        .iter()
        .chain(&definitions(&pictures))
        .map(|(label, _)| *label)
        .collect();
    for page in found {
        let text = fs::read_to_string(&page).expect("UTF-8");
        for (label, target) in definitions(&text) {
            let to_file = !target.starts_with("crate")
                && local(&page, target).is_some_and(|(file, _)| file != page);
            assert!(
                !to_file || known.contains(label) || NOT_IN_RUSTDOC.contains(&label),
                "{}: [{label}] is not defined in docs/links.md",
                page.display()
            );
        }
    }
}

#[test]
fn rustdoc_has_the_pictures() {
    let links = fs::read_to_string("docs/pictures/links.md").expect("the pictures");
    let pictures = definitions(&links);
    assert_eq!(pictures.len(), 3);
    for (label, data) in pictures {
        let name = label.strip_prefix("picture/").expect("a picture");
        let picture = fs::read(format!("docs/pictures/{name}.svg")).expect("a picture");
        let data = data.strip_prefix("data:image/svg+xml;base64,").expect("base64");
        assert!(
            STANDARD.decode(data).is_ok_and(|it| it == picture),
            "run scripts/pictures --redraw"
        );
    }
}

#[test]
fn the_program_of_the_page_on_operations_is_the_example() {
    let page = fs::read_to_string("docs/operations.md").expect("the page");
    let example = fs::read_to_string("examples/heavy/prometheus.rs").expect("the example");
    let block = page.split("```rs\n").nth(1).and_then(|it| it.split("```").next());
    let lines = block.expect("a block").lines().map(str::trim);
    let known: BTreeSet<&str> = example.lines().map(str::trim).collect();
    for line in lines {
        assert!(known.contains(line), "examples/heavy/prometheus.rs has no line {line}");
    }
}

/// The places of the documentation that a new algorithm needs.
#[test]
fn the_tables_have_each_algorithm() {
    for page in [
        "README.md",
        "docs/guide/algorithms.md",
        "docs/guide/leases.md",
        "docs/live_limits.md",
        "docs/redis.md",
    ] {
        let text = fs::read_to_string(page).expect("a page");
        for algorithm in Algorithm::EACH {
            let algorithm = format!("{algorithm:?}");
            let name = algorithm.split(|it: char| !it.is_alphanumeric()).next().expect("a name");
            // A row of a table, or a paragraph that begins with the name.
            let is_about = |line: &&str| line.starts_with('|') || line.starts_with("**");
            let rows = text.lines().filter(is_about);
            let rows = rows
                .filter(|row| row.split(|it: char| !it.is_alphanumeric()).any(|word| word == name));
            assert!(rows.count() > 0, "{page} has no row or paragraph of {name}");
        }
    }
}
