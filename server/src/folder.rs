//! The files below a folder.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The most files and folders below a folder.
const MAX_ENTRIES: usize = 1_000;

/// Returns the files below a folder in the order of their paths, at any depth and with any name that does not begin with a
/// dot. Links are followed.
///
/// # Errors
///
/// Returns an error if an entry cannot be read, is neither a file nor a folder, or is a folder that a link shows
/// a second time, and if there are more than 1,000 entries.
pub(crate) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![path.to_owned()]);
    let mut known = HashSet::new();
    while let Some(folder) = folders.pop() {
        let named = |error: io::Error| in_file(&folder, &error);
        if !known.insert(fs::canonicalize(&folder).map_err(named)?) {
            let twice = io::Error::other("a link shows this folder a second time");
            return Err(in_file(&folder, &twice));
        }
        for entry in fs::read_dir(&folder).map_err(named)? {
            let path = entry.map_err(named)?.path();
            if path.file_name().unwrap_or_default().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let kind = fs::metadata(&path).map_err(|error| in_file(&path, &error))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                files.push(path);
            } else {
                let other = io::Error::other("this is neither a file nor a folder");
                return Err(in_file(&path, &other));
            }
        }
        if files.len() + folders.len() + known.len() > MAX_ENTRIES {
            let many = format!("there are more than {MAX_ENTRIES} files and folders");
            return Err(io::Error::other(many));
        }
    }
    files.sort();
    Ok(files)
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
