//! What the log needs of a disk, so that a test can put one of its own under it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder of files.
///
/// What was written is safe only once the file is [synced](DiskFile::sync), and names are safe only
/// once the [folder is](Self::sync_names). Until then a crash may keep any part of it.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Everything that is in a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The first bytes of a file: at least 64, if there are as many.
    fn read_start(&self, name: &str) -> io::Result<Vec<u8>> {
        self.read(name)
    }

    /// A new, empty file. One of that name must not be there.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, instead of the file that had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Cuts off what is behind so many bytes of a file, which nobody reads any more.
    fn cut(&self, name: &str, len: u64) -> io::Result<()>;

    /// Makes names safe: of new files, of those renamed and removed.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file that is written.
pub trait DiskFile: fmt::Debug + Send {
    /// Writes bytes at a place, all of them or an error.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes safe what was written.
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
            // Closing it would do, unless a process that is being started has a copy for a moment. If
            // it cannot be given back so, it is given back by closing.
            let _ = lock.unlock();
        }
    }
}

impl Folder {
    /// Takes a folder into possession, and makes it if it is not there.
    ///
    /// The error is of kind [`WouldBlock`](io::ErrorKind::WouldBlock) if another process has it.
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
                let message = format!("process {} has it", owner.trim());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        for folder in made {
            // It is in its parent that a folder has its name.
            File::open(folder.join(".."))?.sync_all()?;
        }
        Ok(Self { path: path.into(), lock: Some(lock) })
    }

    /// A folder to look into, whoever has it.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Self { path: path.into(), lock: None })
    }
}

/// Makes a folder and those that it is in, and reports which were made.
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
            // A name that is not text is none of ours.
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

/// Keys are names of people, so what is written down is for its owner alone.
const OWN_FILE: u32 = 0o600;
const OWN_FOLDER: u32 = 0o700;

/// The file by which a folder is locked. It stays when the lock is given back.
const LOCK: &str = "lock";
