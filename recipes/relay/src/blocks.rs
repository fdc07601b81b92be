//! Which clients have blocked which senders.
//!
//! Blocks are stored as hashes of addresses, 16 bytes each, and appended to a file where a folder is
//! given. They survive the process, however it ends, but perhaps not a loss of power.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sha2::{Digest, Sha256};
use tidegate_listen::Warnings;

use file::BlockFile;

mod file;

/// The blocks of all clients, bounded per client and in total.
#[derive(Debug)]
pub(crate) struct Blocks {
    table: RwLock<BlockTable>,
    most: BlockBounds,
    full: Warnings,
    failed: Warnings,
}

/// Maximum numbers of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockBounds {
    pub(crate) per_client: u32,
    pub(crate) total: usize,
}

/// The hash of an address, or of two.
type Hash = [u8; 16];

/// One change: a client blocks or unblocks a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    is_block: bool,
    client: Hash,
    pair: Hash,
}

#[derive(Debug, Default)]
struct BlockTable {
    pairs: HashMap<Hash, HashSet<Hash>>,
    total: usize,
    file: Option<BlockFile>,
}

/// Why the blocks in a folder cannot be used.
#[non_exhaustive]
pub enum BlocksError {
    /// The folder or its file cannot be used.
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Another process uses the folder.
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A line of the file is damaged.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
}

impl fmt::Display for BlocksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "cannot use {}: {error}", path.display()),
            Self::InUse { path } => {
                write!(f, "{} is in use by another process", path.display())
            }
            Self::Damaged { path, line } => {
                let path = path.display();
                write!(f, "{path} is damaged in line {line}: expected a block; remove that line")
            }
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for BlocksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for BlocksError {}

impl Blocks {
    /// No blocks, in memory.
    pub(crate) fn in_memory(most: BlockBounds) -> Self {
        let table = RwLock::default();
        Self { table, most, full: Warnings::new(), failed: Warnings::new() }
    }

    /// The blocks in a folder, which is created if it is not there.
    pub(crate) fn in_folder(folder: &Path, most: BlockBounds) -> Result<Self, BlocksError> {
        let blocks = Self::in_memory(most);
        let mut file = BlockFile::open(folder)?;
        let mut table = blocks.write();
        for change in file.read()? {
            table.apply(change);
        }
        file.rewrite(&table).map_err(|error| file.io_error(error))?;
        table.file = Some(file);
        drop(table);
        Ok(blocks)
    }

    /// Whether a client has blocked a sender.
    pub(crate) fn has(&self, client: &str, sender: &str) -> bool {
        let table = self.read();
        if table.total == 0 {
            return false;
        }
        let of_client = table.pairs.get(&hash(&[client]));
        of_client.is_some_and(|pairs| pairs.contains(&hash(&[client, sender])))
    }

    /// A client blocks a sender.
    pub(crate) fn block(&self, client: &str, sender: &str) {
        self.change(Change { is_block: true, ..Change::of(client, sender) });
    }

    /// A client unblocks a sender.
    pub(crate) fn unblock(&self, client: &str, sender: &str) {
        self.change(Change::of(client, sender));
    }

    /// Makes everything survive a loss of power, too.
    pub(crate) fn sync(&self) {
        if let Some(file) = &self.read().file
            && let Err(error) = file.sync()
        {
            tracing::error!(%error, "blocks may not survive a loss of power");
        }
    }

    fn change(&self, change: Change) {
        let mut table = self.write();
        if change.is_block && table.is_full(change, self.most) {
            if let Some(left_out) = self.full.next() {
                tracing::warn!(left_out, "a client cannot block more senders");
            }
            return;
        }
        if !table.apply(change) {
            return;
        }
        let Some(mut file) = table.file.take() else { return };
        if let Err(error) = file.append(change, &table)
            && let Some(left_out) = self.failed.next()
        {
            tracing::error!(%error, left_out, "a block holds until the relay stops only");
        }
        table.file = Some(file);
    }

    fn read(&self) -> RwLockReadGuard<'_, BlockTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BlockTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change {
    /// The change that unblocks a sender.
    fn of(client: &str, sender: &str) -> Self {
        Self { is_block: false, client: hash(&[client]), pair: hash(&[client, sender]) }
    }
}

impl BlockTable {
    fn is_full(&self, change: Change, most: BlockBounds) -> bool {
        let of_client = self.pairs.get(&change.client).map_or(0, HashSet::len);
        of_client >= most.per_client as usize || self.total >= most.total
    }

    /// Whether the change changes anything.
    fn apply(&mut self, change: Change) -> bool {
        if change.is_block {
            let is_new = self.pairs.entry(change.client).or_default().insert(change.pair);
            self.total += usize::from(is_new);
            return is_new;
        }
        let Some(pairs) = self.pairs.get_mut(&change.client) else { return false };
        let was_there = pairs.remove(&change.pair);
        if pairs.is_empty() {
            self.pairs.remove(&change.client);
        }
        self.total -= usize::from(was_there);
        was_there
    }

    /// The blocks as changes.
    fn changes(&self) -> impl Iterator<Item = Change> {
        self.pairs.iter().flat_map(|(client, pairs)| {
            pairs.iter().map(|pair| Change { is_block: true, client: *client, pair: *pair })
        })
    }
}

/// The hash of texts, separated by zeros, which no address contains.
fn hash(texts: &[&str]) -> Hash {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update(text.as_bytes());
        digest.update([0]);
    }
    let mut hash = Hash::default();
    hash.copy_from_slice(&digest.finalize()[..16]);
    hash
}

#[cfg(test)]
mod tests;
