//! The log as an audit reads it: what happened, to which keys, and the totals.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_log::{Disk, Folder, LogReader};
use tidegate_policy::policy::RuleId;

use super::keys::logged_value;
use super::options::OpenError;
use crate::edits::Change;
use crate::plan::KeyName;
use crate::store::HoldId;
use crate::store::actions::{EntryKind, Transfer};
use crate::store::memory::Author;
use crate::store::record::{ActionsRecord, KeyedAction, Record, RoundRecord};

/// The ledger of a store, for reading.
///
/// Reading changes nothing, and may be done while a process writes.
///
/// ```
/// use tidegate::durable::{Filter, Ledger};
/// use tidegate::policy::Policy;
/// use tidegate::hold::Commit;
/// use tidegate::{Engine, Request};
///
/// # let folder = std::env::temp_dir().join(format!("tidegate-ledger-{}", std::process::id()));
/// let engine = Engine::builder(Policy::from_toml(r#"
///     [[rule]]
///     name  = "calls"
///     key   = ["user"]
///     quota = { max = 10, per = "day" }
/// "#)?).folder(&folder).build()?;
/// let request = Request::new("default", &[("user", "ada")]).cost(5);
/// let held = engine.reserve(&request.note("a long text")).block()?;
/// held.commit_as(Commit::actual(3).note("it was shorter")).block()?;
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
    pub(super) disk: Arc<dyn Disk>,
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
    /// The caller's note. One that was erased is none.
    pub note: Option<Box<str>>,
    /// Why the engine did it by itself: it undoes what could not be made durable. The caller did not
    /// request it, and it has no note.
    pub cause: Option<Box<str>>,
    /// Units that moved from one account to another.
    pub bookings: Vec<Booking>,
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

/// A filter of entries: those that meet all of its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    domain: Option<Box<str>>,
    rule: Option<Box<str>>,
    key: Vec<(Box<str>, Box<str>)>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Ledger {
    /// The ledger in a folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Ok(Self::on(Arc::new(Folder::open_read_only(path.as_ref())?)))
    }

    /// The ledger on another [`Disk`].
    #[must_use]
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// The entries, oldest first.
    pub fn entries(&self, filter: &Filter) -> Result<LedgerEntries, OpenError> {
        Ok(LedgerEntries {
            log: LogReader::new(Arc::clone(&self.disk))?,
            keys: HashMap::new(),
            holds: HashMap::new(),
            ready: VecDeque::new(),
            number: 0,
            last: Timestamp::ZERO,
            filter: filter.clone(),
        })
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
        self.key.push((attribute.into(), logged_value(value).into()));
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
        let is_in_domain = self.domain.as_ref().is_none_or(|domain| *domain == entry.domain);
        if !self.is_in_time(entry.at) || !is_in_domain {
            return None;
        }
        if self.rule.is_none() && self.key.is_empty() {
            return Some(entry);
        }
        let is_edit_of_rule = match &entry.what {
            EntryKind::Edited(change) => {
                self.key.is_empty() && change.rule().map(RuleId::name) == self.rule.as_deref()
            }
            _ => false,
        };
        entry.bookings.retain(|booked| self.is_about(&booked.key));
        (is_edit_of_rule || !entry.bookings.is_empty()).then_some(entry)
    }

    pub(super) fn is_in_time(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }

    /// Whether bookings of a key are among what it matches, in entries of that key alone.
    pub(super) fn is_of(&self, key: &KeyName) -> bool {
        self.domain.as_ref().is_none_or(|domain| **domain == *key.rule.domain())
            && self.is_about(key)
    }

    fn is_about(&self, key: &KeyName) -> bool {
        let has = |(attribute, value): &(Box<str>, Box<str>)| {
            key.parts.iter().any(|(name, known)| name == attribute && known.as_ref() == Some(value))
        };
        self.rule.as_ref().is_none_or(|rule| **rule == *key.rule.name()) && self.key.iter().all(has)
    }
}

/// An iterator over entries. After an error it continues with the next segment that can be read;
/// entries and names of keys are missing then.
#[derive(Debug)]
pub struct LedgerEntries {
    log: LogReader,
    keys: HashMap<u64, Arc<KeyName>>,
    /// The domains of open reservations.
    holds: HashMap<HoldId, Box<str>>,
    ready: VecDeque<LedgerEntry>,
    number: u64,
    /// The time of the last entry.
    last: Timestamp,
    filter: Filter,
}

impl Iterator for LedgerEntries {
    type Item = Result<LedgerEntry, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
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
        let mut records = Vec::new();
        let is_read =
            self.log.read_batch(|batch| Record::each(batch, |record| records.push(record)));
        records.into_iter().for_each(|record| self.read_record(record));
        Ok(is_read?)
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
            | Record::Keys { .. }
            | Record::States { .. } => {}
        }
    }

    fn read_actions(&mut self, acts: ActionsRecord) {
        let of_state = acts.states.first().and_then(|(key, _)| self.keys.get(key)).cloned();
        let mut items = acts.holds.iter().filter_map(|(_, hold)| hold.as_ref()?.items.first());
        let of_items = items
            .find_map(|item| self.keys.get(&item.hash))
            .map(|key| Box::from(key.rule.domain()));
        for KeyedAction { kind: what, at, hold, note, author, bookings } in acts.acts {
            let unknown = || Arc::new(KeyName::default());
            let bookings: Vec<Booking> = bookings
                .into_iter()
                .map(|(key, booking, units)| Booking {
                    key: self.keys.get(&key).cloned().unwrap_or_else(unknown),
                    booking,
                    units,
                })
                .collect();
            let of_hold = hold.and_then(|hold| self.holds.get(&hold).cloned());
            let named = bookings.first().map(|booked| &booked.key).or(of_state.as_ref());
            let domain = of_hold
                .or_else(|| named.map(|key| key.rule.domain().into()))
                .or_else(|| of_items.clone())
                .unwrap_or_default();
            if let Some(hold) = hold {
                match what.ends_hold() {
                    true => self.holds.remove(&hold),
                    false => self.holds.insert(hold, domain.clone()),
                };
            }
            let (number, note) = (0, note.filter(|note| !is_erased(note)));
            let (note, cause) = match author {
                Author::Host => (note, None),
                Author::Engine => (None, note),
            };
            self.enqueue(LedgerEntry { number, at, what, domain, hold, note, cause, bookings });
        }
    }

    fn push(&mut self, at: Timestamp, what: EntryKind, domain: Box<str>, note: Option<Box<str>>) {
        let (hold, cause, bookings, number) = (None, None, Vec::new(), 0);
        self.enqueue(LedgerEntry { number, at, what, domain, hold, note, cause, bookings });
    }

    fn enqueue(&mut self, entry: LedgerEntry) {
        (self.number, self.last) = (self.number + 1, entry.at);
        self.ready.extend(self.filter.apply(LedgerEntry { number: self.number, ..entry }));
    }
}

/// Whether only the length of a note is left.
fn is_erased(note: &str) -> bool {
    !note.is_empty() && note.bytes().all(|byte| byte == 0)
}
