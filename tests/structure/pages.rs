//! The links of the README and of the pages in `docs/` work on a git host and in rustdoc.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};

/// Files of the repository that rustdoc has no page for.
const NOT_IN_RUSTDOC: [&str; 5] = ["contributing", "control", "server", "mit", "apache"];

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
    for package in ["control", "lookup", "pace", "regions", "server"] {
        pages(package, &mut found);
        pages(&format!("{package}/docs"), &mut found);
    }
    assert!(found.len() > 25, "the pages are here");
    let (mut wrong, mut followed) = (Vec::new(), 0);
    for page in found {
        let text = fs::read_to_string(&page).expect("UTF-8");
        let defined = definitions(&text).into_iter().map(|(_, target)| target);
        for target in inline_targets(&text).into_iter().chain(defined) {
            let Some((file, anchor)) = local(&page, target) else { continue };
            followed += 1;
            let has = |bytes: Vec<u8>, anchor: &str| {
                anchors(&String::from_utf8_lossy(&bytes)).contains(anchor)
            };
            let exists =
                fs::read(&file).is_ok_and(|bytes| anchor.is_none_or(|anchor| has(bytes, &anchor)));
            if !exists {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(followed > 50, "links are found");
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// Returns `text` without blocks of code.
fn without_code(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Returns the labels of the links `[text][label]` and ``[`label`]`` in `text`.
fn used_labels(text: &str) -> BTreeSet<String> {
    let is_definition = |line: &&str| line.starts_with('[') && line.contains("]: ");
    let lines = without_code(text);
    let text: String = lines.split_inclusive('\n').filter(|line| !is_definition(line)).collect();
    let explicit = text.split("][").skip(1).filter_map(|it| it.split_once(']')).map(|(it, _)| it);
    let mut labels: BTreeSet<String> = explicit.map(str::to_owned).collect();
    for (start, _) in text.match_indices("[`") {
        let Some((label, rest)) = text[start + 1..].split_once(']') else { continue };
        let is_text = rest.starts_with(['(', '[']);
        if !is_text && !text[..start].ends_with(']') && label.ends_with('`') {
            labels.insert(label.to_owned());
        }
    }
    labels
}

/// Returns the last name of a path, such as `check` of `crate::Limiter::check`. A package that does not depend on the
/// library has addresses, such as `https://docs.rs/../struct.Limiter.html#method.check`.
fn last_name(path: &str) -> &str {
    if let Some((_, method)) = path.split_once("#method.") {
        return method;
    }
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    match path.strip_suffix(".html").and_then(|path| path.rsplit('.').next()) {
        Some(item) => item,
        None => path.rsplit("::").next().expect("a name"),
    }
}

/// Returns whether `source` defines the [last name](last_name) of `path`.
fn defines(source: &str, path: &str) -> bool {
    let name = last_name(path);
    let kinds = ["struct", "enum", "trait", "fn", "mod", "type", "const"];
    let starts_with = |line: &str, start: &str| {
        let rest = line.split_once(start).map(|(_, rest)| rest);
        rest.is_some_and(|it| !it.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    };
    source.lines().map(str::trim).any(|line| {
        kinds.iter().any(|kind| starts_with(line, &format!("{kind} {name}")))
            || line.starts_with(&format!("pub {name}:"))
            || (name.starts_with(char::is_uppercase) && line.starts_with(name))
    })
}

/// Each link by label works as a file, by the definition in its page, and in rustdoc, by the one in
/// `docs/links.md` of its package. `scripts/links` writes the definitions of a page.
#[test]
fn links_by_label_work_in_both_places() {
    let mut found = vec![PathBuf::from("README.md")];
    pages("docs", &mut found);
    check_labels(&found, "docs/links.md", 400);
    let mut found = Vec::new();
    pages("control/docs", &mut found);
    check_labels(&found, "control/docs/links.md", 19);
    for (package, least) in [("lookup", 15), ("pace", 8), ("regions", 25)] {
        let page = PathBuf::from(format!("{package}/README.md"));
        check_labels(&[page], &format!("{package}/docs/links.md"), least);
    }
}

/// Checks the labels of pages, of which there are so many or more.
fn check_labels(found: &[PathBuf], links: &str, least: usize) {
    let links = fs::read_to_string(links).expect("the definitions of rustdoc");
    let pictures = fs::read_to_string("docs/pictures/links.md").expect("the pictures");
    let in_rustdoc: BTreeMap<&str, &str> =
        definitions(&links).into_iter().chain(definitions(&pictures)).collect();
    let (mut wrong, mut followed) = (Vec::new(), 0);
    for page in found {
        let text = fs::read_to_string(page).expect("UTF-8");
        let mut report = |what: String| wrong.push(format!("{}: {what}", page.display()));
        for target in inline_targets(&text) {
            if ["crate", "Self", "super"].iter().any(|it| target.starts_with(it)) {
                report(format!("({target}) works in rustdoc only"));
            }
        }
        let defined: BTreeMap<&str, &str> = definitions(&text).into_iter().collect();
        for label in used_labels(&text) {
            if !defined.contains_key(label.as_str()) {
                report(format!("[{label}] is not defined in the page"));
            }
        }
        for (label, target) in defined {
            if target.contains("://") || NOT_IN_RUSTDOC.contains(&label) {
                continue;
            }
            followed += 1;
            let Some(path) = in_rustdoc.get(label) else {
                report(format!("[{label}] is not defined in docs/links.md"));
                continue;
            };
            let file = page.parent().expect("a folder").join(target);
            let is_source = file.extension().is_some_and(|it| it == "rs");
            let is_module = file.ends_with("mod.rs");
            let right = fs::read_to_string(&file).is_ok_and(|it| is_module || defines(&it, path));
            if is_source && !right {
                report(format!("[{label}] is not in {target}"));
            }
        }
    }
    assert!(followed >= least, "links are found");
    assert!(wrong.is_empty(), "run scripts/links:\n{}", wrong.join("\n"));
}

#[test]
fn rustdoc_has_the_pictures() {
    let links = fs::read_to_string("docs/pictures/links.md").expect("the pictures");
    let pictures = definitions(&links);
    let files = fs::read_dir("docs/pictures").expect("a directory");
    let is_picture = |path: PathBuf| path.extension().is_some_and(|it| it == "svg");
    let drawn = files.filter(|it| is_picture(it.as_ref().expect("an entry").path())).count();
    assert_eq!(pictures.len(), drawn, "run scripts/pictures --redraw");
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
