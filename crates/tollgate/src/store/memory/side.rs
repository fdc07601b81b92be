//! What does not fit into slots: units on hold, names of requests, and counters that keys share.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::Timestamp;

use super::shared::Shared;
use crate::store::{Decided, HoldId, Named};
use crate::terms::{Decisions, INLINE, State};

#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Units on hold, by the name of the state.
    held: HashMap<u64, u64>,
    holds: HashMap<HoldId, Hold>,
    /// When open holds end.
    due: BTreeSet<(Timestamp, HoldId)>,
    settled: VecDeque<(Timestamp, HoldId)>,
    names: HashMap<[u64; 2], Remembered>,
    names_by_age: VecDeque<(Timestamp, [u64; 2])>,
    last_fence: u64,
    pub(crate) shared: Shared,
}

/// Units that were set aside together.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) items: SmallVec<[Item; INLINE]>,
    /// How long it was to last.
    pub(crate) length: Duration,
    pub(crate) expires: Timestamp,
    pub(crate) fence: u64,
    pub(crate) is_open: bool,
    /// The name of the request that it was made by.
    pub(crate) name: Option<[u64; 2]>,
}

/// A part of a hold.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) tag: u32,
    pub(crate) hash: u64,
    /// What is on hold, or what was charged once the hold is settled.
    pub(crate) units: u64,
    /// Whether the rule takes what the request costs, and not a price of its own.
    pub(crate) is_by_request: bool,
    /// The state that the charge has left behind, which tells how much of it still counts.
    pub(crate) charged: Option<Box<(u32, State)>>,
}

/// The name belongs to another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherBody;

#[derive(Clone, Debug)]
struct Remembered {
    at: Timestamp,
    body: u64,
    answer: Answered,
}

/// An answer, with the names of the states that it is about, in order.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) decided: Decided,
    pub(crate) decisions: Decisions,
    pub(crate) hashes: SmallVec<[u64; INLINE]>,
}

impl Side {
    pub(crate) fn held(&self, hash: u64) -> u64 {
        self.held.get(&hash).copied().unwrap_or(0)
    }

    pub(crate) fn set_held(&mut self, hash: u64, units: u64) {
        if units == 0 {
            self.held.remove(&hash);
        } else {
            self.held.insert(hash, units);
        }
    }

    /// The limits that holds belong to.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        self.holds.values().flat_map(|hold| hold.items.iter().map(|item| item.tag))
    }

    /// All holds, open or settled.
    pub(crate) fn holds(&self) -> impl Iterator<Item = (&HoldId, &Hold)> {
        self.holds.iter()
    }

    /// Knows a hold from an earlier life.
    pub(crate) fn restore_hold(&mut self, id: HoldId, hold: Hold) {
        self.insert_hold(id, hold);
    }

    pub(crate) fn last_fence(&self) -> u64 {
        self.last_fence
    }

    pub(crate) fn set_last_fence(&mut self, fence: u64) {
        self.last_fence = fence;
    }

    /// How many holds are open.
    pub(crate) fn open_holds(&self) -> usize {
        self.holds.len() - self.settled.len()
    }

    /// A number larger than all before it, also those of earlier lives if the clock is right.
    pub(crate) fn next_fence(&mut self, now: Timestamp) -> u64 {
        self.last_fence = (self.last_fence + 1).max(now.as_nanos() / 1_000);
        self.last_fence
    }

    pub(crate) fn insert_hold(&mut self, id: HoldId, hold: Hold) {
        self.due.insert((hold.expires, id));
        self.holds.insert(id, hold);
    }

    pub(crate) fn hold(&self, id: HoldId) -> Option<&Hold> {
        self.holds.get(&id)
    }

    pub(crate) fn renew(&mut self, id: HoldId, expires: Timestamp) {
        if let Some(hold) = self.holds.get_mut(&id) {
            self.due.remove(&(hold.expires, id));
            self.due.insert((expires, id));
            hold.expires = expires;
        }
    }

    /// Keeps a settled hold for a while, for refunds.
    pub(crate) fn settle(&mut self, id: HoldId, items: SmallVec<[Item; INLINE]>, now: Timestamp) {
        if let Some(hold) = self.holds.get_mut(&id) {
            if hold.is_open {
                self.due.remove(&(hold.expires, id));
                self.settled.push_back((now, id));
            }
            (hold.items, hold.is_open) = (items, false);
        }
        let oldest = now.saturating_sub(REMEMBERED_FOR);
        while let Some(&(at, id)) = self.settled.front()
            && (at < oldest || self.settled.len() > MOST_REMEMBERED)
        {
            self.settled.pop_front();
            self.holds.remove(&id);
        }
    }

    /// Forgets an open hold that has come to nothing, and the name of its request: should that come
    /// again, it is a new one.
    pub(crate) fn drop_hold(&mut self, id: HoldId) -> Option<Hold> {
        let hold = self.holds.remove(&id)?;
        self.due.remove(&(hold.expires, id));
        if let Some(name) = hold.name {
            self.names.remove(&name);
        }
        Some(hold)
    }

    /// A hold whose time has come, taken out.
    pub(crate) fn next_expired(&mut self, now: Timestamp) -> Option<Hold> {
        let (_, id) = *self.due.first().filter(|(expires, _)| *expires <= now)?;
        self.drop_hold(id)
    }

    /// When the next hold ends, if nothing happens to it before.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(expires, _)| *expires)
    }

    /// What was answered under this name; an error if the request was another one.
    pub(crate) fn recall(
        &mut self,
        named: Named,
        now: Timestamp,
    ) -> Result<Option<&Answered>, OtherBody> {
        let oldest = now.saturating_sub(REMEMBERED_FOR);
        while let Some(&(at, name)) = self.names_by_age.front()
            && at < oldest
        {
            self.names_by_age.pop_front();
            self.forget_name(name, at);
        }
        match self.names.get(&named.name) {
            None => Ok(None),
            Some(known) if known.body == named.body => Ok(Some(&known.answer)),
            Some(_) => Err(OtherBody),
        }
    }

    /// Remembers what was answered under a name. Only charges are, never denials.
    pub(crate) fn remember(&mut self, named: Named, answer: Answered, now: Timestamp) {
        if self.names_by_age.len() >= MOST_REMEMBERED
            && let Some((at, oldest)) = self.names_by_age.pop_front()
        {
            self.forget_name(oldest, at);
        }
        self.names_by_age.push_back((now, named.name));
        self.names.insert(named.name, Remembered { at: now, body: named.body, answer });
    }

    /// Forgets a name that was given at a time, unless it was given again since.
    fn forget_name(&mut self, name: [u64; 2], at: Timestamp) {
        if self.names.get(&name).is_some_and(|known| known.at == at) {
            self.names.remove(&name);
        }
    }
}

/// How long names and settled holds are remembered.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// How many names, and how many settled holds, are remembered at most.
const MOST_REMEMBERED: usize = 1 << 17;
