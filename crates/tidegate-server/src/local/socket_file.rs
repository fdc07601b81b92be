//! The file of the socket: created with its final mode, owned by one process, removed at the end.

use std::error::Error;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use tokio::net::UnixStream;

/// The file of a socket that this process listens on. Dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file, so that no other file is removed.
    inode: (u64, u64),
    _lock: Lock,
}

/// The error of a socket that cannot be bound to a path.
#[non_exhaustive]
pub enum BindError {
    /// Another process listens there.
    InUse(PathBuf),
    /// The path exists and is not a socket, so it is kept.
    NotASocket(PathBuf),
    /// The folder belongs to another user, who could replace the socket.
    NotOurFolder(PathBuf),
    /// The path is longer than paths of sockets may be.
    TooLong(PathBuf),
    /// A system call failed.
    Failed {
        /// What was attempted.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

impl SocketFile {
    /// Binds a socket to a path, with this mode from the moment that the file exists.
    ///
    /// It is created in a directory that only this user may enter, gets its mode there, and is then
    /// renamed to its path. A socket without a listener is replaced.
    pub async fn bind(path: &Path, mode: u32) -> Result<(UnixListener, Self), BindError> {
        let lock = Lock::take(path)?;
        reject_live(path).await?;
        let private = PrivateDir::beside(path)?;
        let made = private.0.join("s");
        for path in [path, &made] {
            if path.as_os_str().as_bytes().len() > PATH_BYTES_MAX {
                return Err(BindError::TooLong(path.to_owned()));
            }
        }
        let listener = UnixListener::bind(&made).map_err(failed("listen on", &made))?;
        fs::set_permissions(&made, Permissions::from_mode(mode))
            .map_err(failed("set the mode of", &made))?;
        let metadata = fs::symlink_metadata(&made).map_err(failed("stat", &made))?;
        fs::rename(&made, path).map_err(failed("create", path))?;
        let inode = (metadata.dev(), metadata.ino());
        Ok((listener, Self { path: path.to_owned(), inode, _lock: lock }))
    }

    /// The same in a folder that is created if it does not exist, with a mode that fits that of the
    /// socket. The folder must belong to this user or root.
    pub async fn bind_in_folder(path: &Path, mode: u32) -> Result<(UnixListener, Self), BindError> {
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            let is_for_others = mode & 0o077 != 0;
            make_folder(folder, if is_for_others { 0o711 } else { 0o700 })?;
        }
        Self::bind(path, mode).await
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path).map(|it| (it.dev(), it.ino()));
        if found.is_ok_and(|found| found == self.inode) {
            // An error is ignored: the next start replaces the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a folder with its mode, or accepts one that belongs to this user or root.
fn make_folder(folder: &Path, mode: u32) -> Result<(), BindError> {
    match DirBuilder::new().mode(mode).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create the folder", folder)(error)),
    }
    // A link counts as its target: who may create one here could also create a folder.
    let found = fs::metadata(folder).map_err(failed("stat", folder))?;
    let own = geteuid().as_raw();
    if found.uid() == own || found.uid() == 0 {
        Ok(())
    } else {
        Err(BindError::NotOurFolder(folder.to_owned()))
    }
}

/// Rejects a path that exists, unless it is a socket without a listener.
async fn reject_live(path: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(BindError::NotASocket(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("stat", path)(error)),
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Its queue is full, or it is a socket of another kind.
        Ok(_) | Err(_) => Err(BindError::InUse(path.to_owned())),
    }
}

/// A lock file beside the socket.
///
/// It decides between two processes that start at the same time and both find a dead socket.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, BindError> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        loop {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(nix::libc::O_NOFOLLOW)
                .open(&path)
                .map_err(failed("open", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(BindError::InUse(socket.to_owned())),
                Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
            }
            // Its last owner may have removed it between opening and locking.
            let locked = file.metadata().map_err(failed("stat", &path))?;
            let there = fs::symlink_metadata(&path).map(|it| (it.dev(), it.ino()));
            if there.is_ok_and(|there| there == (locked.dev(), locked.ino())) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is locked, so no other process owns it.
        let _ = fs::remove_file(&self.path);
    }
}

/// A directory that only this user may enter. Dropping it removes it.
struct PrivateDir(PathBuf);

impl PrivateDir {
    fn beside(path: &Path) -> Result<Self, BindError> {
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut number = 0_u32;
        loop {
            let dir = parent.join(format!(".{:x}.{number:x}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                // Left behind by a killed process with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                    number += 1;
                }
                Err(error) => return Err(failed("create the directory", &dir)(error)),
            }
        }
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |error| BindError::Failed { step, path, error }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => {
                write!(f, "another process listens on {}; stop it first", path.display())
            }
            Self::NotASocket(path) => {
                write!(f, "{} exists and is not a socket; choose another path", path.display())
            }
            Self::NotOurFolder(path) => write!(
                f,
                "the folder {} belongs to another user, who could replace the socket; choose \
                 another path",
                path.display()
            ),
            Self::TooLong(path) => write!(
                f,
                "{} is longer than {PATH_BYTES_MAX} bytes; choose a shorter path",
                path.display()
            ),
            Self::Failed { step, path, error } => {
                write!(f, "cannot {step} {}: {error}", path.display())
            }
        }
    }
}

tidegate::debug_as_displayed!(BindError);

impl Error for BindError {}

/// The longest path of a socket address, without its terminating zero.
const PATH_BYTES_MAX: usize = 107;
