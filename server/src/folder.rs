//! The files below a folder.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The most files and folders below a folder.
const MAX_ENTRIES: usize = 1_000;

/// Returns the files below a folder at any depth and with any name, in the order of their paths. Links are followed.
/// Files and folders whose names begin with a dot are left out: a mounted ConfigMap has its versions in such
/// folders, and editors their drafts in such files.
///
/// # Errors
///
/// Returns an error if an entry cannot be read, is neither a file nor a folder, or is a folder that a link shows a
/// second time, and if there are more than 1,000 entries.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let (mut files, mut known) = (Vec::new(), HashSet::new());
    while let Some(folder) = folders.pop() {
        let named = |error: io::Error| in_file(&folder, &error);
        if !known.insert(fs::canonicalize(&folder).map_err(named)?) {
            let twice = io::Error::other("a link shows this folder a second time");
            return Err(in_file(&folder, &twice));
        }
        for entry in fs::read_dir(&folder).map_err(named)? {
            let path = entry.map_err(named)?.path();
            if path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")) {
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
