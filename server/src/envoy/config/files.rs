//! The files of a configuration.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use plimsoll_control::{ConfigError, Format};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// The most files.
const MAX_FILES: usize = 1_000;

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::envoy) struct Source {
    pub(super) name: String,
    pub(super) format: Format,
    pub(super) text: String,
}

impl Source {
    pub(super) fn yaml(name: &str, text: &str) -> Self {
        Self { name: name.into(), format: Format::Yaml, text: text.into() }
    }
}

/// Reads files: each path is a file, or a folder of files that end with `.yaml`, `.yml` or `.json`. Files of a
/// folder come in the order of their names.
///
/// # Errors
///
/// Returns an error for each file that cannot be read.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Source>, Vec<ConfigError>> {
    let (mut sources, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        let shown = path.display().to_string();
        match files(path) {
            Ok(files) => files.iter().for_each(|file| match source(file) {
                Ok(source) => sources.push(source),
                Err(error) => {
                    errors.push(ConfigError::unreadable(&file.display().to_string(), &error))
                }
            }),
            Err(error) => errors.push(ConfigError::unreadable(&shown, &error)),
        }
        if sources.len() > MAX_FILES {
            let error = io::Error::other(format!("there are more than {MAX_FILES} files"));
            errors.push(ConfigError::unreadable(&shown, &error));
            break;
        }
    }
    if errors.is_empty() { Ok(sources) } else { Err(errors) }
}

fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        // A mounted ConfigMap has its versions in hidden folders.
        let is_hidden = file.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        if !is_hidden && format(&file).is_some() && fs::metadata(&file)?.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn source(path: &Path) -> io::Result<Source> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is larger than 8 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
    // A file that is named alone may have any name.
    let format = format(path).unwrap_or(Format::Yaml);
    Ok(Source { name: path.display().to_string(), format, text })
}

fn format(path: &Path) -> Option<Format> {
    Format::of_path(path).filter(|format| *format != Format::Toml)
}
