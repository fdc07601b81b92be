//! Snapshots: all states, so that a start need not read the log from its beginning.
//!
//! A snapshot is taken while decisions continue. It begins with a new segment of the log; its
//! states may be later than that, but then the log repeats them from there on, and states in the
//! log are whole. So the snapshot and then the log from that segment on give the states.

use std::collections::HashMap;
use std::io;

use tidegate_core::Timestamp;
use tidegate_policy::policy::Durability;
use tidegate_table::locks::lock;

use super::FileStoreInner;
use super::disk::DiskFile;
use super::frame::{FileHeader, FileKind, HEADER_LEN, SegmentEnd, frame};
use crate::store::block_on;
use crate::store::memory::Width;
use crate::store::record::ByteWriter;
use crate::store::record::{ActionsRecord, Record, RoundRecord, RuleImage};
use crate::store::sealed::Store as _;

impl FileStoreInner {
    /// Takes a snapshot, and removes those before it.
    pub(super) fn take_snapshot(&self) -> io::Result<()> {
        let _one_at_a_time = lock(&self.snapshots);
        let number = self.recorder.log.rotate()?;
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
        let keys = lock(&self.recorder.keys);
        // Recording locks the keys first and then a line, so the keys must not be locked here while
        // a line is locked.
        let mut numbers = HashMap::new();
        for ((domain, rule), list) in keys.by_rule() {
            numbers.extend(list.iter().map(|(number, hash)| (*hash, *number)));
            for keys in list.chunks(CHUNK) {
                let (domain, rule) = (domain.into(), rule.into());
                file.encode(&Record::Keys { domain, rule, keys: keys.to_vec() });
            }
        }
        drop(keys);
        file.write()?;
        let mut acts = ActionsRecord::default();
        self.memory.for_each_image(|hash, image| {
            // A key that was added since is in the log.
            acts.states.extend(numbers.remove(&hash).map(|number| (number, Some(image))));
            if acts.states.len() >= CHUNK {
                file.encode(&Record::Acts(Box::new(std::mem::take(&mut acts))));
            }
        });
        self.forget_idle(numbers.keys().copied());
        file.add(&Record::Acts(Box::new(acts)))
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
        let (acts, now) = self.memory.with_hold_tables(|tables| {
            let keys = lock(&self.recorder.keys);
            let mut acts = ActionsRecord { fence: tables.last_fence(), ..ActionsRecord::default() };
            for (id, hold) in tables.holds() {
                acts.holds.extend(self.recorder.hold_image(hold, &keys).map(|it| (*id, Some(it))));
            }
            for (name, known) in tables.names() {
                let image = self.recorder.name_image(known, &keys);
                acts.names.push((*name, Some(image)));
            }
            (acts, *lock(&self.recorder.last))
        });
        let fence = acts.fence;
        file.add(&Record::Acts(Box::new(acts)))?;
        file.add(&Record::Clock { now, reuse: self.memory.reuse(), fence })
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

/// How many bytes go into one batch.
const BATCH_LEN: usize = 1 << 20;
