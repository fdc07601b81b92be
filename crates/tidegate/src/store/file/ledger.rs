//! The log as an audit reads it: what happened, to which keys, and the totals.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Timestamp;

use super::disk::{Disk, Folder};
use super::error::OpenError;
use super::frame::{Batches, FileKind};
use super::segments::{RecordPosition, SegmentLink, Segments};
use crate::engine::Change;
use crate::store::memory::{ActionKind, JournalTransfer as Account};
use crate::store::record::ByteReader;
use crate::store::record::{ActionsRecord, KeyedAction, Record, RoundRecord};
use crate::store::{HoldId, KeyName};

/// The ledger of a store, for reading.
///
/// Reading changes nothing, and may be done while a process writes.
///
/// ```
/// use tidegate::durable::{Filter, Ledger};
/// use tidegate::policy::Policy;
/// use tidegate::{Engine, Request};
///
/// # let folder = std::env::temp_dir().join(format!("tidegate-ledger-{}", std::process::id()));
/// let engine = Engine::open(Policy::from_toml(r#"
///     [[rule]]
///     name  = "calls"
///     key   = ["user"]
///     quota = { max = 10, per = "day" }
/// "#)?, &folder)?;
/// let request = Request::new("default", &[("user", "ada")]).cost(5);
/// let hold = engine.reserve(&request.note("a long text")).wait()?.hold().expect("there is room");
/// engine.commit_noting(hold, Some(3), "it was shorter").wait()?;
///
/// let of_ada = Filter::new().key("user", "ada");
/// let totals = engine.ledger()?.totals(&of_ada)?;
/// assert_eq!((totals.granted, totals.committed, totals.refunded, totals.held), (5, 3, 2, 0));
/// # drop(engine);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    disk: Arc<dyn Disk>,
}

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerEntry {
    /// Entries are numbered upwards from 1, in the order in which they happened.
    pub number: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub what: EntryKind,
    /// The domain that it happened in; empty where it has none.
    pub domain: Box<str>,
    /// The reservation that it belongs to.
    pub hold: Option<HoldId>,
    /// The caller's note.
    pub note: Option<Box<str>>,
    /// Units that moved from one account to another.
    pub bookings: Vec<Booking>,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A request was checked and charged.
    Check,
    /// A reservation was made.
    Reserve,
    /// A reservation was committed.
    Commit,
    /// A reservation was cancelled.
    Cancel,
    /// A reservation expired.
    Expire,
    /// A reservation was extended.
    Renew,
    /// A charge was refunded.
    Refund,
    /// The state of a key was dropped.
    Forget,
    /// A round of the domain was closed.
    RoundClosed {
        /// How many were closed by then.
        closed: u64,
    },
    /// The policy was edited.
    Edited(Box<Change>),
    /// A note of the host.
    Note,
    /// The names of keys were erased.
    Erased {
        /// How many.
        keys: u64,
    },
    /// A repair has given up entries that could not be read. Its time is that of the entry before.
    Lost {
        /// Their bytes.
        bytes: u64,
    },
}

/// Units of a key that moved from one account to another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Booking {
    /// Their key. Of a key whose name was erased only the rule is left.
    pub key: Arc<KeyName>,
    /// From which account to which.
    pub booking: Transfer,
    /// How many.
    pub units: u64,
}

/// From which account to which units moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transfer {
    /// Granted, and charged at once.
    Charged,
    /// Granted, and held.
    Held,
    /// Held, and now charged.
    Committed,
    /// Held, and released.
    Cancelled,
    /// Held, and released by expiry.
    Expired,
    /// Charged, and refunded.
    Refunded,
    /// Neither granted nor charged: the part of a commit's cost that the limit forgave. No total
    /// contains it.
    Forgiven,
}

/// A filter of entries: those that meet all of its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    domain: Option<Box<str>>,
    rule: Option<Box<str>>,
    key: Vec<(Box<str>, Box<str>)>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// Totals of bookings: `granted` is always `committed + refunded + held + expired`, from the
/// beginning. Within a range of time they are what was booked then, and what was granted before may
/// be committed, refunded or expired in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Units ever granted.
    pub granted: u64,
    /// Of these, units that were charged and not refunded.
    pub committed: u64,
    /// Units that were cancelled or refunded.
    pub refunded: u64,
    /// Units on hold.
    pub held: u64,
    /// Units of holds that expired.
    pub expired: u64,
}

impl Totals {
    /// The sum of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            granted: self.granted.saturating_add(other.granted),
            committed: self.committed.saturating_add(other.committed),
            refunded: self.refunded.saturating_add(other.refunded),
            held: self.held.saturating_add(other.held),
            expired: self.expired.saturating_add(other.expired),
        }
    }
}

impl Ledger {
    /// The ledger in a folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let folder = Folder::open_read_only(path)
            .map_err(|error| OpenError::disk(format!("open {}", path.display()), error))?;
        Ok(Self::on(Arc::new(folder)))
    }

    /// The ledger on another [`Disk`].
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// The entries, oldest first.
    pub fn entries(&self, filter: &Filter) -> Result<LedgerEntries, OpenError> {
        let chain = Segments::read(&*self.disk, 0)?;
        Ok(LedgerEntries {
            disk: Arc::clone(&self.disk),
            links: chain.links().iter().copied().collect(),
            segment: None,
            keys: HashMap::new(),
            holds: HashMap::new(),
            ready: VecDeque::new(),
            number: 0,
            last: Timestamp::ZERO,
            filter: filter.clone(),
            missing: chain.missing(),
        })
    }

    /// The totals of the bookings.
    pub fn totals(&self, filter: &Filter) -> Result<Totals, OpenError> {
        let mut sums = Sums::default();
        for entry in self.entries(filter)? {
            entry?.bookings.iter().for_each(|booked| sums.add(booked));
        }
        Ok(sums.totals())
    }

    /// The totals of each key, in the order in which keys were first seen.
    pub fn totals_by_key(&self, filter: &Filter) -> Result<Vec<(KeyName, Totals)>, OpenError> {
        let (mut order, mut sums) = (Vec::new(), HashMap::<KeyName, Sums>::new());
        for entry in self.entries(filter)? {
            for booked in &entry?.bookings {
                let sums = sums.entry((*booked.key).clone()).or_insert_with(|| {
                    order.push((*booked.key).clone());
                    Sums::default()
                });
                sums.add(booked);
            }
        }
        let totals = |key: KeyName| {
            let totals = sums.get(&key).map(Sums::totals).unwrap_or_default();
            (key, totals)
        };
        Ok(order.into_iter().map(totals).collect())
    }
}

impl Filter {
    /// A filter that matches everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only what happened in this domain.
    #[must_use]
    pub fn domain(self, domain: &str) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }

    /// Only entries about the rule of this name.
    #[must_use]
    pub fn rule(self, rule: &str) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// Only entries about keys in which this attribute has this value.
    #[must_use]
    pub fn key(mut self, attribute: &str, value: &str) -> Self {
        self.key.push((attribute.into(), value.into()));
        self
    }

    /// Only what happened at this time or later.
    #[must_use]
    pub fn since(self, since: Timestamp) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Only what happened before this time.
    #[must_use]
    pub fn until(self, until: Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }

    /// The part of an entry that matches, if there is one.
    fn apply(&self, mut entry: LedgerEntry) -> Option<LedgerEntry> {
        let is_in_time = self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until);
        let is_in_domain = self.domain.as_ref().is_none_or(|domain| *domain == entry.domain);
        if !is_in_time || !is_in_domain {
            return None;
        }
        if self.rule.is_none() && self.key.is_empty() {
            return Some(entry);
        }
        let is_edit_of_rule = match &entry.what {
            EntryKind::Edited(change) => {
                self.key.is_empty() && change.rule() == self.rule.as_deref()
            }
            _ => false,
        };
        entry.bookings.retain(|booked| self.is_about(&booked.key));
        (is_edit_of_rule || !entry.bookings.is_empty()).then_some(entry)
    }

    fn is_about(&self, key: &KeyName) -> bool {
        let has = |(attribute, value): &(Box<str>, Box<str>)| {
            key.parts.iter().any(|(name, known)| name == attribute && known.as_ref() == Some(value))
        };
        self.rule.as_ref().is_none_or(|rule| *rule == key.rule) && self.key.iter().all(has)
    }
}

/// An iterator over entries. After an error it continues with the next segment that can be read;
/// entries and names of keys are missing then.
#[derive(Debug)]
pub struct LedgerEntries {
    disk: Arc<dyn Disk>,
    links: VecDeque<SegmentLink>,
    segment: Option<OpenSegment>,
    keys: HashMap<u64, Arc<KeyName>>,
    /// The domains of open reservations.
    holds: HashMap<HoldId, Box<str>>,
    ready: VecDeque<LedgerEntry>,
    number: u64,
    /// The time of the last entry.
    last: Timestamp,
    filter: Filter,
    /// Why the beginning is missing.
    missing: Option<OpenError>,
}

/// A segment that is being read.
struct OpenSegment {
    link: SegmentLink,
    file: String,
    bytes: Vec<u8>,
    at: usize,
    next_batch: u64,
}

impl fmt::Debug for OpenSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("file", &self.file).field("at", &self.at).finish()
    }
}

impl Iterator for LedgerEntries {
    type Item = Result<LedgerEntry, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(missing) = self.missing.take() {
            return Some(Err(missing));
        }
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(Ok(entry));
            }
            match self.read_batch() {
                Ok(true) => {}
                Ok(false) => return None,
                // The next segment can be read without this one.
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl LedgerEntries {
    /// Reads the entries of one more batch; `false` at the end.
    fn read_batch(&mut self) -> Result<bool, OpenError> {
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => match self.links.pop_front() {
                Some(link) => OpenSegment::read(&*self.disk, link)?,
                None => return Ok(false),
            },
        };
        let position = RecordPosition { file: segment.file.clone(), at: segment.at as u64 };
        let counted = segment.link.counted(&segment.bytes);
        let mut batches = Batches::from(counted, segment.at, segment.next_batch);
        let Some(batch) = batches.next() else {
            let damage = segment.link.damage(&batches);
            return damage.map_or(Ok(true), |what| Err(position.damaged(what)));
        };
        let mut records = ByteReader(batch.records);
        while !records.is_empty() {
            let record = Record::read(&mut records).map_err(|_| position.broken())?;
            self.read_record(record);
        }
        (segment.at, segment.next_batch) = (batches.position(), batches.next_number());
        self.segment = Some(segment);
        Ok(true)
    }

    fn read_record(&mut self, record: Record) {
        match record {
            Record::Key(key) => {
                self.keys.insert(key.number, Arc::new(key.name));
            }
            Record::Acts(acts) => self.read_actions(*acts),
            Record::Round(RoundRecord { at, domain, closed, note }) => {
                self.push(at, EntryKind::RoundClosed { closed }, domain, note);
            }
            Record::Edit(edit) => {
                for change in edit.changes.into_iter().map(Change::from) {
                    let domain = change.domain().unwrap_or_default().into();
                    self.push(change.at, EntryKind::Edited(Box::new(change)), domain, None);
                }
            }
            Record::Note { at, domain, text } => self.push(at, EntryKind::Note, domain, Some(text)),
            Record::Erased { at, keys } => {
                let keys = keys.len() as u64;
                self.push(at, EntryKind::Erased { keys }, "".into(), None);
            }
            Record::Lost { len: bytes } => {
                self.push(self.last, EntryKind::Lost { bytes }, "".into(), None);
            }
            Record::Seed(_)
            | Record::Rule(_)
            | Record::Clock { .. }
            | Record::End { .. }
            | Record::Keys { .. } => {}
        }
    }

    fn read_actions(&mut self, acts: ActionsRecord) {
        let of_state = acts.states.first().and_then(|(key, _)| self.keys.get(key)).cloned();
        let mut items = acts.holds.iter().filter_map(|(_, hold)| hold.as_ref()?.items.first());
        let of_items =
            items.find_map(|item| self.keys.get(&item.hash)).map(|key| key.domain.clone());
        for KeyedAction { kind, at, hold, note, bookings } in acts.acts {
            let what = what_of(kind);
            let unknown = || Arc::new(KeyName::default());
            let bookings: Vec<Booking> = bookings
                .into_iter()
                .map(|(key, entry, units)| Booking {
                    key: self.keys.get(&key).cloned().unwrap_or_else(unknown),
                    booking: entry.into(),
                    units,
                })
                .collect();
            let of_hold = hold.and_then(|hold| self.holds.get(&hold).cloned());
            let named = bookings.first().map(|booked| &booked.key).or(of_state.as_ref());
            let domain = of_hold
                .or_else(|| named.map(|key| key.domain.clone()))
                .or_else(|| of_items.clone())
                .unwrap_or_default();
            if let Some(hold) = hold {
                match what {
                    EntryKind::Cancel | EntryKind::Expire => self.holds.remove(&hold),
                    _ => self.holds.insert(hold, domain.clone()),
                };
            }
            let number = 0;
            self.enqueue(LedgerEntry { number, at, what, domain, hold, note, bookings });
        }
    }

    fn push(&mut self, at: Timestamp, what: EntryKind, domain: Box<str>, note: Option<Box<str>>) {
        let (hold, bookings, number) = (None, Vec::new(), 0);
        self.enqueue(LedgerEntry { number, at, what, domain, hold, note, bookings });
    }

    fn enqueue(&mut self, entry: LedgerEntry) {
        (self.number, self.last) = (self.number + 1, entry.at);
        self.ready.extend(self.filter.apply(LedgerEntry { number: self.number, ..entry }));
    }
}

impl OpenSegment {
    fn read(disk: &dyn Disk, link: SegmentLink) -> Result<Self, OpenError> {
        let file = FileKind::Log.file_name(link.header.number);
        let (link, bytes) = link.read(disk)?;
        let start = link.batches(&bytes);
        let (at, next_batch) = (start.position(), start.next_number());
        Ok(Self { link, file, bytes, at, next_batch })
    }
}

/// The sums of bookings, by their destination.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    charged: u64,
    held: u64,
    committed: u64,
    cancelled: u64,
    expired: u64,
    refunded: u64,
}

impl Sums {
    fn add(&mut self, booked: &Booking) {
        let sum = match booked.booking {
            Transfer::Charged => &mut self.charged,
            Transfer::Held => &mut self.held,
            Transfer::Committed => &mut self.committed,
            Transfer::Cancelled => &mut self.cancelled,
            Transfer::Expired => &mut self.expired,
            Transfer::Refunded => &mut self.refunded,
            Transfer::Forgiven => return,
        };
        *sum = sum.saturating_add(booked.units);
    }

    fn totals(&self) -> Totals {
        let settled = self.committed.saturating_add(self.cancelled).saturating_add(self.expired);
        Totals {
            granted: self.charged.saturating_add(self.held),
            committed: (self.charged.saturating_add(self.committed)).saturating_sub(self.refunded),
            refunded: self.cancelled.saturating_add(self.refunded),
            held: self.held.saturating_sub(settled),
            expired: self.expired,
        }
    }
}

impl From<Account> for Transfer {
    fn from(account: Account) -> Self {
        match account {
            Account::Charged => Self::Charged,
            Account::Held => Self::Held,
            Account::Committed => Self::Committed,
            Account::Cancelled => Self::Cancelled,
            Account::Expired => Self::Expired,
            Account::Refunded => Self::Refunded,
            Account::Forgiven => Self::Forgiven,
        }
    }
}

/// The kind of its entry.
const fn what_of(kind: ActionKind) -> EntryKind {
    match kind {
        ActionKind::Check => EntryKind::Check,
        ActionKind::Reserve => EntryKind::Reserve,
        ActionKind::Commit => EntryKind::Commit,
        ActionKind::Cancel => EntryKind::Cancel,
        ActionKind::Expire => EntryKind::Expire,
        ActionKind::Renew => EntryKind::Renew,
        ActionKind::Refund => EntryKind::Refund,
        ActionKind::Forget => EntryKind::Forget,
    }
}
