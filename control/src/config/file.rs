//! The file of a configuration.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The file of a configuration, and the text that was read last from it.
pub(super) struct File {
    path: PathBuf,
    last: Mutex<Option<Vec<u8>>>,
}

impl File {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.into(), last: Mutex::default() }
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is too large.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(&self.path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        Ok(bytes)
    }

    /// Reads the file, and returns what was read if it is the same as the time before. An editor may have
    /// written a part of the file.
    pub(super) fn read_settled(&self) -> Option<io::Result<Vec<u8>>> {
        let now = self.read();
        let text = now.as_ref().ok().cloned();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_settled = *last == text;
        *last = text;
        is_settled.then_some(now)
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn a_text_that_is_being_written_is_not_taken() {
        let path = env::temp_dir().join(format!("plimsoll-settled-{}", std::process::id()));
        let file = File::new(&path);
        let settled = |text: &str| {
            fs::write(&path, text).unwrap();
            file.read_settled().map(Result::unwrap)
        };
        assert_eq!(settled("policies.api"), None);
        assert_eq!(settled("policies.api = '1/s'"), None);
        assert_eq!(settled("policies.api = '1/s'"), Some(b"policies.api = '1/s'".to_vec()));
        assert_eq!(settled(""), None);
        fs::remove_file(&path).unwrap();
        assert!(file.read_settled().is_none());
        assert!(file.read_settled().unwrap().is_err());
    }
}
