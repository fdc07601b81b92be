//! What a shared store is made of: records, and transactions over them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_policy::policy::Durability;
use tidegate_table::SystemClock;
use tidegate_table::clock::Clock;

use crate::store::Outage;
use crate::store::answer::Promise;

/// Stores records that several engines share, such as a database server.
///
/// An engine makes a [`Transaction`] of every operation. The store reads the records that it needs,
/// calls [`step`](Transaction::step) with them, writes what it returns, and
/// [completes](Transaction::complete) it. All limits, holds and edits are in the transaction; a store
/// knows nothing of them.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// use tidegate::policy::Policy;
/// use tidegate::store::{Listing, RecordKey, RecordStore, Records, SharedStore, Step, Transaction};
/// use tidegate::{Engine, Request};
///
/// /// Records in a map: one transaction at a time, so none conflicts.
/// #[derive(Debug, Default)]
/// struct Map(Mutex<HashMap<RecordKey, Arc<[u8]>>>);
///
/// impl RecordStore for Map {
///     fn run(&self, mut transaction: Transaction) {
///         let mut map = self.0.lock().expect("no thread panics with it");
///         let mut records = Records::default();
///         let mut keys = transaction.first_reads().to_vec();
///         loop {
///             for key in keys {
///                 records.insert(key, map.get(&key).cloned());
///             }
///             match transaction.step(&records) {
///                 Step::Read(more) => keys = more,
///                 Step::Write(writes) => {
///                     for write in writes {
///                         match write.value {
///                             Some(value) => map.insert(write.key, value),
///                             None => map.remove(&write.key),
///                         };
///                     }
///                     return transaction.complete();
///                 }
///                 Step::Done => return transaction.complete(),
///             }
///         }
///     }
///
///     fn states(&self, _from: u64) -> Listing {
///         let map = self.0.lock().expect("no thread panics with it");
///         let keys: Vec<RecordKey> = map.keys().copied().filter(RecordKey::is_state).collect();
///         Box::pin(async { Ok((keys, 0)) })
///     }
///
///     fn len(&self) -> usize {
///         let map = self.0.lock().expect("no thread panics with it");
///         map.keys().filter(|key| key.is_state()).count()
///     }
/// }
///
/// let policy = r#"
///     [[rule]]
///     name   = "all"
///     window = { max = 1, per = "1h" }
/// "#;
/// // Two engines, as in two processes, share one limit.
/// let map = Arc::new(Map::default());
/// let engine = || -> Result<_, Box<dyn std::error::Error>> {
///     let store = SharedStore::new(Arc::clone(&map), b"the same secret in all processes");
///     Ok(Engine::builder(Policy::from_toml(policy)?).store(store).build()?)
/// };
/// let (first, second) = (engine()?, engine()?);
/// let request = Request::new("default", &[]);
/// assert!(first.check(&request).block()?.is_allowed());
/// assert!(!second.check(&request).block()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Whether a store conforms, `tidegate::testing::conformance` and `shared_conformance` show (feature
/// `testing`).
pub trait RecordStore: fmt::Debug + Send + Sync + 'static {
    /// Runs a transaction, now or later, on any thread. Must not block its caller for long.
    ///
    /// The writes of a step take effect all at once, and only if no record that was read for the
    /// step has changed since; if one has, the store reads all of them again and repeats the step.
    /// The only records that may be older are denials': a step that ends with [`Step::Done`] needs
    /// no check. Steps do not panic; the records that they write are among those that they read.
    ///
    /// Where a transaction cannot be run, it [fails](Transaction::fail) with
    /// [`Outage::Unavailable`], and with [`Outage::Unknown`] where its writes may have happened.
    /// It must not be written a second time then. One that is dropped fails with
    /// [`Outage::Unknown`].
    fn run(&self, transaction: Transaction);

    /// The clock of the engines that share the records, unless their builders set another one: all of them
    /// need the same. By default that of the system, for engines of one machine; records that outlive the
    /// process need one that is no earlier than what they were written at.
    fn clock(&self) -> Arc<dyn Clock + Send + Sync> {
        Arc::new(SystemClock::new())
    }

    /// Keys of states, a few hundred at once, and where the next ones are; 0 is the start, and then
    /// the end. Each key that is there all the time is listed at least once; a list may be empty, and not
    /// the last.
    fn states(&self, from: u64) -> Listing;

    /// How many states there are: at least those that this store has written, as far as is known.
    fn len(&self) -> usize;

    /// Whether there are no states, as far as is known.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory used in this process, in bytes.
    fn bytes(&self) -> usize {
        0
    }

    /// Whether it has at least so many records, of all kinds and of all engines, as far as is known.
    /// Then no more are created: new keys share states, or are denied. It is called for every decision.
    fn is_full(&self, max_records: usize) -> bool {
        let _ = max_records;
        false
    }
}

/// A list of keys, and where the next ones are, later.
pub type Listing = Pin<Box<dyn Future<Output = Result<(Vec<RecordKey>, u64), Outage>> + Send>>;

/// The name of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(pub(super) Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// The policy in force, its edits, the rounds, and the history of all limits.
    Control,
    /// The state of a key, with the units of it that are on hold.
    State(u64),
    /// States that keys share while the store is full.
    Cell(u64),
    /// A reservation or a lease.
    Hold([u64; 2]),
    /// What a request under an idempotency key got.
    Idempotency([u64; 2]),
}

impl RecordKey {
    /// The one record of the policy and its edits.
    #[must_use]
    pub const fn control() -> Self {
        Self(Kind::Control)
    }

    /// Whether every transaction reads it: the one record of the policy and its edits.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        matches!(self.0, Kind::Control)
    }

    /// The key of a state by its text.
    #[must_use]
    pub fn state_from_text(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("state:").filter(|digits| digits.len() == 16)?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        match digits.strip_prefix("cell") {
            Some(digits) => number(digits).map(|number| Self(Kind::Cell(number))),
            None => number(digits).map(|hash| Self(Kind::State(hash))),
        }
    }

    /// Its text, as it is displayed.
    #[must_use]
    pub fn text(&self) -> RecordKeyText {
        match self.0 {
            Kind::Control => RecordKeyText::new("control", &[]),
            Kind::State(hash) => RecordKeyText::new("state:", &[hash]),
            Kind::Cell(number) => RecordKeyText::cell(number),
            Kind::Hold(id) => RecordKeyText::new("hold:", &id),
            Kind::Idempotency(name) => RecordKeyText::new("name:", &name),
        }
    }

    /// Whether it is the state of a key, or of keys that share one.
    #[must_use]
    pub const fn is_state(&self) -> bool {
        matches!(self.0, Kind::State(_) | Kind::Cell(_))
    }
}

/// Its text is unique, and has letters, digits and `:` alone.
impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

/// The text of a [`RecordKey`], without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct RecordKeyText {
    bytes: [u8; LONGEST],
    length: usize,
}

impl RecordKeyText {
    fn new(kind: &str, words: &[u64]) -> Self {
        let mut text = Self { bytes: [0; LONGEST], length: 0 };
        text.push(kind.as_bytes());
        for word in words {
            for byte in word.to_be_bytes() {
                text.push(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        text
    }

    /// The text of the state of keys that share one: a number of 48 bits.
    fn cell(number: u64) -> Self {
        let digits = Self::new("", &[number]);
        let mut text = Self::new("state:cell", &[]);
        text.push(&digits.as_bytes()[4..]);
        text
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        self.bytes[self.length..end].copy_from_slice(part);
        self.length = end;
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The text as bytes: all are ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The length of the longest text.
const LONGEST: usize = "name:".len() + 32;

/// The records that were read for a transaction: a few, so they are searched one after the other.
#[derive(Clone, Debug, Default)]
pub struct Records(SmallVec<[Record; 4]>);

/// A record as it was read; `None` if there is none.
type Record = (RecordKey, Option<Arc<[u8]>>);

impl Records {
    /// Adds a record as it was read; `None` if there is none.
    pub fn insert(&mut self, key: RecordKey, value: Option<Arc<[u8]>>) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.0.push((key, value)),
        }
    }

    /// The keys of all records that were read: those to be read again after a conflict.
    pub fn keys(&self) -> impl Iterator<Item = RecordKey> {
        self.0.iter().map(|(key, _)| *key)
    }

    /// The record under a key, as it was read; `None` if it was not read.
    #[must_use]
    pub fn get(&self, key: &RecordKey) -> Option<Option<&Arc<[u8]>>> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_ref())
    }
}

/// A change of one record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The record.
    pub key: RecordKey,
    /// What it is from now on; `None`: it is removed.
    pub value: Option<Arc<[u8]>>,
    /// How long it is needed, from now on; `None`: for good. Afterwards it cannot be told from no
    /// record, so a store may remove it, at any later time.
    pub keep_for: Option<Duration>,
}

impl Write {
    pub(super) fn new(kind: Kind, value: Option<Vec<u8>>) -> Self {
        Self { key: RecordKey(kind), value: value.map(Arc::from), keep_for: None }
    }
}

/// What a transaction needs next.
#[derive(Debug)]
pub enum Step {
    /// More records: read them, and call [`Transaction::step`] with them and all before.
    Read(Vec<RecordKey>),
    /// These changes, all of them at once, if none of the records read has changed.
    Write(Vec<Write>),
    /// Nothing: there is nothing to write.
    Done,
}

/// An operation of an engine, to be run by a [`RecordStore`].
///
/// Dropped, it fails with [`Outage::Unknown`].
pub struct Transaction {
    reads: FirstReads,
    purpose: Purpose,
    need: DurabilityNeed,
    body: Option<Box<dyn Body>>,
}

impl Transaction {
    /// The records that the first step needs.
    #[must_use]
    pub fn first_reads(&self) -> &[RecordKey] {
        &self.reads
    }

    /// Whether it is an edit of [the control record](RecordKey::is_control), or a look at it as it
    /// is now. A copy of that record is not good enough for it.
    #[must_use]
    pub const fn is_edit(&self) -> bool {
        matches!(self.purpose, Purpose::Edit)
    }

    /// Whether it is a decision that charges. If its step writes nothing, that is a denial, which a
    /// store that cannot reach its server may take from the records that it read last.
    #[must_use]
    pub const fn is_charge(&self) -> bool {
        matches!(self.purpose, Purpose::Charge)
    }

    /// Decides with what was read. It may be called any number of times; what it returned before
    /// does not count then.
    pub fn step(&mut self, records: &Records) -> Step {
        let Some(body) = &mut self.body else { return Step::Done };
        let (step, need) = body.step(records);
        self.need = need;
        step
    }

    /// How durable its writes, and what its result was made of, have to be before it is
    /// [completed](Self::complete), as of the last step. A denial needs nothing.
    #[must_use]
    pub const fn durability(&self) -> Durability {
        self.need.wanted
    }

    /// The part of [`durability`](Self::durability) that a rule sets. A store that cannot provide it
    /// does not write, and [fails](Self::fail) the transaction; of all else it does its best.
    #[must_use]
    pub const fn required_durability(&self) -> Durability {
        self.need.required
    }

    /// Ends it: the last step had nothing to write, or all of it is written.
    pub fn complete(mut self) {
        if let Some(body) = self.body.take() {
            body.end(Ok(()));
        }
    }

    /// Ends it without success.
    pub fn fail(mut self, outage: Outage) {
        if let Some(body) = self.body.take() {
            body.end(Err(outage));
        }
    }

    /// A transaction of a function that gets the records read so far, and where its result goes.
    pub(super) fn new<T: Send + 'static>(
        reads: FirstReads,
        function: impl FnMut(&Records) -> Flow<T> + Send + 'static,
        promise: Promise<Result<T, Outage>>,
    ) -> Self {
        let body = FunctionBody { function, result: None, promise };
        let (purpose, need) = (Purpose::Other, DurabilityNeed::NONE);
        Self { reads, purpose, need, body: Some(Box::new(body)) }
    }

    pub(super) fn with_purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            body.end(Err(Outage::Unknown));
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("reads", &self.reads).finish_non_exhaustive()
    }
}

/// The records that a first step needs: mostly the policy and a few states.
pub(super) type FirstReads = SmallVec<[RecordKey; 4]>;

/// What a transaction is for, as far as it matters to a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Edit,
    Charge,
    Other,
}

/// How durable something has to be before it is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurabilityNeed {
    pub(super) wanted: Durability,
    /// What of it a rule sets.
    pub(super) required: Durability,
}

impl DurabilityNeed {
    /// It need not be durable.
    pub(super) const NONE: Self = Self { wanted: Durability::Memory, required: Durability::Memory };

    /// As durable as the store can make it.
    pub(super) const BEST: Self = Self { wanted: Durability::Fsync, ..Self::NONE };

    /// Both of two.
    pub(super) fn and(self, other: Self) -> Self {
        Self { wanted: self.wanted.max(other.wanted), required: self.required.max(other.required) }
    }
}

/// What a transaction changes, and how durable that has to be.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) writes: Vec<Write>,
    pub(super) need: DurabilityNeed,
}

impl Changes {
    pub(super) const NONE: Self = Self { writes: Vec::new(), need: DurabilityNeed::NONE };
}

/// How a transaction goes on.
#[derive(Debug)]
pub(super) enum Flow<T> {
    Read(Vec<RecordKey>),
    /// It ends with these changes, if there are any.
    End(Changes, T),
}

trait Body: Send {
    fn step(&mut self, records: &Records) -> (Step, DurabilityNeed);

    fn end(self: Box<Self>, end: Result<(), Outage>);
}

struct FunctionBody<F, T> {
    function: F,
    result: Option<T>,
    promise: Promise<Result<T, Outage>>,
}

impl<T: Send, F: FnMut(&Records) -> Flow<T> + Send> Body for FunctionBody<F, T> {
    fn step(&mut self, records: &Records) -> (Step, DurabilityNeed) {
        match (self.function)(records) {
            Flow::Read(keys) => (Step::Read(keys), DurabilityNeed::NONE),
            Flow::End(Changes { writes, need }, result) => {
                self.result = Some(result);
                let step = if writes.is_empty() { Step::Done } else { Step::Write(writes) };
                (step, need)
            }
        }
    }

    fn end(self: Box<Self>, end: Result<(), Outage>) {
        let Self { result, promise, .. } = *self;
        // Without a result the store has not called a step to its end.
        promise.keep(end.and_then(|()| result.ok_or(Outage::Unavailable)));
    }
}
