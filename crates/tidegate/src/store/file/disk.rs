//! What the log needs of a disk, so that tests can replace it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder of files.
///
/// Written bytes are durable only once the file is [synced](DiskFile::sync), and names only once
/// the [folder is](Self::sync_names). Until then a crash may keep any part of them.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The contents of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The first bytes of a file: at least 64, if there are as many.
    fn read_start(&self, name: &str) -> io::Result<Vec<u8>> {
        self.read(name)
    }

    /// A new, empty file. No file of that name may exist.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, in place of the file that had the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Cuts off everything after this many bytes of a file, which is no longer read.
    fn cut(&self, name: &str, len: u64) -> io::Result<()>;

    /// Makes names durable: of new, renamed and removed files.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file for writing.
pub trait DiskFile: fmt::Debug + Send {
    /// Writes bytes at an offset, all of them or an error.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the written bytes durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder of the file system, owned by this process for as long as this value lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked; `None` for readers.
    lock: Option<File>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            // Closing it would do, unless a process that is being started has a copy for a moment.
            // If unlocking fails, closing releases it.
            let _ = lock.unlock();
        }
    }
}

impl Folder {
    /// Locks a folder for this process, and creates it if it is missing.
    ///
    /// The error is of kind [`WouldBlock`](io::ErrorKind::WouldBlock) if another process has locked
    /// it.
    pub fn own(path: &Path) -> io::Result<Self> {
        let made = make_folders(path)?;
        let lock = path.join(LOCK);
        let mut lock = (OpenOptions::new().read(true).write(true).create(true).truncate(false))
            .mode(OWN_FILE)
            .open(lock)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                lock.read_to_string(&mut owner)?;
                let message = format!("process {} uses it", owner.trim());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        for folder in made {
            // The name of a folder is in its parent.
            File::open(folder.join(".."))?.sync_all()?;
        }
        Ok(Self { path: path.into(), lock: Some(lock) })
    }

    /// A folder for reading, whichever process uses it.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Self { path: path.into(), lock: None })
    }
}

/// Creates a folder and its parents, and returns those that were missing.
fn make_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made = path.ancestors().take_while(is_missing).map(Into::into).collect();
    fs::DirBuilder::new().recursive(true).mode(OWN_FOLDER).create(path)?;
    Ok(made)
}

impl Disk for Folder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // No file of the store has a name that is not UTF-8.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn read_start(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        File::open(self.path.join(name))?.take(64).read_to_end(&mut start)?;
        Ok(start)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        Ok(Box::new(options.write(true).create_new(true).mode(OWN_FILE).open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path.join(name))?;
        // It must not grow.
        if file.metadata()?.len() > len { file.set_len(len) } else { Ok(()) }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Keys may be personal data, so only the owner may read the files.
const OWN_FILE: u32 = 0o600;
const OWN_FOLDER: u32 = 0o700;

/// The lock file of a folder. It stays when the lock is released.
const LOCK: &str = "lock";
