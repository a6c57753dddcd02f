//! The files with limits that the settings name.

use std::path::PathBuf;

use plimsoll_control::Format;

use crate::{
    folder::{self, Folder},
    settings::Settings,
};

/// The error of limits that cannot be used.
pub(crate) type LimitsError = Box<dyn std::error::Error + Send + Sync>;

/// Returns the files of plimsoll that the [settings](Settings) name: a file itself, and all files below a
/// folder in the order of their paths.
///
/// # Errors
///
/// Returns an error if a folder cannot be read or has no file, or if it has a file that is not one of plimsoll by
/// its name.
pub(crate) fn limits(settings: &Settings) -> Result<Vec<PathBuf>, LimitsError> {
    let mut files = Vec::new();
    for path in &settings.configs {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let shown = path.display();
        let found = Folder::read(path)
            .map_err(|error| format!("the folder {shown} cannot be read: {error}"))?;
        if found.files.is_empty() {
            let allowed = "a file with limits, whose name does not begin with a dot";
            return Err(format!("the folder {shown} has no file, allowed is {allowed}").into());
        }
        let mut others = found.files.clone();
        others.retain(|file| Format::of_path(file).is_none());
        if !others.is_empty() {
            return Err(format!(
                "the folder {shown} has files that would not be read ({}), allowed are .toml, .yaml, .yml and .json \
                 files; --envoy-config names the files of envoyproxy/ratelimit",
                folder::listed(&others),
            )
            .into());
        }
        files.extend(found.files);
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
    let listed = folder::listed(&hidden);
    Some(format!("not read, because the names begin with a dot: {listed}"))
}
