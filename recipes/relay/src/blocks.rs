//! Which clients have blocked which senders.
//!
//! Blocks are stored as hashes of addresses, 16 bytes each, and appended to a file where a folder is
//! given. They survive the process, however it ends, but perhaps not a loss of power.
//!
//! Addresses cost nothing, so with a bound per client and a bound in total alone, one person could
//! fill the table for all others. Where it is full, the client with the most blocks makes room for one
//! that has fewer. So only as many clients as there are blocks can keep a client from its first one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
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
    refused: AtomicU64,
    dropped: AtomicU64,
    full: Warnings,
    failed: Warnings,
}

/// Maximum numbers of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockBounds {
    pub(crate) per_client: usize,
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

/// Why there is no room for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// Its client has as many as it may.
    Client,
    /// The table is full, and no client has many more than its client.
    Table,
}

#[derive(Debug, Default)]
struct BlockTable {
    pairs: HashMap<Hash, HashSet<Hash>>,
    /// Clients by their numbers of blocks, the fewest first.
    by_count: BTreeSet<(usize, Hash)>,
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
        let (full, failed) = (Warnings::new(), Warnings::new());
        let (refused, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { table: RwLock::default(), most, refused, dropped, full, failed }
    }

    /// The blocks in a folder, which is created if it is not there.
    pub(crate) fn in_folder(folder: &Path, most: BlockBounds) -> Result<Self, BlocksError> {
        let blocks = Self::in_memory(most);
        let mut file = BlockFile::open(folder)?;
        let mut table = blocks.write();
        for change in file.read()? {
            if blocks.makes_room(&mut table, change).is_ok() {
                table.apply(change);
            }
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

    /// The number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.read().total
    }

    /// How many blocks were refused since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many blocks made room for those of other clients since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn change(&self, change: Change) {
        let mut table = self.write();
        let Ok(dropped) = self.makes_room(&mut table, change) else { return };
        if !table.apply(change) {
            return;
        }
        let Some(mut file) = table.file.take() else { return };
        for change in dropped.into_iter().chain([change]) {
            if let Err(error) = file.append(change, &table)
                && let Some(left_out) = self.failed.next()
            {
                tracing::error!(%error, left_out, "a block holds until the relay stops only");
            }
        }
        table.file = Some(file);
    }

    /// Makes room for a change, and returns the block that it took for that. One without room is
    /// refused.
    fn makes_room(
        &self,
        table: &mut BlockTable,
        change: Change,
    ) -> Result<Option<Change>, Refused> {
        let made = table.make_room(change, self.most);
        let (count, message) = match made {
            Ok(None) => return made,
            Ok(Some(_)) => (&self.dropped, "a block made room for one of another client"),
            Err(Refused::Client) => (&self.refused, "block refused: its client has too many"),
            Err(Refused::Table) => (&self.refused, "block refused: all clients have too many"),
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.full.next() {
            tracing::warn!(total = table.total, left_out, "{message}");
        }
        made
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
    /// Makes room for a change: drops a block of the client with the most, if the table is full and
    /// its client has fewer also afterwards. Returns the change that drops it.
    fn make_room(&mut self, change: Change, most: BlockBounds) -> Result<Option<Change>, Refused> {
        let known = self.pairs.get(&change.client);
        let count = known.map_or(0, HashSet::len);
        if !change.is_block || known.is_some_and(|pairs| pairs.contains(&change.pair)) {
            return Ok(None);
        }
        if count >= most.per_client {
            return Err(Refused::Client);
        }
        if self.total < most.total {
            return Ok(None);
        }
        let largest = self.by_count.last().filter(|(largest, _)| *largest > count + 1);
        let (_, client) = *largest.ok_or(Refused::Table)?;
        let pair = self.pairs.get(&client).and_then(|pairs| pairs.iter().next());
        let dropped = Change { is_block: false, client, pair: *pair.ok_or(Refused::Table)? };
        self.apply(dropped);
        Ok(Some(dropped))
    }

    /// Whether the change changes anything.
    fn apply(&mut self, change: Change) -> bool {
        let Change { is_block, client, pair } = change;
        let pairs = self.pairs.entry(client).or_default();
        let before = pairs.len();
        let is_change = if is_block { pairs.insert(pair) } else { pairs.remove(&pair) };
        let after = pairs.len();
        if after == 0 {
            self.pairs.remove(&client);
        }
        if is_change {
            self.total = self.total + after - before;
            self.by_count.remove(&(before, client));
            if after > 0 {
                self.by_count.insert((after, client));
            }
        }
        is_change
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
