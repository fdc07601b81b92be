//! Temporary folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder, removed with this value. Its path is short enough for the path of a socket.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tgr-{}-{number}", std::process::id()));
        // Left by a killed process that had the same id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("cannot create {path:?}: {error}"));
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file; a reader sees either the old text or the new.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .unwrap_or_else(|error| panic!("cannot write {path:?}: {error}"));
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
