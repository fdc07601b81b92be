//! Records in memory that answer later, out of order, and not always.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use super::dice::Dice;
use crate::Outage;
use crate::shared::{Listing, RecordKey, RecordStore, Records, Step, Transaction};
use tidegate_table::locks::lock;

/// Records in memory, as on a server behind a slow network: transactions take a while, overtake each
/// other, and conflict.
///
/// A transaction reads without a lock and writes only if nothing it read has changed, as a real
/// store would.
#[derive(Debug)]
pub struct DelayedRecords {
    shared: Arc<Inner>,
    queue: Sender<Transaction>,
}

/// How often something goes wrong, each in 1 000 transactions.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RecordFaults {
    /// The server cannot be reached: nothing happens.
    pub unreachable: u32,
    /// The server has done it, and its answer is lost.
    pub lost_answers: u32,
    /// The connection is lost on the way: it happens or not, and there is no answer.
    pub lost_connections: u32,
}

impl RecordFaults {
    /// Each kind so often in 1 000 transactions.
    #[must_use]
    pub const fn each(in_1000: u32) -> Self {
        Self { unreachable: in_1000, lost_answers: in_1000, lost_connections: in_1000 }
    }
}

/// A value with the number of its last change.
type Stored = (u64, Option<Arc<[u8]>>);

#[derive(Debug, Default)]
struct Inner {
    records: Mutex<HashMap<RecordKey, Stored>>,
    changes: AtomicU64,
    conflicts: AtomicU64,
    /// How many transactions have been submitted, and how many have ended.
    submitted: AtomicU64,
    ended: AtomicU64,
}

impl DelayedRecords {
    /// Records without faults. The seed decides which transaction comes next.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_faults(seed, RecordFaults::default())
    }

    /// Records with faults.
    #[must_use]
    pub fn with_faults(seed: u64, faults: RecordFaults) -> Self {
        let shared: Arc<Inner> = Arc::default();
        let (queue, submitted) = channel();
        let (records, dice) = (Arc::clone(&shared), Dice::new(seed));
        // It ends with the sender.
        drop(thread::spawn(move || run(&submitted, &records, dice, faults)));
        Self { shared, queue }
    }

    /// How often a transaction had to be repeated, because another one came between.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.shared.conflicts.load(Ordering::Relaxed)
    }

    /// Whether every transaction that was submitted has ended.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let ended = self.shared.ended.load(Ordering::SeqCst);
        self.shared.submitted.load(Ordering::SeqCst) == ended
    }
}

impl RecordStore for DelayedRecords {
    fn run(&self, transaction: Transaction) {
        self.shared.submitted.fetch_add(1, Ordering::SeqCst);
        // Without the thread it is dropped, and so its outcome is unknown.
        let _ = self.queue.send(transaction);
    }

    fn states(&self, _from: u64) -> Listing {
        self.shared.states()
    }

    fn len(&self) -> usize {
        self.shared.len()
    }

    fn is_full(&self, max_records: usize) -> bool {
        self.shared.is_full(max_records)
    }
}

/// Records in memory whose transactions go on when a test says so: every order can be tried.
#[derive(Debug, Default)]
pub struct SteppedRecords {
    shared: Inner,
    open: Mutex<Vec<OpenTransaction>>,
}

impl SteppedRecords {
    /// How many transactions are on their way.
    #[must_use]
    pub fn open(&self) -> usize {
        lock(&self.open).len()
    }

    /// Lets one of the transactions on their way go on by a step: to read, or to decide and to write.
    /// One that has met another's write reads again.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn step(&self, index: usize) {
        let transaction = lock(&self.open).remove(index);
        let advanced =
            transaction.advance(&self.shared, &mut Dice::new(0), RecordFaults::default());
        if let Some(transaction) = advanced {
            let mut open = lock(&self.open);
            let index = index.min(open.len());
            open.insert(index, transaction);
        }
    }
}

impl RecordStore for SteppedRecords {
    fn run(&self, transaction: Transaction) {
        lock(&self.open).push(OpenTransaction { transaction, read: None });
    }

    fn states(&self, _from: u64) -> Listing {
        self.shared.states()
    }

    fn len(&self) -> usize {
        self.shared.len()
    }
}

impl Inner {
    fn states(&self) -> Listing {
        let records = lock(&self.records);
        let is_listed = |(key, value): &(&RecordKey, &Stored)| key.is_state() && value.1.is_some();
        let keys: Vec<RecordKey> = records.iter().filter(is_listed).map(|it| *it.0).collect();
        Box::pin(async { Ok((keys, 0)) })
    }

    fn len(&self) -> usize {
        let records = lock(&self.records);
        records.iter().filter(|(key, value)| key.is_state() && value.1.is_some()).count()
    }

    fn is_full(&self, max_records: usize) -> bool {
        let records = lock(&self.records);
        records.values().filter(|(_, value)| value.is_some()).count() >= max_records
    }
}

/// Runs one step of some transaction after the other, so that others come between its reads and its
/// writes.
fn run(submitted: &Receiver<Transaction>, shared: &Inner, mut dice: Dice, faults: RecordFaults) {
    let mut open: Vec<OpenTransaction> = Vec::new();
    loop {
        let arrived = if open.is_empty() {
            let Ok(first) = submitted.recv() else { return };
            Some(first)
        } else {
            submitted.try_recv().ok()
        };
        open.extend(arrived.map(|transaction| OpenTransaction { transaction, read: None }));
        if dice.once_in(4) {
            // Others get the time to come between.
            thread::yield_now();
            continue;
        }
        let next = usize::try_from(dice.below(open.len() as u64)).unwrap_or(0);
        let advanced = open.swap_remove(next).advance(shared, &mut dice, faults);
        if advanced.is_none() {
            shared.ended.fetch_add(1, Ordering::SeqCst);
        }
        open.extend(advanced);
    }
}

/// A transaction on its way, with the numbers of what it has read.
#[derive(Debug)]
struct OpenTransaction {
    transaction: Transaction,
    read: Option<(Records, HashMap<RecordKey, u64>)>,
}

impl OpenTransaction {
    /// The next step; `None` at its end.
    fn advance(mut self, shared: &Inner, dice: &mut Dice, faults: RecordFaults) -> Option<Self> {
        let mut records = lock(&shared.records);
        let Some((read, numbers)) = &mut self.read else {
            if dice.below(1_000) < faults.unreachable.into() {
                drop(records);
                self.transaction.fail(Outage::Unavailable);
                return None;
            }
            let mut read = (Records::default(), HashMap::new());
            for key in self.transaction.first_reads().to_vec() {
                read_record(&mut records, key, &mut read);
            }
            self.read = Some(read);
            return Some(self);
        };
        let is_same = numbers
            .iter()
            .all(|(key, number)| records.get(key).map_or(0, |(known, _)| *known) == *number);
        let writes = match self.transaction.step(read) {
            Step::Read(more) => {
                let mut all = (std::mem::take(read), std::mem::take(numbers));
                for key in more {
                    read_record(&mut records, key, &mut all);
                }
                self.read = Some(all);
                return Some(self);
            }
            Step::Done => {
                drop(records);
                self.transaction.complete();
                return None;
            }
            Step::Write(_) if !is_same => {
                shared.conflicts.fetch_add(1, Ordering::Relaxed);
                let keys: Vec<RecordKey> = read.keys().collect();
                let mut again = (Records::default(), HashMap::new());
                for key in keys {
                    read_record(&mut records, key, &mut again);
                }
                self.read = Some(again);
                return Some(self);
            }
            Step::Write(writes) => writes,
        };
        let is_lost = dice.below(1_000) < faults.lost_connections.into();
        if is_lost && dice.below(2) == 0 {
            drop(records);
            self.transaction.fail(Outage::Unknown);
            return None;
        }
        let number = shared.changes.fetch_add(1, Ordering::Relaxed) + 1;
        for write in writes {
            records.insert(write.key, (number, write.value));
        }
        drop(records);
        if is_lost || dice.below(1_000) < faults.lost_answers.into() {
            self.transaction.fail(Outage::Unknown);
        } else {
            self.transaction.complete();
        }
        None
    }
}

fn read_record(
    records: &mut HashMap<RecordKey, Stored>,
    key: RecordKey,
    (read, numbers): &mut (Records, HashMap<RecordKey, u64>),
) {
    let (number, value) = records.get(&key).cloned().unwrap_or((0, None));
    read.insert(key, value);
    numbers.insert(key, number);
}
