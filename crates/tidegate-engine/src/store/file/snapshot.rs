//! Snapshots: all states, so that a start need not read the log from its beginning.
//!
//! A snapshot is taken while decisions continue. It begins with a new segment of the log; its
//! states may be later than that, but then the log repeats them from there on, and states in the
//! log are whole. So the snapshot and then the log from that segment on give the states.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

use tidegate_core::Timestamp;
use tidegate_log::{Level, SnapshotWriter};
use tidegate_policy::policy::RuleId;
use tidegate_table::locks::lock;

use super::FileStoreInner;
use super::keys::{Keys, KnownKey, RuleName};
use crate::plan::KeyName;
use crate::store::memory::{StateImage, Width};
use crate::store::record::{ActionsRecord, KeyRecord, Record, RoundRecord, RuleImage};
use crate::store::{Outage, block_on};
use crate::transition::HoldItem;

impl FileStoreInner {
    /// Takes a snapshot, and removes those before it.
    pub(super) fn take_snapshot(&self) -> io::Result<()> {
        let _one_at_a_time = lock(&self.snapshots);
        let number = self.recorder.log.rotate()?;
        lock(&self.recorder.keys).begin_snapshot();
        let mut file = SnapshotWriter::create(&*self.disk, number)?;
        self.write_rules(&mut file)?;
        self.write_states(&mut file)?;
        self.write_hold_tables(&mut file)?;
        // What the snapshot has must be durable in the log, too, before the snapshot counts.
        let durable = self.recorder.log.wait_durable(Level::Synced);
        block_on(Box::pin(durable)).map_err(|lost| io::Error::other(Outage::from(lost)))?;
        file.queue(&Record::End { records: file.count() }.to_bytes());
        file.finish()
    }

    fn write_rules(&self, file: &mut SnapshotWriter<'_>) -> io::Result<()> {
        file.add(&Record::Seed(self.memory.hash().to_words()).to_bytes())?;
        for rule in self.memory.history().rules() {
            file.add(&Record::Rule(Box::new(RuleImage::of_change(None, rule))).to_bytes())?;
        }
        for (domain, closed) in self.memory.all_rounds() {
            let (at, note) = (Timestamp::ZERO, None);
            file.add(&Record::Round(RoundRecord { at, domain, closed, note }).to_bytes())?;
        }
        let edit = lock(&self.edits).whole();
        file.add(&Record::Edit(Box::new(edit)).to_bytes())
    }

    fn write_states(&self, file: &mut SnapshotWriter<'_>) -> io::Result<()> {
        // Recording locks the keys first and then a line, so the keys must not be locked here while
        // a line is locked.
        let keys = lock(&self.recorder.keys);
        let (mut known, rules) = (keys.by_hash.clone(), keys.rules.clone());
        drop(keys);
        let mut states = StatesByRule::new(&rules);
        self.memory.for_each_image(|hash, image| {
            // A key that was added since is in the log.
            if let Some(KnownKey { number, rule }) = known.remove(&hash) {
                states.add(rule, number, hash, image, file);
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
                file.queue(&Record::Keys { domain, rule, keys }.to_bytes());
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

    fn write_hold_tables(&self, file: &mut SnapshotWriter<'_>) -> io::Result<()> {
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
            file.queue(&Record::Key(key).to_bytes());
        }
        let fence = acts.fence;
        file.add(&Record::Acts(Box::new(acts)).to_bytes())?;
        file.add(&Record::Clock { now, reuse: self.memory.reuse(), fence }.to_bytes())
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

    fn add(
        &mut self,
        rule: u32,
        number: u64,
        hash: u64,
        image: StateImage,
        file: &mut SnapshotWriter<'_>,
    ) {
        let rule = rule as usize;
        self.lists[rule].push((number, hash, image));
        self.waiting += 1;
        if self.lists[rule].len() == CHUNK {
            self.write(rule, file);
        } else if self.waiting == MOST_WAITING {
            self.write_all(file);
        }
    }

    fn write_all(&mut self, file: &mut SnapshotWriter<'_>) {
        (0..self.rules.len()).for_each(|rule| self.write(rule, file));
    }

    fn write(&mut self, rule: usize, file: &mut SnapshotWriter<'_>) {
        let states = std::mem::take(&mut self.lists[rule]);
        self.waiting -= states.len();
        if !states.is_empty() {
            let (domain, rule) = self.rules[rule].clone();
            file.queue(&Record::States { domain, rule, states }.to_bytes());
        }
    }
}

/// Decides when a snapshot is due.
#[derive(Debug, Default)]
pub(super) struct SnapshotSchedule {
    state: Mutex<ScheduleState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ScheduleState {
    /// Bytes of log now, and when the last snapshot was taken.
    written_len: u64,
    at_snapshot_len: u64,
    is_closing: bool,
    is_due: bool,
}

impl SnapshotSchedule {
    /// The schedule of a store that was opened, with a snapshot due at once or not.
    pub(super) fn new(is_due: bool) -> Self {
        let state = ScheduleState { is_due, ..ScheduleState::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Notes the length of the log, with a snapshot after so many bytes.
    pub(super) fn note(&self, written_len: u64, after_len: u64) {
        let mut state = lock(&self.state);
        state.written_len = written_len;
        if written_len.saturating_sub(state.at_snapshot_len) > after_len && !state.is_due {
            state.is_due = true;
            self.changed.notify_all();
        }
    }

    /// Notes that a snapshot was taken, or failed.
    pub(super) fn note_snapshot(&self) {
        let mut state = lock(&self.state);
        state.at_snapshot_len = state.written_len;
        state.is_due = false;
    }

    /// Waits until a snapshot is due; `false` at the end.
    pub(super) fn wait_until_due(&self) -> bool {
        let mut state = lock(&self.state);
        while !state.is_due && !state.is_closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_closing
    }

    /// Ends the wait for the next snapshot.
    pub(super) fn close(&self) {
        lock(&self.state).is_closing = true;
        self.changed.notify_all();
    }
}

/// How many items go into one record.
const CHUNK: usize = 1_000;

/// How many states of all rules may wait for a record.
const MOST_WAITING: usize = 16 * CHUNK;

/// The attributes of a key that has a hold: overrides by pattern need them, and the log before the
/// snapshot, which has the name, is not read.
fn held_key(item: &HoldItem, keys: &Keys) -> Option<KeyRecord> {
    let (number, (domain, rule)) = keys.rule_of(item.hash).filter(|_| !item.key.is_empty())?;
    let parts = item.key.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    let name = KeyName::new(RuleId::named(rule).in_domain(domain), parts.collect());
    Some(KeyRecord { number, hash: item.hash, name, is_erased: false })
}
