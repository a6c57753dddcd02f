//! The files of `src/`, and of the other packages: what each imports, and how large it is.
//!
//! `./scripts/sizes` prints a table of the sizes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::known::{SMALL, SMALL_ELSEWHERE};

/// Files below this number of lines of code need a cause.
const MIN_LINES: usize = 40;
const MAX_LINES: usize = 500;

/// Imports that must not be: a sentence, the files, and what they import. A path names a file or a folder
/// below `src`.
const FORBIDDEN: &[(&str, &[&str], &[&str])] = &[
    ("a rule imports a store", &["rule"], &["store", "memory", "redis", "remote"]),
    ("`redis/` imports nothing of `remote/` or `memory/`", &["redis"], &["remote", "memory"]),
    ("`middleware/` imports nothing of `memory/`", &["middleware"], &["memory"]),
    ("the guarded store knows nothing of leases", &["remote"], &["remote/leases"]),
];

/// The folders of the other crates, each with the folders below it that are crates of their own: programs.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("control/src", &["bin"]),
    ("control/src/bin/plimsoll", &[]),
    ("lookup/src", &[]),
    ("postgres/src", &[]),
    ("pace/src", &[]),
    ("regions/src", &[]),
    ("server/src", &[]),
];

/// The parts of `remote/` that are above the guarded store.
const ABOVE_GUARDED: &[&str] = &["remote/leases", "remote/pipeline"];

/// A file of `src/`, without its tests.
struct Source {
    /// The path below `src`, such as `redis/wire`. It is `redis` for `redis/mod.rs`, and empty for `lib.rs`, or for the
    /// `main.rs` of a program without one.
    path: String,
    /// Without comments, with the texts of literals.
    code: String,
    is_folder: bool,
}

impl Source {
    fn lines(&self) -> usize {
        self.code.lines().filter(|line| !line.trim().is_empty()).count()
    }

    fn folder(&self) -> &str {
        self.path.split_once('/').map_or(self.path.as_str(), |(folder, _)| folder)
    }

    /// Returns the `use` declarations: whether they export, and their paths.
    fn uses(&self) -> impl Iterator<Item = (bool, &str)> {
        self.code.match_indices("use ").filter_map(|(at, start)| {
            let before = self.code[..at].trim_end_matches(' ');
            let is_export = before.ends_with(')') || self.code[..at].ends_with("pub ");
            let begins = before.is_empty() || before.ends_with(['\n', '}', '{', ';']);
            let paths = self.code[at + start.len()..].split(';').next()?;
            (is_export || begins).then_some((is_export, paths))
        })
    }

    /// Returns the names of the types that have an `impl` block of their own in the file.
    fn types_with_impl(&self) -> impl Iterator<Item = &str> {
        let blocks = self.code.lines().filter_map(|line| line.strip_prefix("impl"));
        blocks.filter_map(|block| {
            let rest = after_generics(block).trim_start();
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, rest) = (&rest[..end], after_generics(&rest[end..]));
            let is_own = !name.is_empty() && !rest.contains(" for ") && !rest.starts_with("::");
            is_own.then_some(name)
        })
    }

    /// Returns the full paths of all names that the file imports or calls by a path, with `/` for `::`.
    fn imports(&self, sources: &BTreeMap<String, Source>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        // A folder exports what its files have, or lends it to them: that is no import.
        for (_, paths) in self.uses().filter(|(is_export, _)| !(self.is_folder && *is_export)) {
            members("", paths, &mut found);
        }
        for lead in ["crate::", "super::", "self::"] {
            for (at, _) in self.code.match_indices(lead) {
                // `pub(in crate::path)` is no import.
                let is_start = !self.code[..at].ends_with("(in ")
                    && !self.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == ':');
                if is_start && !self.is_folder {
                    members("", &self.code[at..], &mut found);
                }
            }
        }
        let absolute = found.iter().filter_map(|path| self.absolute(path, sources));
        let is_own = |path: &String| self.is_folder && is_in(path, &self.path);
        let mut absolute: BTreeSet<String> = absolute.filter(|path| !is_own(path)).collect();
        // Names that are called by the name of an imported module, such as `wire::encode`.
        let modules: Vec<_> =
            absolute.iter().filter(|path| sources.contains_key(*path)).cloned().collect();
        for module in modules {
            let name = module.rsplit('/').next().expect("some");
            for (at, _) in self.code.match_indices(&format!("{name}::")) {
                if !self.code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) {
                    let rest = &self.code[at + name.len() + 2..];
                    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                    absolute.insert(format!("{module}/{}", &rest[..end.unwrap_or(rest.len())]));
                }
            }
        }
        absolute
    }

    /// Resolves the leading `crate`, `self`, `super` or own module of a path.
    fn absolute(&self, path: &str, sources: &BTreeMap<String, Source>) -> Option<String> {
        let own = self.path.clone();
        let (mut base, mut rest) = match path.split_once('/')? {
            ("crate", rest) => (String::new(), rest),
            ("self", rest) => (own, rest),
            ("super", rest) => (parent(&own), rest),
            (module, _) if sources.contains_key(&join(&own, module)) => (own, path),
            _ => return None,
        };
        while let Some(above) = rest.strip_prefix("super/") {
            (base, rest) = (parent(&base), above);
        }
        Some(
            [base.as_str(), rest]
                .into_iter()
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join("/"),
        )
    }
}

fn parent(path: &str) -> String {
    path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned()
}

/// Reads one path at the beginning of `rest`, with its groups in braces, and returns its length.
fn members(before: &str, rest: &str, paths: &mut BTreeSet<String>) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    // Behind another module, `self` and a group in braces name that module.
    let path = match (before, &rest[..name]) {
        ("", first) => first.to_owned(),
        (before, "" | "self") => before.to_owned(),
        (before, next) => format!("{before}/{next}"),
    };
    if rest[name..].starts_with("::") {
        return name + 2 + members(&path, &rest[name + 2..], paths);
    }
    if name > 0 || !rest.starts_with('{') {
        paths.insert(path);
        return name;
    }
    let mut at = 1;
    while let Some(next) = rest[at..].find(|c: char| is_name(c) || c == '{' || c == '}') {
        at += next;
        if rest[at..].starts_with('}') {
            return at + 1;
        }
        if rest[at..].starts_with("as ") {
            at += 3 + rest[at + 3..].find(|c| !is_name(c)).unwrap_or(0);
            continue;
        }
        at += members(before, &rest[at..], paths);
    }
    rest.len()
}

/// Reads the files of a crate by their paths below `root`, without files of tests.
fn sources(root: &Path) -> BTreeMap<String, Source> {
    let mut found = Vec::new();
    super::files(root, &mut found);
    let first = if root.join("lib.rs").exists() { "lib" } else { "main" };
    let mut sources = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for file in found {
        let path = file.strip_prefix(root).expect("below").with_extension("");
        let path = path.to_str().expect("UTF-8");
        let text = fs::read_to_string(&file).expect("UTF-8");
        let is_folder = path.ends_with("mod") || path == first;
        let path = path.trim_end_matches("mod").trim_end_matches('/').to_owned();
        let path = if path == first { String::new() } else { path };
        for declared in text.split("#[cfg(test)]\n").skip(1) {
            let mut lines = declared.lines().skip_while(|line| line.starts_with("#["));
            let file = declared.split_once("#[path = \"").filter(|(before, _)| before.is_empty());
            let file = file.and_then(|(_, rest)| rest.split(".rs").next());
            if let Some(name) =
                lines.next().and_then(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
            {
                let folder = if is_folder { path.clone() } else { parent(&path) };
                tests.insert(join(&folder, file.unwrap_or(name)));
                tests.insert(join(&path, file.unwrap_or(name)));
            }
        }
        let code = super::code(&file);
        sources.insert(path.clone(), Source { path, code, is_folder });
    }
    sources.retain(|path, _| !tests.iter().any(|test| is_in(path, test)));
    sources
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Returns whether `path` is `place` or below it.
fn is_in(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the file in which the item at `path` is defined, following the exports of folders.
fn file_of(path: &str, sources: &BTreeMap<String, Source>) -> Option<String> {
    if sources.contains_key(path) {
        return Some(path.to_owned());
    }
    let (mut module, mut name) = path.rsplit_once('/').unwrap_or(("", path));
    while !sources.contains_key(module) {
        (module, name) = module.rsplit_once('/').unwrap_or(("", module));
    }
    let source = &sources[module];
    let mut exports = BTreeSet::new();
    for (_, paths) in source.uses().filter(|(is_export, _)| *is_export || source.is_folder) {
        members("", paths, &mut exports);
    }
    let ending = format!("/{name}");
    let exports = exports.iter().filter(|export| export.ends_with(&ending));
    let mut exports = exports.filter_map(|export| source.absolute(export, sources));
    match exports.find(|export| export != path && is_in(export, module)) {
        Some(export) => file_of(&export, sources),
        None => Some(module.to_owned()).filter(|module| !module.is_empty()),
    }
}

/// Returns the files that each file imports from.
fn edges(sources: &BTreeMap<String, Source>) -> BTreeMap<String, BTreeSet<String>> {
    let edges = sources.values().filter(|source| !source.path.is_empty()).map(|source| {
        // A file with verbs of a type belongs to the type: that it names the type is no import.
        let own: BTreeSet<&str> = source.types_with_impl().collect();
        let is_own = |path: &String| path.rsplit('/').next().is_some_and(|name| own.contains(name));
        let imports = source.imports(sources).into_iter().filter(|path| !is_own(path));
        let files = imports.filter_map(|path| file_of(&path, sources));
        let files = files.filter(|file| *file != source.path);
        // A folder that does nothing but export is no part of a circle.
        (source.path.clone(), files.collect())
    });
    edges.collect()
}

/// Returns the groups of files that import each other.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reach = |from: &String| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            for to in edges.get(file).into_iter().flatten() {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|file| (file, reach(file))).collect();
    let group = |file: &String| {
        let both =
            reached[file].iter().filter(|to| reached.get(**to).is_some_and(|it| it.contains(file)));
        both.map(|to| to.as_str()).collect::<Vec<_>>()
    };
    let groups = edges.keys().map(group).filter(|group| group.len() > 1);
    groups.map(|group| format!("circle: {}", group.join(", "))).collect()
}

fn forbidden(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (file, imported) in edges {
        for (rule, files, banned) in FORBIDDEN {
            let is_above = ABOVE_GUARDED.iter().any(|above| is_in(file, above));
            let concerns = files.iter().any(|place| is_in(file, place))
                && !(banned == &["remote/leases"] && is_above);
            let wrong = imported.iter().filter(|to| banned.iter().any(|place| is_in(to, place)));
            found.extend(
                wrong.filter(|_| concerns).map(|to| format!("{file} imports {to}: {rule}")),
            );
        }
    }
    found
}

/// Returns the types whose own `impl` blocks stand outside of one folder and the folders below it.
fn spread(sources: &BTreeMap<String, Source>) -> BTreeSet<String> {
    let mut places: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.values() {
        // A module that takes the place of another while a feature is off.
        if source.path.rsplit('/').next().is_some_and(|name| name.starts_with("no_")) {
            continue;
        }
        for name in source.types_with_impl() {
            places.entry(name.to_owned()).or_default().insert(&source.path);
        }
    }
    let spread = places.iter().filter(|(_, files)| {
        let folders: Vec<String> = files.iter().map(|file| parent(file)).collect();
        !folders.iter().any(|folder| folders.iter().all(|other| is_in(other, folder)))
    });
    spread
        .map(|(name, files)| {
            format!("impl of {name}: {}", Vec::from_iter(files.iter().copied()).join(", "))
        })
        .collect()
}

/// Skips `<..>` at the beginning of `text`.
fn after_generics(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if c == '>' { &text[at + 1..] } else { &text[at..] };
        }
    }
    text
}

/// Returns the folders of `src/` that hold more than a quarter of its code.
fn large_folders(sources: &BTreeMap<String, Source>) -> BTreeSet<String> {
    let total: usize = sources.values().map(Source::lines).sum();
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources.values() {
        *folders.entry(source.folder()).or_default() += source.lines();
    }
    let is_large = |(folder, lines): &(&str, usize)| !folder.is_empty() && lines * 4 > total;
    let large = folders.into_iter().filter(is_large);
    large.map(|(folder, _)| format!("folder above a quarter: {folder}")).collect()
}

fn sizes(sources: &BTreeMap<String, Source>) -> BTreeSet<String> {
    let files = sources.values().filter_map(|source| match source.lines() {
        lines if lines > MAX_LINES => Some(format!("above {MAX_LINES} lines: {}", source.path)),
        lines if lines < MIN_LINES && !source.is_folder => {
            Some(format!("below {MIN_LINES} lines: {}", source.path))
        }
        _ => None,
    });
    files.collect()
}

/// Compares the small files among the violations with the list of those that have a cause.
fn assert_known(place: &str, found: &BTreeSet<String>, small: &[&str]) {
    let known = small.iter().map(|file| format!("below {MIN_LINES} lines: {file}"));
    let known: BTreeSet<String> = known.collect();
    let lines =
        |set: Vec<&String>| set.iter().map(|it| format!("    {it:?},\n")).collect::<String>();
    let (new, gone) = (found.difference(&known).collect(), known.difference(found).collect());
    let (new, gone) = (lines(new), lines(gone));
    assert!(
        new.is_empty() && gone.is_empty(),
        "{place}, broken:\n{new}\nnot broken any more, remove:\n{gone}"
    );
}

#[test]
fn files_keep_the_rules() {
    let sources = sources(Path::new("src"));
    let edges = edges(&sources);
    assert!(edges.values().map(BTreeSet::len).sum::<usize>() > 500, "imports are found");
    let large = large_folders(&sources);
    let found = [circles(&edges), forbidden(&edges), spread(&sources), sizes(&sources), large];
    let small: Vec<_> = SMALL.iter().map(|(file, _)| *file).collect();
    assert_known("src", &found.into_iter().flatten().collect(), &small);
}

#[test]
fn files_of_other_packages_keep_the_rules() {
    let mut imports = 0;
    for (root, others) in ELSEWHERE {
        let mut sources = sources(Path::new(root));
        sources.retain(|path, _| !others.iter().any(|other| is_in(path, other)));
        let edges = edges(&sources);
        imports += edges.values().map(BTreeSet::len).sum::<usize>();
        let found = [circles(&edges), sizes(&sources)];
        let small = SMALL_ELSEWHERE.iter().filter(|(of, _)| of == root);
        let small = small.flat_map(|(_, files)| files.iter().map(|(file, _)| *file));
        assert_known(root, &found.into_iter().flatten().collect(), &small.collect::<Vec<_>>());
    }
    assert!(imports > 300, "imports are found: {imports}");
}

#[test]
fn paths_and_generics_are_read() {
    let mut found = BTreeSet::new();
    members("", "super::{self, a::{B as C, d}, e::F};", &mut found);
    assert_eq!(Vec::from_iter(found), ["super", "super/a/B", "super/a/d", "super/e/F"]);
    let mut found = BTreeSet::new();
    members("self", "a::{self, B};", &mut found);
    assert_eq!(Vec::from_iter(found), ["self/a", "self/a/B"]);
    assert_eq!(after_generics("<A: B<C>, D: Fn() -> E> F {"), " F {");
    let edges = [("a", &["b"][..]), ("b", &["c"]), ("c", &["a", "d"]), ("d", &[])];
    let edges =
        edges.map(|(from, to)| (from.to_owned(), to.iter().map(|it| it.to_string()).collect()));
    assert_eq!(circles(&BTreeMap::from(edges)), BTreeSet::from(["circle: a, b, c".to_owned()]));
}
