//! Snapshots: all states, so that a start need not read the log from its beginning.
//!
//! A snapshot is taken while decisions continue. It begins with a new segment of the log; its
//! states may be later than that, but then the log repeats them from there on, and states in the
//! log are whole. So the snapshot and then the log from that segment on give the states.

use std::io;

use tidegate_core::Timestamp;
use tidegate_policy::policy::{Durability, RuleId};
use tidegate_table::locks::lock;

use super::FileStoreInner;
use super::disk::DiskFile;
use super::frame::{FileHeader, FileKind, HEADER_LEN, SegmentEnd, frame};
use super::keys::{Keys, KnownKey, RuleName};
use crate::plan::KeyName;
use crate::store::block_on;
use crate::store::memory::{StateImage, Width};
use crate::store::record::ByteWriter;
use crate::store::record::{ActionsRecord, KeyRecord, Record, RoundRecord, RuleImage};
use crate::transition::HoldItem;

impl FileStoreInner {
    /// Takes a snapshot, and removes those before it.
    pub(super) fn take_snapshot(&self) -> io::Result<()> {
        let _one_at_a_time = lock(&self.snapshots);
        let number = self.recorder.log.rotate()?;
        lock(&self.recorder.keys).begin_snapshot();
        let mut file = SnapshotFile::create(self, number)?;
        self.write_rules(&mut file)?;
        self.write_states(&mut file)?;
        self.write_hold_tables(&mut file)?;
        // What the snapshot has must be durable in the log, too, before the snapshot counts.
        let durable = self.recorder.log.wait_durable(Durability::Fsync);
        block_on(Box::pin(durable)).map_err(|outage| io::Error::other(outage.to_string()))?;
        file.finish()?;
        let disk = &*self.disk;
        disk.rename(TEMPORARY, &FileKind::Snapshot.file_name(number))?;
        disk.sync_names()?;
        for name in disk.names()? {
            if FileKind::Snapshot.number_of(&name).is_some_and(|older| older < number) {
                disk.remove(&name)?;
            }
        }
        disk.sync_names()
    }

    fn write_rules(&self, file: &mut SnapshotFile) -> io::Result<()> {
        file.add(&Record::Seed(self.memory.hash().to_words()))?;
        for rule in self.memory.history().rules() {
            file.add(&Record::Rule(Box::new(RuleImage::of_change(None, rule))))?;
        }
        for (domain, closed) in self.memory.all_rounds() {
            let (at, note) = (Timestamp::ZERO, None);
            file.add(&Record::Round(RoundRecord { at, domain, closed, note }))?;
        }
        let edit = lock(&self.edits).whole();
        file.add(&Record::Edit(Box::new(edit)))
    }

    fn write_states(&self, file: &mut SnapshotFile) -> io::Result<()> {
        // Recording locks the keys first and then a line, so the keys must not be locked here while
        // a line is locked.
        let keys = lock(&self.recorder.keys);
        let (mut known, rules) = (keys.known(), keys.rules());
        drop(keys);
        let mut states = StatesByRule::new(&rules);
        self.memory.for_each_image(|hash, image| {
            // A key that was added since is in the log.
            if let Some(KnownKey { number, rule }) = known.remove(&hash) {
                states.add(rule, (number, hash, image), file);
            }
        });
        states.write_all(file);
        let mut idle = vec![Vec::new(); rules.len()];
        for (hash, KnownKey { number, rule }) in &known {
            idle[*rule as usize].push((*number, *hash));
        }
        for ((domain, rule), keys) in rules.iter().zip(idle) {
            for keys in keys.chunks(CHUNK) {
                let (domain, rule, keys) = (domain.clone(), rule.clone(), keys.to_vec());
                file.encode(&Record::Keys { domain, rule, keys });
            }
        }
        self.forget_idle(known.into_keys());
        file.write()
    }

    /// Drops the numbers of keys without a state: if they return, they get new ones.
    fn forget_idle(&self, idle: impl Iterator<Item = u64>) {
        self.memory.with_hold_tables(|tables| {
            let mut keys = lock(&self.recorder.keys);
            let referenced = tables.referenced();
            for hash in idle {
                let is_back = self.memory.image(hash, Width::Narrow).is_some()
                    || self.memory.image(hash, Width::Wide).is_some();
                if !is_back && !referenced.contains(&hash) {
                    keys.remove(hash);
                }
            }
        });
    }

    fn write_hold_tables(&self, file: &mut SnapshotFile) -> io::Result<()> {
        let mut names: Vec<KeyRecord> = Vec::new();
        let (acts, now) = self.memory.with_hold_tables(|tables| {
            let keys = lock(&self.recorder.keys);
            let mut acts = ActionsRecord { fence: tables.last_fence(), ..ActionsRecord::default() };
            for (id, hold) in tables.holds() {
                names.extend(hold.items.iter().filter_map(|item| held_key(item, &keys)));
                acts.holds.extend(self.recorder.hold_image(hold, &keys).map(|it| (*id, Some(it))));
            }
            for (name, known) in tables.names() {
                let image = self.recorder.name_image(known, &keys);
                acts.names.push((*name, Some(image)));
            }
            (acts, *lock(&self.recorder.last))
        });
        for key in names {
            file.encode(&Record::Key(key));
        }
        let fence = acts.fence;
        file.add(&Record::Acts(Box::new(acts)))?;
        file.add(&Record::Clock { now, reuse: self.memory.reuse(), fence })
    }
}

/// States that are not in a record yet, by rule.
struct StatesByRule<'a> {
    rules: &'a [RuleName],
    lists: Vec<Vec<(u64, u64, StateImage)>>,
    /// How many there are in all lists.
    waiting: usize,
}

impl<'a> StatesByRule<'a> {
    fn new(rules: &'a [RuleName]) -> Self {
        Self { rules, lists: vec![Vec::new(); rules.len()], waiting: 0 }
    }

    fn add(&mut self, rule: u32, state: (u64, u64, StateImage), file: &mut SnapshotFile) {
        let rule = rule as usize;
        self.lists[rule].push(state);
        self.waiting += 1;
        if self.lists[rule].len() == CHUNK {
            self.write(rule, file);
        } else if self.waiting == MOST_WAITING {
            self.write_all(file);
        }
    }

    fn write_all(&mut self, file: &mut SnapshotFile) {
        (0..self.rules.len()).for_each(|rule| self.write(rule, file));
    }

    fn write(&mut self, rule: usize, file: &mut SnapshotFile) {
        let states = std::mem::take(&mut self.lists[rule]);
        self.waiting -= states.len();
        if !states.is_empty() {
            let (domain, rule) = self.rules[rule].clone();
            file.encode(&Record::States { domain, rule, states });
        }
    }
}

/// A snapshot that is being written.
struct SnapshotFile {
    file: Box<dyn DiskFile>,
    at: u64,
    batch: u64,
    records: u64,
    out: ByteWriter,
    /// Where batches may end in it, about every [`BATCH_LEN`] bytes.
    ends: Vec<usize>,
}

impl SnapshotFile {
    fn create(shared: &FileStoreInner, number: u64) -> io::Result<Self> {
        // An unfinished one is of no use.
        let _ = shared.disk.remove(TEMPORARY);
        let mut file = shared.disk.create(TEMPORARY)?;
        let header = FileHeader {
            kind: FileKind::Snapshot,
            number,
            after: SegmentEnd::default(),
            first_batch: 1,
        };
        file.write_at(0, &header.to_bytes())?;
        let (at, out, ends) = (HEADER_LEN as u64, ByteWriter::default(), Vec::new());
        Ok(Self { file, at, batch: 1, records: 0, out, ends })
    }

    fn add(&mut self, record: &Record) -> io::Result<()> {
        self.encode(record);
        if self.out.0.len() < BATCH_LEN { Ok(()) } else { self.write() }
    }

    /// Adds a record without writing, so that no lock is held during disk access.
    fn encode(&mut self, record: &Record) {
        record.write(&mut self.out);
        self.records += 1;
        if self.out.0.len() - self.ends.last().copied().unwrap_or(0) >= BATCH_LEN {
            self.ends.push(self.out.0.len());
        }
    }

    fn write(&mut self) -> io::Result<()> {
        // The length of a batch has 32 bits, so there are several for many keys.
        let (records, mut ends) = (std::mem::take(&mut self.out.0), std::mem::take(&mut self.ends));
        ends.push(records.len());
        let mut start = 0;
        for end in ends {
            if end > start {
                let frame = frame(self.batch, 0, &records[start..end]);
                self.file.write_at(self.at, &frame)?;
                self.at += frame.len() as u64;
                self.batch += 1;
            }
            start = end;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        Record::End { records: self.records }.write(&mut self.out);
        self.write()?;
        self.file.sync()
    }
}

/// The name of a snapshot that is being written.
const TEMPORARY: &str = "snapshot.tmp";

/// How many items go into one record.
const CHUNK: usize = 1_000;

/// How many states of all rules may wait for a record.
const MOST_WAITING: usize = 16 * CHUNK;

/// How many bytes go into one batch.
const BATCH_LEN: usize = 1 << 20;

/// The attributes of a key that has a hold: overrides by pattern need them, and the log before the
/// snapshot, which has the name, is not read.
fn held_key(item: &HoldItem, keys: &Keys) -> Option<KeyRecord> {
    let (number, (domain, rule)) = keys.rule_of(item.hash).filter(|_| !item.key.is_empty())?;
    let parts = item.key.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    let name = KeyName::new(RuleId::named(rule).in_domain(domain), parts.collect());
    Some(KeyRecord { number, hash: item.hash, name, is_erased: false })
}
