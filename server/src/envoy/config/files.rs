//! The files of a configuration.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use plimsoll_control::{ConfigError, Format, document::Mistake};

use crate::folder::Folder;

/// The largest file, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::envoy) struct FileText {
    pub(super) name: String,
    pub(super) format: Format,
    pub(super) text: String,
}

impl FileText {
    pub(super) fn yaml(name: &str, text: &str) -> Self {
        Self { name: name.into(), format: Format::Yaml, text: text.into() }
    }
}

/// The files as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::envoy) struct Files {
    pub(super) texts: Vec<FileText>,
    /// The error of each path that does not exist, or is a folder without a file.
    pub(super) missing: Vec<ConfigError>,
}

/// Reads files: each path is a file, or a folder of files at any depth. Files of a folder come in the order of their
/// paths.
///
/// # Errors
///
/// Returns an error for each file that cannot be read. A path without files is not one of them.
pub(super) fn read(paths: &[PathBuf]) -> Result<Files, Vec<ConfigError>> {
    let mut texts = Vec::new();
    let mut missing = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        let shown = path.display().to_string();
        match files(path) {
            Ok(files) if files.is_empty() => {
                let mistake = Mistake::new("the folder has no file with limits");
                let allowed = "a file with a `domain`, whose name does not begin with a dot";
                missing.push(ConfigError::new(mistake.allowed(allowed), &shown, ""));
            }
            Ok(files) => files.iter().for_each(|file| match text_of(file) {
                Ok(text) => texts.push(text),
                Err(error) => {
                    errors.push(ConfigError::unreadable(&file.display().to_string(), &error))
                }
            }),
            Err(error) if matches!(path.try_exists(), Ok(false)) => {
                missing.push(ConfigError::unreadable(&shown, &error));
            }
            Err(error) => errors.push(ConfigError::unreadable(&shown, &error)),
        }
    }
    if errors.is_empty() { Ok(Files { texts, missing }) } else { Err(errors) }
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if fs::metadata(path)?.is_dir() {
        Ok(Folder::read(path)?.files)
    } else {
        Ok(vec![path.to_owned()])
    }
}

fn text_of(path: &Path) -> io::Result<FileText> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 8 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
    // A file may have any name, as with envoyproxy/ratelimit.
    let format = Format::of_path(path).filter(|format| *format == Format::Json);
    let format = format.unwrap_or(Format::Yaml);
    Ok(FileText { name: path.display().to_string(), format, text })
}
