//! Totals of a ledger: sums over bookings, in memory for keys or rules and not for entries.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_log::LogReader;

use super::ledger::{Filter, Ledger};
use super::options::OpenError;
use crate::mixing::Mixing;
use crate::plan::KeyName;
use crate::store::actions::Transfer;
use crate::store::record::{KeyRecord, Record};

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

/// What totals are summed up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalsBy {
    /// One sum for each rule, as a key without attributes.
    Rule,
    /// One sum for each key.
    Key,
}

/// Totals of everything that can be read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadableTotals {
    /// The totals, in the order in which keys were first seen. A booking of a key whose name cannot
    /// be read is under an empty one.
    pub totals: Vec<(KeyName, Totals)>,
    /// What cannot be read: without it the totals are incomplete.
    pub unreadable: Vec<OpenError>,
}

impl Ledger {
    /// The totals of the bookings.
    pub fn totals(&self, filter: &Filter) -> Result<Totals, OpenError> {
        let totals = self.readable_totals(filter, TotalsBy::Rule)?.whole()?;
        Ok(totals.iter().fold(Totals::default(), |sum, (_, totals)| sum.plus(totals)))
    }

    /// The totals of each key, in the order in which keys were first seen.
    pub fn totals_by_key(&self, filter: &Filter) -> Result<Vec<(KeyName, Totals)>, OpenError> {
        self.readable_totals(filter, TotalsBy::Key)?.whole()
    }

    /// The totals of everything that can be read, and what cannot be.
    pub fn readable_totals(
        &self,
        filter: &Filter,
        by: TotalsBy,
    ) -> Result<ReadableTotals, OpenError> {
        let mut log = LogReader::new(Arc::clone(&self.disk))?;
        let (mut summing, mut unreadable) = (Summing::new(filter, by), Vec::new());
        loop {
            match log.read_batch(|batch| Record::each(batch, |record| summing.read(record))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => unreadable.push(error.into()),
            }
        }
        let used = summing.groups.into_iter().filter(|group| group.is_used);
        let totals = used.map(|group| (group.name, group.sums.totals())).collect();
        Ok(ReadableTotals { totals, unreadable })
    }
}

impl ReadableTotals {
    /// The totals, unless something is missing.
    fn whole(self) -> Result<Vec<(KeyName, Totals)>, OpenError> {
        self.unreadable.into_iter().next().map_or(Ok(self.totals), Err)
    }
}

/// Sums up bookings by rule or key.
struct Summing<'a> {
    filter: &'a Filter,
    by: TotalsBy,
    groups: Vec<Group>,
    /// The groups of keys by number; `None` if the filter does not match them.
    keys: HashMap<u64, Option<u32>, Mixing>,
    /// The groups of keys by hash: a key may get another number.
    by_hash: HashMap<u64, u32, Mixing>,
    /// The groups of rules, and of keys that were erased.
    by_name: HashMap<KeyName, u32>,
}

/// The bookings of a key or rule.
struct Group {
    name: KeyName,
    sums: Sums,
    is_used: bool,
}

impl<'a> Summing<'a> {
    fn new(filter: &'a Filter, by: TotalsBy) -> Self {
        let (keys, by_hash, by_name) = (HashMap::default(), HashMap::default(), HashMap::new());
        Self { filter, by, groups: Vec::new(), keys, by_hash, by_name }
    }

    fn read(&mut self, record: Record) {
        match record {
            Record::Key(key) => {
                let number = key.number;
                let group = self.filter.is_of(&key.name).then(|| self.group(key));
                self.keys.insert(number, group);
            }
            Record::Acts(acts) => {
                let acts = acts.acts.into_iter().filter(|act| self.filter.is_in_time(act.at));
                for (key, transfer, units) in acts.flat_map(|act| act.bookings) {
                    self.add(key, transfer, units);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, key: u64, transfer: Transfer, units: u64) {
        let group = match self.keys.get(&key) {
            Some(group) => *group,
            None => {
                let name = KeyName::default();
                self.filter.is_of(&name).then(|| self.group_of_name(name))
            }
        };
        if let Some(group) = group.and_then(|group| self.groups.get_mut(group as usize)) {
            group.is_used = true;
            group.sums.add(transfer, units);
        }
    }

    fn group(&mut self, key: KeyRecord) -> u32 {
        let mut name = key.name;
        if self.by == TotalsBy::Rule {
            name.parts = Vec::new();
        }
        if self.by == TotalsBy::Rule || key.is_erased {
            return self.group_of_name(name);
        }
        if let Some(known) = self.by_hash.get(&key.hash) {
            return *known;
        }
        let group = self.add_group(name);
        self.by_hash.insert(key.hash, group);
        group
    }

    fn group_of_name(&mut self, name: KeyName) -> u32 {
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let group = self.add_group(name.clone());
        self.by_name.insert(name, group);
        group
    }

    fn add_group(&mut self, name: KeyName) -> u32 {
        self.groups.push(Group { name, sums: Sums::default(), is_used: false });
        u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
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
    fn add(&mut self, transfer: Transfer, units: u64) {
        let sum = match transfer {
            Transfer::Charged => &mut self.charged,
            Transfer::Held => &mut self.held,
            Transfer::Committed => &mut self.committed,
            Transfer::Cancelled => &mut self.cancelled,
            Transfer::Expired => &mut self.expired,
            Transfer::Refunded => &mut self.refunded,
            Transfer::Forgiven => return,
        };
        *sum = sum.saturating_add(units);
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
