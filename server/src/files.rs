//! The files with limits that the settings name, by their format.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::settings::Settings;

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
    /// Finds the files that the settings name: a file itself, and the files of a folder in the order of their
    /// names. A file with the field `domain` has the format of envoyproxy/ratelimit.
    ///
    /// # Errors
    ///
    /// Returns an error if a folder cannot be read, has no file with limits, or has files of both formats.
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

    fn add_folder(&mut self, path: &Path) -> Result<(), LimitsError> {
        let folder = path.display();
        let unreadable = |error| format!("the folder {folder} cannot be read: {error}");
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.path();
            if is_config(&file) {
                found.push(file);
            }
        }
        found.sort();
        let count = found.iter().filter(|file| has_domain(file)).count();
        if found.is_empty() {
            let allowed = ".toml, .yaml, .yml or .json file";
            return Err(format!("the folder {folder} has no {allowed}").into());
        } else if count == 0 {
            self.limits.extend(found);
        } else if count == found.len() {
            // The folder itself, so that new files in it are found.
            self.envoy.push(path.to_owned());
        } else {
            return Err(format!(
                "the folder {folder} has files of plimsoll and of envoyproxy/ratelimit, allowed is a folder \
                 for each format"
            )
            .into());
        }
        Ok(())
    }
}

/// Returns whether a file has limits. The files of a ConfigMap are symbolic links, and hidden folders hold
/// what they point to.
fn is_config(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    !name.starts_with('.')
        && ["toml", "yaml", "yml", "json"].contains(&extension(file))
        && file.is_file()
}

/// Returns whether a file has the field `domain`. One that cannot be read or parsed is reported by what reads it.
fn has_domain(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else { return false };
    match extension(file) {
        "yaml" | "yml" => {
            if let Ok(fields) = serde_saphyr::from_str::<BTreeMap<String, IgnoredAny>>(&text) {
                return fields.contains_key("domain");
            }
            // The text does not parse. Unless it is in flow style, its fields begin in the first column.
            let field = |line: &str| {
                line.split(':').next().map(|it| it.trim_matches(['"', '\'', ' ']).to_owned())
            };
            text.lines()
                .any(|line| !line.starts_with(' ') && field(line).as_deref() == Some("domain"))
        }
        "json" => {
            serde_json::from_str::<Value>(&text).is_ok_and(|value| value.get("domain").is_some())
        }
        _ => false,
    }
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
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
