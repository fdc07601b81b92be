//! What the log needs of a disk, so that tests can replace it.

use std::fmt;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{self, Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use tidegate_table::clock::{Clock, MonotonicClock};
use tidegate_table::locks::lock;

use crate::error::LogError;
use crate::names::{ExpectedNames, FileKind, FolderTimes};

/// A folder of files.
///
/// Written bytes are durable only once the file is [synced](DiskFile::sync), and names only once
/// the [folder is](Self::sync_names). Until then a crash may keep any part of them.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The contents of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The contents of a file from an offset on, which are read in pieces.
    fn read_from(&self, name: &str, offset: u64) -> io::Result<Box<dyn Read + '_>> {
        let mut bytes = io::Cursor::new(self.read(name)?);
        bytes.set_position(offset);
        Ok(Box::new(bytes))
    }

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

    /// Fails if the folder is no longer where it was opened or is no longer locked, if the log has
    /// another file, or if files of the ledger were removed. Called after every write.
    fn verify(&self, _log: Option<&NamedFile>) -> io::Result<()> {
        Ok(())
    }
}

/// What is done with several operations.
impl dyn Disk + '_ {
    /// The names of all files.
    pub(crate) fn list(&self) -> Result<Vec<String>, LogError> {
        self.names().map_err(|error| LogError::disk("list the folder", error))
    }

    /// The numbers of all files of a kind, the lowest first.
    pub(crate) fn numbers(&self, kind: FileKind) -> Result<Vec<u64>, LogError> {
        let names = self.list()?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| kind.number_of(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The contents of a file.
    pub(crate) fn contents(&self, file: &str) -> Result<Vec<u8>, LogError> {
        self.read(file).map_err(|error| LogError::disk(format!("read {file}"), error))
    }

    /// Writes a file, all of it or nothing, in place of the one that had its name. Until it is whole it
    /// has a temporary name; an unfinished one is of no use.
    pub(crate) fn replace(&self, file: &str, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        let _ = self.remove(temporary);
        let mut copy = self.create(temporary)?;
        copy.write_at(0, bytes)?;
        copy.sync()?;
        self.rename(temporary, file)?;
        self.sync_names()
    }
}

/// A file for writing.
pub trait DiskFile: fmt::Debug + Send {
    /// Writes bytes at an offset, all of them or an error.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the written bytes durable.
    fn sync(&mut self) -> io::Result<()>;

    /// What makes it another file than one of the same name.
    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::default())
    }
}

/// What distinguishes a file or folder from all others that exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A file that should have a name, and at least a length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedFile {
    /// Its name.
    pub name: String,
    /// The file.
    pub identity: FileIdentity,
    /// How long it is at least.
    pub least_len: u64,
}

/// A folder of the file system, owned by this process for as long as this value lives.
///
/// Everything is done relative to the folder as it was opened. Should it be renamed and another one
/// put in its place, that one is not touched.
#[derive(Debug)]
pub struct Folder {
    /// Where it was opened.
    path: PathBuf,
    folder: File,
    identity: FileIdentity,
    /// Locked, and what file it is; `None` for readers.
    lock: Option<(File, FileIdentity)>,
    expected: Mutex<ExpectedNames>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some((lock, _)) = &self.lock {
            // Closing them would do, unless a process that is being started has a copy for a
            // moment. If unlocking fails, closing releases it.
            let _ = lock.unlock();
            let _ = self.folder.unlock();
        }
    }
}

impl Folder {
    /// Locks a folder for this process, and creates it if it is missing.
    ///
    /// The error is [`LogError::InUse`] if another process has locked it.
    pub fn own(path: &Path) -> Result<Self, LogError> {
        Self::lock(path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                LogError::InUse { path: path.into(), owner: error.to_string() }
            }
            _ => not_opened(path, error),
        })
    }

    /// A folder for reading, whichever process uses it.
    pub fn open_read_only(path: &Path) -> Result<Self, LogError> {
        Self::open(path).map_err(|error| not_opened(path, error))
    }

    fn lock(path: &Path) -> io::Result<Self> {
        let made = make_folders(path)?;
        let mut folder = Self::open(path)?;
        // The folder is locked as well as a file in it: that file may be removed.
        match folder.folder.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(folder.is_in_use()),
            // Some file systems cannot lock folders; the file remains.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let flags = OFlags::RDWR | OFlags::CREATE;
        let mut lock = folder.open_file(LOCK, flags)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(folder.is_in_use()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        for folder in made {
            // The name of a folder is in its parent.
            File::open(folder.join(".."))?.sync_all()?;
        }
        let identity = FileIdentity::of(&lock.metadata()?);
        folder.lock = Some((lock, identity));
        let names = folder.names()?;
        let mut expected = tidegate_table::locks::lock(&folder.expected);
        names.iter().for_each(|name| expected.add(name));
        drop(expected);
        folder.verify(None)?;
        Ok(folder)
    }

    fn open(path: &Path) -> io::Result<Self> {
        let folder = File::open(path)?;
        let metadata = folder.metadata()?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let (path, identity) = (path::absolute(path)?, FileIdentity::of(&metadata));
        Ok(Self { path, folder, identity, lock: None, expected: Mutex::default() })
    }

    fn is_in_use(&self) -> io::Error {
        let owner = self.read(LOCK).unwrap_or_default();
        let message = match String::from_utf8_lossy(&owner).trim() {
            "" => String::from("another process uses it"),
            owner => format!("process {owner} uses it"),
        };
        io::Error::new(io::ErrorKind::WouldBlock, message)
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        Ok(openat(&self.folder, name, flags, Mode::from_raw_mode(OWN_FILE))?.into())
    }

    /// Fails if a file of the ledger was removed by another program.
    fn verify_names(&self, metadata: &Metadata) -> io::Result<()> {
        let (times, now) = (FolderTimes::of(metadata), MonotonicClock.now());
        let mut expected = lock(&self.expected);
        if !expected.is_due(times, now) {
            return Ok(());
        }
        match expected.missing(&self.names()?, times, now) {
            None => Ok(()),
            Some(name) => Err(self.changed(&name, "was removed")),
        }
    }

    fn changed(&self, name: &str, what: &str) -> io::Error {
        let path = self.path.join(name);
        io::Error::other(format!("{} {what} while in use: {WHAT_TO_DO}", path.display()))
    }

    /// Fails unless a file of the folder is the one that it should be.
    fn verify_file(&self, name: &str, identity: FileIdentity, least_len: u64) -> io::Result<()> {
        let what = match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_dev, found.st_ino) != (identity.device, identity.inode) => {
                "was replaced"
            }
            Ok(found) if u64::try_from(found.st_size).unwrap_or(0) < least_len => "was cut short",
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::NOENT) => "was removed",
            Err(error) => return Err(error.into()),
        };
        Err(self.changed(name, what))
    }
}

fn not_opened(path: &Path, error: io::Error) -> LogError {
    LogError::disk(format!("open {}", path.display()), error)
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
        for entry in Dir::read_from(&self.folder)? {
            // No file of the store has a name that is not UTF-8.
            names.extend(entry?.file_name().to_str().ok().map(String::from));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(name, OFlags::RDONLY)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_from(&self, name: &str, offset: u64) -> io::Result<Box<dyn Read + '_>> {
        let mut file = self.open_file(name, OFlags::RDONLY)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Box::new(file))
    }

    fn read_start(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        self.open_file(name, OFlags::RDONLY)?.take(64).read_to_end(&mut start)?;
        Ok(start)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        // Locked until it is done: a list without it must not be compared with names that have it.
        let mut expected = lock(&self.expected);
        let file = self.open_file(name, flags)?;
        expected.add(name);
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut expected = lock(&self.expected);
        renameat(&self.folder, from, &self.folder, to)?;
        expected.remove(from);
        expected.add(to);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut expected = lock(&self.expected);
        unlinkat(&self.folder, name, AtFlags::empty())?;
        expected.remove(name);
        Ok(())
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        let file = self.open_file(name, OFlags::WRONLY)?;
        // It must not grow.
        if file.metadata()?.len() > len { file.set_len(len) } else { Ok(()) }
    }

    fn sync_names(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn verify(&self, log: Option<&NamedFile>) -> io::Result<()> {
        let path = self.path.display();
        let found = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        let metadata = found.as_ref().filter(|it| FileIdentity::of(it) == self.identity);
        let Some(metadata) = metadata else {
            let what = if found.is_some() { "is another folder now" } else { "was removed" };
            return Err(io::Error::other(format!("{path} {what}, while in use: {WHAT_TO_DO}")));
        };
        if let Some((_, identity)) = &self.lock {
            self.verify_file(LOCK, *identity, 0)?;
        }
        if let Some(log) = log {
            self.verify_file(&log.name, log.identity, log.least_len)?;
        }
        self.verify_names(metadata)
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::of(&self.metadata()?))
    }
}

/// Keys may be personal data, so only the owner may read the files.
const OWN_FILE: u32 = 0o600;
const OWN_FOLDER: u32 = 0o700;

/// The lock file of a folder. It stays when the lock is released.
const LOCK: &str = "lock";

/// What helps if the folder was changed underneath.
const WHAT_TO_DO: &str = "nothing is acknowledged until it is back where it was, or the process is \
                          restarted on the right folder";
