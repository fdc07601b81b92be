//! The file of blocks: one line per change, `+` or `-`, the client and the pair in hexadecimal.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::{BlockTable, BlocksError, Change, Hash};

/// The file, open for appending.
#[derive(Debug)]
pub(super) struct BlockFile {
    path: PathBuf,
    file: File,
    /// Held while the process runs.
    _lock: File,
    /// Changes in the file.
    lines: usize,
    /// Whether the end of the file may be half a line.
    is_torn: bool,
}

impl BlockFile {
    pub(super) fn open(folder: &Path) -> Result<Self, BlocksError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| BlocksError::Io { path, error }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(BlocksError::InUse { path: folder.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path)(error)),
        }
        let path = folder.join("blocks");
        let file = options().open(&path).map_err(failed(&path))?;
        Ok(Self { path, file, _lock: lock, lines: 0, is_torn: false })
    }

    pub(super) fn io_error(&self, error: io::Error) -> BlocksError {
        BlocksError::Io { path: self.path.clone(), error }
    }

    /// All changes. Half a line at the end is what a crash has left, and is ignored.
    pub(super) fn read(&mut self) -> Result<Vec<Change>, BlocksError> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).map_err(|error| self.io_error(error))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = bytes[..whole].split(|byte| *byte == b'\n');
        let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
        lines
            .map(|(index, line)| {
                let damaged = || BlocksError::Damaged { path: self.path.clone(), line: index + 1 };
                decoded(line).ok_or_else(damaged)
            })
            .collect()
    }

    /// Appends a change. After a failure, and when most lines are outdated, the file is written
    /// again.
    pub(super) fn append(&mut self, change: Change, table: &BlockTable) -> io::Result<()> {
        if self.is_torn || self.lines > 2 * table.total + OUTDATED_LINES {
            return self.rewrite(table);
        }
        self.is_torn = true;
        self.file.write_all(encoded(change).as_bytes())?;
        self.is_torn = false;
        self.lines += 1;
        Ok(())
    }

    /// Writes the file again, beside the old one.
    pub(super) fn rewrite(&mut self, table: &BlockTable) -> io::Result<()> {
        let new_path = self.path.with_extension("new");
        fs::remove_file(&new_path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut new = io::BufWriter::new(options().open(&new_path)?);
        let mut lines = 0;
        for change in table.changes() {
            new.write_all(encoded(change).as_bytes())?;
            lines += 1;
        }
        let new = new.into_inner().map_err(io::IntoInnerError::into_error)?;
        new.sync_data()?;
        fs::rename(&new_path, &self.path)?;
        (self.file, self.lines, self.is_torn) = (new, lines, false);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    options
}

fn encoded(change: Change) -> String {
    let mut line = String::from(if change.is_block { "+ " } else { "- " });
    let hex = |line: &mut String, hash: Hash| {
        for byte in hash {
            // Writing to a string does not fail.
            let _ = write!(line, "{byte:02x}");
        }
    };
    hex(&mut line, change.client);
    line.push(' ');
    hex(&mut line, change.pair);
    line.push('\n');
    line
}

fn decoded(line: &[u8]) -> Option<Change> {
    let line = std::str::from_utf8(line).ok()?;
    let mut parts = line.split(' ');
    let is_block = match parts.next()? {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    let (client, pair) = (hash(parts.next()?)?, hash(parts.next()?)?);
    parts.next().is_none().then_some(Change { is_block, client, pair })
}

fn hash(hex: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if hex.len() != 2 * hash.len() || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(hash)
}

/// Outdated lines that a small file may have.
const OUTDATED_LINES: usize = 1_000;
