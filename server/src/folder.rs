//! The files below a folder.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The most files and folders below a folder.
const MAX_ENTRIES: usize = 1_000;

/// The files below a folder, in the order of their paths.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    pub(crate) files: Vec<PathBuf>,
    /// The files and folders that are left out because their names begin with one dot. Names with two dots, such as
    /// the versions of a mounted ConfigMap, are left out too, and are not listed.
    pub(crate) hidden: Vec<PathBuf>,
}

impl Folder {
    /// Finds the files at any depth and with any name. Links are followed.
    ///
    /// # Errors
    ///
    /// Returns an error if an entry cannot be read, is neither a file nor a folder, or is a folder that a link shows
    /// a second time, and if there are more than 1,000 entries.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let mut folders = vec![path.to_owned()];
        let mut known = HashSet::new();
        while let Some(folder) = folders.pop() {
            let true_path = fs::canonicalize(&folder).map_err(|error| in_file(&folder, &error))?;
            if !known.insert(true_path) {
                let twice = io::Error::other("a link shows this folder a second time");
                return Err(in_file(&folder, &twice));
            }
            let entries = fs::read_dir(&folder).map_err(|error| in_file(&folder, &error))?;
            for entry in entries {
                let path = entry.map_err(|error| in_file(&folder, &error))?.path();
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                if name.starts_with(b".") {
                    if !name.starts_with(b"..") {
                        found.hidden.push(path);
                    }
                    continue;
                }
                let kind = fs::metadata(&path).map_err(|error| in_file(&path, &error))?;
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    found.files.push(path);
                } else {
                    let other = io::Error::other("this is neither a file nor a folder");
                    return Err(in_file(&path, &other));
                }
            }
            let entries = found.files.len() + found.hidden.len() + folders.len() + known.len();
            if entries > MAX_ENTRIES {
                let many = format!("there are more than {MAX_ENTRIES} files and folders");
                return Err(io::Error::other(many));
            }
        }
        found.files.sort();
        found.hidden.sort();
        Ok(found)
    }
}

/// Returns the paths of some files as a text for an error: the first of them, and the number of the others.
pub(crate) fn listed(files: &[PathBuf]) -> String {
    const MAX_NAMED: usize = 5;
    let named = files.iter().take(MAX_NAMED).map(|file| file.display().to_string());
    let named = named.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

fn in_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
