//! A disk in memory that can crash: it knows what is durable, and loses or mangles any of the rest.

use super::dice::Dice;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tidegate_table::locks::lock;

use file::{CrashCut, File};

use crate::durable::{Disk, DiskFile};

mod file;

/// A folder in memory, for stores that are to be crashed. Clones are handles of the same one.
///
/// Writes are durable once their file was synced, names once the folder was. What a crash leaves of
/// the rest is random: all, nothing, a part, a later write without an earlier one. Data whose sync
/// has failed is never durable again, whatever later syncs return.
///
/// ```
/// use std::sync::Arc;
/// use tidegate::durable::{Disk, FileOptions};
/// use tidegate::testing::CrashDisk;
///
/// let disk = CrashDisk::new();
/// let store = FileOptions::default().open_on(Arc::new(disk.clone()))?;
/// let after_power_loss = disk.crash(1);
/// let after_kill = disk.kill();
/// drop(store);
/// assert_eq!(after_kill.names()?, ["0000000001.log", "begun"]);
/// FileOptions::default().open_on(Arc::new(after_power_loss))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CrashDisk {
    state: Arc<Mutex<DiskState>>,
    resumed: Arc<Condvar>,
}

#[derive(Clone, Debug, Default)]
struct DiskState {
    files: Vec<File>,
    /// Names as programs see them, and those that survive any crash.
    names: BTreeMap<String, usize>,
    safe_names: BTreeMap<String, usize>,
    renamings: Vec<Renaming>,
    calls: u64,
    faults: BTreeMap<u64, Fault>,
    dead_from: Option<u64>,
    is_full: bool,
    is_paused: bool,
    distrusted_syncs: u64,
    dice: Dice,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
struct Renaming {
    gone: Option<String>,
    /// A name, and its file.
    come: Option<(String, usize)>,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device fails.
    Broken,
    /// There is no space left.
    Full,
}

impl Fault {
    fn error(self) -> io::Error {
        // EIO and ENOSPC.
        io::Error::from_raw_os_error(match self {
            Self::Broken => 5,
            Self::Full => 28,
        })
    }
}

impl CrashDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many calls there were so far, of any kind.
    #[must_use]
    pub fn calls(&self) -> u64 {
        lock(&self.state).calls
    }

    /// Makes the call with this number fail; the first one is 1. A write that fails may have
    /// written a part.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        lock(&self.state).faults.insert(number, fault);
    }

    /// Makes every call from the one with this number on fail.
    pub fn die_at(&self, number: u64) {
        lock(&self.state).dead_from = Some(number);
    }

    /// Whether that call has come.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let state = lock(&self.state);
        state.dead_from.is_some_and(|from| state.calls >= from)
    }

    /// While it is full nothing is created, and no file grows.
    pub fn set_full(&self, is_full: bool) {
        lock(&self.state).is_full = is_full;
    }

    /// While it is paused, every call waits.
    pub fn pause(&self) {
        lock(&self.state).is_paused = true;
    }

    /// Lets calls go on.
    pub fn resume(&self) {
        lock(&self.state).is_paused = false;
        self.resumed.notify_all();
    }

    /// How often a file was synced after a sync of it had failed. Such a sync proves nothing.
    #[must_use]
    pub fn distrusted_syncs(&self) -> u64 {
        lock(&self.state).distrusted_syncs
    }

    /// One of the disks that a loss of power now could leave. Everything on it is durable.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let before = lock(&self.state).clone();
        let mut names = before.safe_names;
        let cut = CrashCut::any(&mut dice);
        for (index, renaming) in before.renamings.iter().enumerate() {
            if cut.keeps(index, before.renamings.len(), &mut dice) {
                renaming.apply(&mut names);
            }
        }
        let left = |file: &File| File::durable(file.after_crash(&mut dice));
        let files = before.files.iter().map(left).collect();
        Self::of(DiskState {
            files,
            safe_names: names.clone(),
            names,
            dice,
            ..DiskState::default()
        })
    }

    /// The disk after the process was killed: everything that it wrote is there, and no more
    /// durable than it was.
    #[must_use]
    pub fn kill(&self) -> Self {
        let DiskState { files, names, safe_names, renamings, dice, .. } = lock(&self.state).clone();
        let now = DiskState { files, names, safe_names, renamings, dice, ..DiskState::default() };
        Self::of(now)
    }

    /// The contents of all files, by their names.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = lock(&self.state);
        let content =
            |(name, file): (&String, &usize)| (name.clone(), state.files[*file].bytes().to_vec());
        state.names.iter().map(content).collect()
    }

    /// A disk with these files, all of them durable.
    #[must_use]
    pub fn with_contents(contents: BTreeMap<String, Vec<u8>>) -> Self {
        let mut state = DiskState::default();
        for (number, (name, bytes)) in contents.into_iter().enumerate() {
            state.files.push(File::durable(bytes));
            state.names.insert(name, number);
        }
        state.safe_names = state.names.clone();
        Self::of(state)
    }

    fn of(state: DiskState) -> Self {
        Self { state: Arc::new(Mutex::new(state)), resumed: Arc::default() }
    }

    /// The state, as soon as calls are not paused.
    fn enter(&self) -> MutexGuard<'_, DiskState> {
        let state = lock(&self.state);
        let going_on = self.resumed.wait_while(state, |state| state.is_paused);
        going_on.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and returns whether it has to fail.
    fn call<R>(&self, then: impl FnOnce(&mut DiskState) -> io::Result<R>) -> io::Result<R> {
        let mut state = self.enter();
        state.count_call()?;
        then(&mut state)
    }
}

impl DiskState {
    fn count_call(&mut self) -> io::Result<()> {
        self.calls += 1;
        if self.dead_from.is_some_and(|from| self.calls >= from) {
            return Err(Fault::Broken.error());
        }
        match self.faults.get(&self.calls) {
            Some(fault) => Err(fault.error()),
            None => Ok(()),
        }
    }

    fn file(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, renaming: Renaming) {
        renaming.apply(&mut self.names);
        self.renamings.push(renaming);
    }

    fn write(&mut self, file: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let called = self.count_call();
        let file = &mut self.files[file];
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let (fitting, error) = match called {
            Err(error) => (self.dice.below(bytes.len() as u64 + 1), Some(error)),
            Ok(()) if self.is_full && at + bytes.len() > file.bytes().len() => {
                let fitting = file.bytes().len().saturating_sub(at).min(bytes.len());
                (fitting as u64, Some(Fault::Full.error()))
            }
            Ok(()) => (bytes.len() as u64, None),
        };
        let is_dead = self.dead_from.is_some_and(|from| self.calls > from);
        let fitting = usize::try_from(fitting).unwrap_or(0);
        if !is_dead && fitting > 0 {
            file.write(at, &bytes[..fitting]);
        }
        error.map_or(Ok(()), Err)
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        let called = self.count_call();
        let file = &mut self.files[file];
        self.distrusted_syncs += u64::from(file.has_failed_to_sync());
        match called {
            Ok(()) => file.sync(),
            Err(_) => file.fail_to_sync(),
        }
        called
    }
}

impl Renaming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        if let Some(gone) = &self.gone {
            names.remove(gone);
        }
        if let Some((name, file)) = &self.come {
            names.insert(name.clone(), *file);
        }
    }
}

impl Disk for CrashDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        self.call(|state| Ok(state.names.keys().cloned().collect()))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.call(|state| Ok(state.files[state.file(name)?].bytes().to_vec()))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.call(|state| {
            if state.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if state.is_full {
                return Err(Fault::Full.error());
            }
            state.files.push(File::default());
            let file = state.files.len() - 1;
            state.rename(Renaming { gone: None, come: Some((name.into(), file)) });
            Ok(file)
        })?;
        Ok(Box::new(OpenFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(|state| {
            let file = state.file(from)?;
            state.rename(Renaming { gone: Some(from.into()), come: Some((to.into(), file)) });
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|state| {
            state.file(name)?;
            state.rename(Renaming { gone: Some(name.into()), come: None });
            Ok(())
        })
    }

    fn cut(&self, name: &str, len: u64) -> io::Result<()> {
        self.call(|state| {
            let file = state.file(name)?;
            state.files[file].cut(usize::try_from(len).unwrap_or(usize::MAX));
            Ok(())
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call(|state| {
            state.safe_names = state.names.clone();
            state.renamings.clear();
            Ok(())
        })
    }
}

/// A file for writing.
#[derive(Debug)]
struct OpenFile {
    disk: CrashDisk,
    file: usize,
}

impl DiskFile for OpenFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.enter().write(self.file, offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.enter().sync(self.file)
    }
}
