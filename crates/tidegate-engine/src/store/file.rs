//! The file store: decides in memory, and writes before it acknowledges.
//!
//! A [`MemoryStore`] decides everything. Charges of durable rules go through the mutex of its hold
//! tables, are written to a log in that order, and are acknowledged when the log is as durable as
//! the rule demands. Other rules never touch the log.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tidegate_core::Timestamp;
use tidegate_log::{Disk, Level, LogCounts, LogError, NotDurable, WaitDurable};
use tidegate_policy::policy::Durability;
use tidegate_table::locks::lock;

use super::memory::{MemoryStore, Undo};
use super::record::{Record, RoundRecord};
use super::{Answer, Decided, Failure, Outage, StoredEdits};
use crate::decision::{Decisions, Operation};
use crate::edits::{Change, Overlay};
use crate::periods::Times;
use crate::plan::{Charge, Plan};
use crate::store::block_on;
use crate::transition::HoldItem;
use edits::LoggedEdits;
use recorder::{Recorder, level};
use snapshot::SnapshotSchedule;

pub use keys::{KeyNames, KeyNamesBound};
pub use ledger::{Booking, Filter, Ledger, LedgerEntries, LedgerEntry};
pub use options::{FileOptions, OpenError};
pub use repair::{CheckReport, check, check_on, repair, repair_on};
pub use totals::{ReadableTotals, Totals, TotalsBy};

mod edits;
mod erase;
mod keys;
mod ledger;
mod options;
mod recorder;
mod recovery;
mod repair;
mod snapshot;
mod totals;

/// Stores states in a folder, with a copy in memory for decisions.
///
/// One process at a time can use the folder. It cannot be cloned: an
/// [`Engine`](crate::Engine) owns its store.
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<FileStoreInner>,
    /// Takes snapshots.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct FileStoreInner {
    memory: MemoryStore,
    recorder: Arc<Recorder>,
    disk: Arc<dyn Disk>,
    least_durability: Durability,
    /// Edits in force, for the next snapshot.
    edits: Mutex<LoggedEdits>,
    snapshots: Mutex<()>,
    growth: Arc<SnapshotSchedule>,
    recovered_last: Timestamp,
    is_torn: bool,
}

impl FileStore {
    /// Opens the store in a folder; an empty or missing one starts a new store.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        FileOptions::default().open(path.as_ref())
    }

    /// The latest time in the log. The clock has to continue from there: see
    /// [`SystemClock::no_earlier_than`](tidegate_table::SystemClock::no_earlier_than).
    #[must_use]
    pub fn last_time(&self) -> Timestamp {
        self.shared.recovered_last
    }

    /// Whether the last process stopped in the middle of a write, which was cut off.
    /// It had not been acknowledged.
    #[must_use]
    pub fn was_torn(&self) -> bool {
        self.shared.is_torn
    }

    /// The error of the disk, during an outage; or what was done to the folder, which is an outage
    /// as soon as something has to be written.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<io::Error>> {
        self.shared.recorder.log.failure()
    }

    /// The last error of the disk, also after the outage. [`counts`](Self::counts) has how many
    /// there were.
    #[must_use]
    pub fn last_failure(&self) -> Option<Arc<io::Error>> {
        self.shared.recorder.log.last_failure()
    }

    /// Blocks until the disk works again.
    pub fn wait_until_it_works(&self) {
        self.shared.recorder.log.wait_until_it_works();
    }

    /// The counts of the log.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        self.shared.recorder.log.counts()
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger::on(Arc::clone(&self.shared.disk))
    }

    /// Takes a snapshot now, so that the next start has little to read.
    pub fn take_snapshot(&self) -> io::Result<()> {
        self.shared.take_snapshot()
    }

    /// Writes a note of the host; it resolves when the note is durable.
    pub(crate) fn write_note(
        &self,
        domain: &str,
        text: &str,
        times: Times,
    ) -> Answer<Result<(), Outage>> {
        if self.is_failing(Some(text)) {
            return Answer::Ready(Err(Outage::Unavailable));
        }
        let record = Record::Note { at: times.now, domain: domain.into(), text: text.into() };
        self.shared.recorder.append(&record, Durability::Fsync);
        self.sync()
    }

    /// Makes everything so far durable.
    pub(crate) fn sync(&self) -> Answer<Result<(), Outage>> {
        let durable = self.wait_durable(Durability::Fsync);
        Answer::Pending(Box::pin(async move { Ok(durable.await?) }))
    }

    fn wait_durable(&self, durability: Durability) -> WaitDurable {
        self.shared.recorder.log.wait_durable(level(durability))
    }

    /// Whether no record with a text of this length is accepted.
    fn is_failing(&self, text: Option<&str>) -> bool {
        let text_len = text.map_or(0, str::len);
        self.shared.recorder.log.is_refusing(text_len.saturating_add(SMALL_RECORD))
    }

    /// How durable a plan has to be before it is acknowledged.
    #[inline]
    pub(super) fn durability(&self, plan: &Plan<'_>) -> Durability {
        let of_charge = |charge: &Charge| charge.terms.durability;
        let most = plan.charges.iter().map(of_charge).max().unwrap_or(Durability::Memory);
        most.max(self.shared.least_durability)
    }

    /// Makes a decision that is returned once it is durable; should it not become durable, it is undone.
    #[cold]
    #[inline(never)]
    pub(super) fn decide(
        &self,
        plan: &Plan<'_>,
        times: Times,
        decisions: &mut Decisions,
    ) -> Result<Decided, Failure> {
        if self.is_failing(plan.note) {
            // A denial that charges nothing needs no write: what is known to be exhausted stays denied.
            let denied = (!plan.charges_denials())
                .then(|| self.shared.memory.known_denial(plan, times, decisions));
            return denied.flatten().ok_or(Outage::Unavailable.into());
        }
        let mut decided = match self.shared.memory.decide_with_holds(plan, times, decisions) {
            Ok(it) if it.is_allowed || plan.charges_denials() => it,
            // Nothing was charged, so nothing has to be durable.
            other => return other,
        };
        let undo = self.undo_of(plan, &decided, decisions);
        let (log, level) = (&self.shared.recorder.log, level(self.durability(plan)));
        // A repeated request waits for the one that it repeats, which is anywhere before.
        let durable = match decided.record {
            Some(record) => log.wait_record(record, level),
            None => log.wait_durable(level),
        };
        let store = Arc::clone(&self.shared);
        decided.durable = Answer::Pending(Box::pin(async move {
            let synced = durable.await.map_err(Outage::from);
            if synced.is_err() {
                store.memory.undo(&undo, times);
            }
            synced
        }));
        Ok(decided)
    }

    fn undo_of(&self, plan: &Plan<'_>, decided: &Decided, decisions: &Decisions) -> Undo {
        // A repeated request has charged nothing, so there is nothing to undo.
        let is_new = !decided.is_repeat;
        let is_charged = plan.act == Operation::Charge && is_new;
        let item = |(index, charge): (usize, &Charge)| {
            let units = match decisions.booking_of(index) {
                Some(booking) => booking.units,
                None if decided.is_allowed && decisions[index].is_allowed() => charge.cost,
                None => 0,
            };
            (units > 0).then(|| HoldItem { units, ..HoldItem::new(plan, charge, charge.tag) })
        };
        Undo {
            hold: decided.hold.filter(|_| is_new).map(|hold| hold.id),
            items: plan
                .charges
                .iter()
                .enumerate()
                .filter(|_| is_charged)
                .filter_map(item)
                .collect(),
            name: plan.name.filter(|_| is_new).map(|named| named.name),
        }
    }
}

impl From<NotDurable> for Outage {
    fn from(_: NotDurable) -> Self {
        Self::Unavailable
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.shared.growth.close();
        if let Some(thread) = self.thread.take() {
            // It ends by itself; a panic there has been reported.
            let _ = thread.join();
        }
    }
}

impl FileStoreInner {
    /// Writes the seed of the key hash, which everything else depends on.
    fn begin(&self) -> Result<(), OpenError> {
        let seed = Record::Seed(self.memory.hash().to_words());
        self.recorder.append(&seed, Durability::Fsync);
        let durable = self.recorder.log.wait_durable(Level::Synced);
        block_on(Box::pin(durable)).map_err(|_| {
            let error = self.recorder.log.failure();
            let error = error.unwrap_or_else(|| Arc::new(io::Error::other("the write failed")));
            LogError::Disk { doing: "begin the log".into(), error }.into()
        })
    }

    /// Takes a snapshot whenever one is due.
    fn take_snapshots(&self) {
        while self.growth.wait_until_due() {
            // If it fails the log is complete without it; the next one is tried when the log has
            // grown.
            let _ = self.take_snapshot();
            self.growth.note_snapshot();
        }
    }
}

/// The part of the verbs that the table does not have.
impl FileStore {
    /// The states.
    #[inline]
    pub(super) fn table(&self) -> &MemoryStore {
        &self.shared.memory
    }

    /// Applies an operation to the table, and answers once it is durable. `note` is the text that is
    /// written with it.
    pub(super) fn durably<T: Send + 'static, E: From<Outage> + Send + 'static>(
        &self,
        durability: Durability,
        note: Option<&str>,
        apply: impl FnOnce() -> Result<T, E>,
    ) -> Answer<Result<T, E>> {
        if self.is_failing(note) {
            return Answer::Ready(Err(Outage::Unavailable.into()));
        }
        match apply() {
            Ok(done) => {
                let durable = self.wait_durable(durability);
                Answer::Pending(Box::pin(async move {
                    durable.await.map_err(Outage::from)?;
                    Ok(done)
                }))
            }
            Err(failure) => Answer::Ready(Err(failure)),
        }
    }

    /// Closes a round of a domain. Its order in the log is its order among decisions.
    pub(super) fn close_round(&self, domain: &str, note: Option<&str>, times: Times) -> u64 {
        self.shared.memory.with_hold_tables(|_| {
            let closed = self.shared.memory.close_round(domain, times);
            let (at, domain, note) = (times.now, domain.into(), note.map(Into::into));
            let record = Record::Round(RoundRecord { at, domain, closed, note });
            self.shared.recorder.append(&record, Durability::Fsync);
            closed
        })
    }

    pub(super) fn store_edits(&self, overlay: &Overlay, changes: &[Change]) -> Result<(), Outage> {
        let mut edits = lock(&self.shared.edits);
        let edit = edits.edit(overlay, changes);
        self.shared.recorder.append(&Record::Edit(Box::new(edit)), Durability::Fsync);
        drop(edits);
        Ok(block_on(Box::pin(self.wait_durable(Durability::Fsync)))?)
    }

    pub(super) fn stored_edits(&self) -> StoredEdits {
        lock(&self.shared.edits).stored.clone()
    }
}

/// About how long a record is without its text.
const SMALL_RECORD: usize = 1 << 10;
