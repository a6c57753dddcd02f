//! The files with limits that the settings name, by their format.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use plimsoll_control::Format;
use serde::de::IgnoredAny;

use crate::{
    envoy::MAX_FILE_BYTES,
    folder::{self, Folder},
    settings::Settings,
};

/// The error of limits that cannot be used.
pub(crate) type LimitsError = Box<dyn std::error::Error + Send + Sync>;

/// The files with limits, by their format.
#[derive(Debug)]
pub(crate) struct Files {
    /// The files of plimsoll.
    pub(crate) limits: Vec<PathBuf>,
    /// The files and folders of envoyproxy/ratelimit.
    pub(crate) envoy: Vec<PathBuf>,
}

impl Files {
    /// Finds the files that the settings name: a file itself, and the files below a folder in the order of their
    /// paths. A file with the field `domain` has the format of envoyproxy/ratelimit.
    ///
    /// # Errors
    ///
    /// Returns an error if a folder cannot be read or has no file, and if it has a file that has no limits, or files
    /// of both formats.
    pub(crate) fn find(settings: &Settings) -> Result<Self, LimitsError> {
        let mut files = Self { limits: Vec::new(), envoy: settings.envoy_configs.clone() };
        for path in &settings.configs {
            if path.is_dir() {
                files.add_folder(path)?;
            } else if has_domain(path) {
                files.envoy.push(path.clone());
            } else {
                files.limits.push(path.clone());
            }
        }
        Ok(files)
    }

    /// Returns a warning about the files and folders that are not read because their names begin with a dot.
    pub(crate) fn warning(settings: &Settings) -> Option<String> {
        let folders = settings.configs.iter().chain(&settings.envoy_configs);
        // An error is reported by the code that reads the files.
        let found = folders.filter_map(|path| Folder::read(path).ok());
        let hidden: Vec<_> = found.flat_map(|found| found.hidden).collect();
        if hidden.is_empty() {
            return None;
        }
        let hidden = folder::listed(&hidden);
        Some(format!("not read, because the names begin with a dot: {hidden}"))
    }

    fn add_folder(&mut self, path: &Path) -> Result<(), LimitsError> {
        let folder = path.display();
        let found = Folder::read(path)
            .map_err(|error| format!("the folder {folder} cannot be read: {error}"))?;
        let (envoy, limits): (Vec<_>, Vec<_>) =
            found.files.into_iter().partition(|it| has_domain(it));
        match (envoy.is_empty(), limits.is_empty()) {
            (true, true) => {
                let allowed = "a file with limits, whose name does not begin with a dot";
                return Err(format!("the folder {folder} has no file, allowed is {allowed}").into());
            }
            // The folder itself, so that new files in it are found.
            (false, true) => self.envoy.push(path.to_owned()),
            (false, false) => {
                let allowed = "a folder for each format";
                return Err(format!(
                    "the folder {folder} has files of envoyproxy/ratelimit with a `domain` ({}), and files \
                     without ({}), allowed is {allowed}",
                    folder::listed(&envoy),
                    folder::listed(&limits),
                )
                .into());
            }
            (true, false) => {
                let is_other = |file: &&PathBuf| Format::of_path(file).is_none();
                let others: Vec<_> = limits.iter().filter(is_other).cloned().collect();
                if !others.is_empty() {
                    return Err(format!(
                        "the folder {folder} has files that would not be read ({}), allowed are .toml, .yaml, \
                         .yml and .json files, and files of envoyproxy/ratelimit with a `domain`",
                        folder::listed(&others),
                    )
                    .into());
                }
                self.limits.extend(limits);
            }
        }
        Ok(())
    }
}

/// Returns whether a file has the field `domain`. One that cannot be read or parsed is reported by what reads it.
fn has_domain(file: &Path) -> bool {
    let Ok(text) = text(file) else { return false };
    if Format::of_path(file) == Some(Format::Toml) {
        return false;
    }
    // A file of envoyproxy/ratelimit may have any name, and JSON is YAML.
    match serde_saphyr::from_str::<BTreeMap<String, IgnoredAny>>(&text) {
        Ok(fields) => fields.contains_key("domain"),
        Err(_) => text.lines().any(|line| line.starts_with("domain:")),
    }
}

fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_domain_is_one_of_envoyproxy() {
        let folder = std::env::temp_dir().join(format!("plimsoll-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let cases = [
            ("a.yaml", "# Limits.\n---\ndomain: shop\n", true),
            ("b.yml", "\"domain\": shop", true),
            ("c.json", r#"{ "domain": "shop" }"#, true),
            ("d.yaml", "policies:\n  domain: 5/min\n", false),
            ("e.json", r#"{ "policies": { "domain": "5/min" } }"#, false),
            ("f.toml", "domain = 'shop'", false),
            ("g.json", "{", false),
            ("h.yaml", "{domain: shop, descriptors: [{key: user}]}", true),
            ("i.yaml", "{\n  policies: {domain: 5/min}\n}", false),
            ("j.yaml", "domain: shop\ndescriptors: [\n", true),
            ("k.yaml", "? domain\n: shop\n", true),
            ("l.conf", "domain: shop", true),
            ("m", "domain: shop\n  key: [", true),
            ("README.md", "# Limits\n\nThe domain: shop", false),
        ];
        for (name, text, expected) in cases {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            assert_eq!((name, has_domain(&file)), (name, expected));
        }
        assert!(!has_domain(&folder.join("missing.yaml")));
        fs::remove_dir_all(folder).unwrap();
    }
}
