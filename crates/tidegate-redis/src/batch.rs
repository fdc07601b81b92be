//! What is sent at once: reads, and commits that wait for the same keys joined into one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_engine::shared::{RecordKey, Records, Step, Transaction, Write};
use tidegate_policy::policy::Durability;

use crate::cache::Cache;
use crate::frame::{self, Cell};
use crate::key_map::{KeyMap, KeySet};

/// A transaction on its way. It is moved often, so it stays in one place in memory.
pub(crate) type Job = Box<JobBody>;

/// What is known of a transaction on its way.
#[derive(Debug)]
pub(crate) struct JobBody {
    pub(crate) transaction: Transaction,
    /// The records that its next step needs.
    pub(crate) needs: Needs,
    /// When it was submitted, and when it has to have a result, by the local clock.
    pub(crate) submitted_ns: u64,
    pub(crate) due_ns: u64,
    /// Released with it.
    pub(crate) _permit: Permit,
}

/// The records that a step needs: mostly the policy and a few states.
pub(crate) type Needs = SmallVec<[RecordKey; 4]>;

/// The right to be one of the transactions that wait or are on their way.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// A permit, unless all are taken. The number is that of those taken.
    pub(crate) fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let permit = Self(Arc::clone(taken));
        // Without one, dropping it corrects the number.
        (taken.fetch_add(1, Ordering::Relaxed) < MOST_TRANSACTIONS).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The value that a key will have, if what it was made of is still so.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What has to be on the server.
    pub(crate) expected: Cell,
    /// The record from then on; `None` if it does not change.
    pub(crate) change: Option<Change>,
}

impl Pending {
    /// Whether anything is written to the server.
    pub(crate) const fn writes(&self) -> bool {
        self.change.is_some()
    }

    /// The value from then on.
    pub(crate) fn after(&self, stamp: u64) -> Cell {
        match &self.change {
            Some(change) => Cell { stamp: Some(stamp), record: change.record.clone() },
            None => self.expected.clone(),
        }
    }
}

/// A new value of a key.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// `None`: the record is removed.
    pub(crate) record: Option<Arc<[u8]>>,
    /// How long it is needed; `None`: for good.
    pub(crate) keep_for: Option<Duration>,
}

impl Change {
    /// How long the value is kept, if not for good. One that says that a record was removed is kept for
    /// a while, so that a late write does not take it for a new one.
    pub(crate) fn life(&self, kept_longer: Duration) -> Option<Duration> {
        let keep_for = if self.record.is_none() { Some(Duration::ZERO) } else { self.keep_for };
        keep_for.map(|keep_for| keep_for.saturating_add(kept_longer))
    }
}

/// The keys of a group: mostly one.
pub(crate) type GroupKeys = SmallVec<[RecordKey; 2]>;

/// Transactions over common keys, decided one after the other, and committed at once.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) jobs: Vec<Job>,
    pub(crate) keys: GroupKeys,
    /// The stamp of the values that it writes.
    pub(crate) stamp: u64,
}

impl Group {
    pub(crate) fn new(stamp: u64) -> Self {
        Self { jobs: Vec::new(), keys: GroupKeys::new(), stamp }
    }
}

/// What is sent at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Records that are not known.
    pub(crate) reads: Vec<RecordKey>,
    /// The transactions that wait for them.
    pub(crate) readers: Vec<Job>,
    pub(crate) groups: Vec<Group>,
    pub(crate) pending: KeyMap<Pending>,
    group_of: KeyMap<usize>,
    reading: KeySet,
}

/// What becomes of a transaction that a batch was offered.
#[derive(Debug)]
pub(crate) enum Placed {
    /// It is part of the batch.
    Joined,
    /// It is complete: what it needed to know was fresh enough, and it writes nothing.
    Complete(Job),
    /// It has to wait for a later batch.
    Later(Job),
    /// It needs the record of the policy as it is now.
    NeedsControl(Job),
    /// It writes the record of the policy.
    Edit(Job, Write),
    /// It has to be more durable than the server can make it. Nothing was written.
    NotDurable(Job),
}

/// What a batch is made from.
pub(crate) struct Sources<'a> {
    pub(crate) cache: &'a mut Cache,
    /// The policy in force; `None` if it has to be read first.
    pub(crate) control: Option<Option<&'a Arc<[u8]>>>,
    /// How durable the server can make what it writes.
    pub(crate) offered: Durability,
    /// Keys that another batch has, or that a transaction waits for which came before.
    pub(crate) taken: &'a KeySet,
}

impl Batch {
    /// With room for so many keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        let keys = keys.min(MOST_KEYS_OF_BATCH);
        let mut batch = Self::default();
        batch.pending.reserve(keys);
        batch.group_of.reserve(keys);
        batch.groups.reserve(keys);
        batch
    }

    /// Of one group, and what becomes of its keys.
    pub(crate) fn of(group: Group, pending: KeyMap<Pending>) -> Self {
        Self { groups: vec![group], pending, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.groups.is_empty()
    }

    /// Every key that it reads or compares.
    pub(crate) fn keys(&self) -> impl Iterator<Item = RecordKey> {
        self.reads.iter().chain(self.groups.iter().flat_map(|group| &group.keys)).copied()
    }

    /// Adds a transaction, as far as it gets.
    pub(crate) fn place(&mut self, mut job: Job, from: &mut Sources<'_>) -> Placed {
        loop {
            let is_taken = |key: &RecordKey| {
                !key.is_control() && (from.taken.contains(key) || self.reading.contains(key))
            };
            if job.needs.iter().any(is_taken) || !self.has_room(&job) {
                return Placed::Later(job);
            }
            let Some(control) = from.control else { return Placed::NeedsControl(job) };
            let missing = self.missing(&job, from.cache);
            if !missing.is_empty() {
                self.reading.extend(&missing);
                self.reads.extend(missing);
                self.readers.push(job);
                return Placed::Joined;
            }
            let records = self.records(&job, from.cache, control);
            let step = job.transaction.step(&records);
            if job.transaction.required_durability() > from.offered {
                return Placed::NotDurable(job);
            }
            match step {
                Step::Read(more) => job.needs.extend(more),
                Step::Write(mut writes) => {
                    if let Some(edit) = writes.iter().position(|write| write.key.is_control()) {
                        return Placed::Edit(job, writes.swap_remove(edit));
                    }
                    self.join(job, writes, from.cache);
                    return Placed::Joined;
                }
                Step::Done if self.is_fresh(&job, from.cache) => return Placed::Complete(job),
                Step::Done => {
                    self.join(job, Vec::new(), from.cache);
                    return Placed::Joined;
                }
            }
        }
    }

    /// Whether the transaction fits: a commit over very many keys would stop the server for long.
    fn has_room(&self, job: &Job) -> bool {
        let groups = self.groups_of(job);
        let keys: usize = groups.iter().map(|index| self.groups[*index].keys.len()).sum();
        let jobs: usize = groups.iter().map(|index| self.groups[*index].jobs.len()).sum();
        (keys + job.needs.len() <= MOST_KEYS && jobs < MOST_JOBS || groups.is_empty())
            && self.pending.len() < MOST_KEYS_OF_BATCH
    }

    /// The records that the transaction needs and that were never seen.
    fn missing(&self, job: &Job, cache: &mut Cache) -> Vec<RecordKey> {
        let mut is_missing = |key: &RecordKey| {
            !key.is_control() && !self.pending.contains_key(key) && cache.get(key).is_none()
        };
        job.needs.iter().copied().filter(|key| is_missing(key)).collect()
    }

    /// The groups that the transaction's keys are in, each once.
    fn groups_of(&self, job: &Job) -> SmallVec<[usize; 4]> {
        let mut groups = SmallVec::new();
        for key in job.needs.iter().filter(|key| !key.is_control()) {
            if let Some(group) = self.group_of.get(key).filter(|group| !groups.contains(*group)) {
                groups.push(*group);
            }
        }
        groups.sort_unstable();
        groups
    }

    fn records(&self, job: &Job, cache: &mut Cache, control: Option<&Arc<[u8]>>) -> Records {
        let mut records = Records::default();
        for key in &job.needs {
            let record = if key.is_control() {
                control.cloned()
            } else if let Some(pending) = self.pending.get(key) {
                let change = pending.change.as_ref();
                change.map_or(&pending.expected.record, |change| &change.record).clone()
            } else {
                cache.get(key).and_then(|seen| seen.cell.record.clone())
            };
            records.insert(*key, record);
        }
        records
    }

    /// Whether all that a transaction has seen was so after it had been submitted.
    fn is_fresh(&self, job: &Job, cache: &mut Cache) -> bool {
        job.needs.iter().filter(|key| !key.is_control()).all(|key| {
            !self.pending.contains_key(key)
                && cache.get(key).is_some_and(|seen| seen.at_ns >= job.submitted_ns)
        })
    }

    /// Makes the transaction part of the group of its keys.
    fn join(&mut self, job: Job, writes: Vec<Write>, cache: &mut Cache) {
        let index = self.group_for(&job);
        let read = job.needs.iter().copied().filter(|key| !key.is_control());
        for key in read.chain(writes.iter().map(|write| write.key)) {
            if self.group_of.insert(key, index).is_none() {
                self.groups[index].keys.push(key);
            }
            self.pending.entry(key).or_insert_with(|| {
                let seen = cache.get(&key).map(|seen| seen.cell.clone());
                // A record that was not read is a new one, with a name that no other has.
                Pending { expected: seen.unwrap_or(Cell::ABSENT), change: None }
            });
        }
        for Write { key, value, keep_for, .. } in writes {
            if let Some(pending) = self.pending.get_mut(&key) {
                pending.change = Some(Change { record: value, keep_for });
            }
        }
        self.groups[index].jobs.push(job);
    }

    /// The one group of all keys of a transaction; those that they are in now become one.
    fn group_for(&mut self, job: &Job) -> usize {
        let groups = self.groups_of(job);
        let Some((&first, others)) = groups.split_first() else {
            self.groups.push(Group::new(frame::new_stamp()));
            return self.groups.len() - 1;
        };
        for other in others {
            let group = &mut self.groups[*other];
            let (jobs, keys) = (std::mem::take(&mut group.jobs), std::mem::take(&mut group.keys));
            for key in &keys {
                self.group_of.insert(*key, first);
            }
            self.groups[first].jobs.extend(jobs);
            self.groups[first].keys.extend(keys);
        }
        first
    }

    /// Drops groups that were joined to others.
    pub(crate) fn close(&mut self) {
        self.groups.retain(|group| !group.jobs.is_empty());
        self.group_of.clear();
    }
}

/// How many transactions of a store wait or are on their way at most; more fail at once.
const MOST_TRANSACTIONS: usize = 1 << 16;

/// How many keys a commit has at most: with very many it would stop the server for long.
const MOST_KEYS: usize = 128;

/// How many transactions share a commit at most.
const MOST_JOBS: usize = 4_096;

/// How many keys a batch commits at most.
const MOST_KEYS_OF_BATCH: usize = 1_024;
