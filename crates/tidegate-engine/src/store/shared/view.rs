//! What a transaction has read, decoded.

use std::sync::{Arc, RwLock};

use smallvec::SmallVec;

use super::cell::Room;
use super::control::Control;
use super::hold::{hold_from_bytes, name_from_bytes};
use super::records::{Changes, Flow, Kind, RecordKey, Records};
use super::state::StateRecord;
use crate::any_limit::{AnyLimit, AnyState};
use crate::decision::INLINE;
use crate::history::{History, StoredState};
use crate::periods::Times;
use crate::plan::IdempotencyKey;
use crate::store::memory::{CachedResponse, CachedResult, Hold};
use crate::store::record::Malformed;
use crate::store::{HoldId, Outage};
use crate::transition::KeyState;
use tidegate_table::locks::{read, write};

/// Why a transaction ends, or goes on, without a result.
#[derive(Clone, Debug)]
pub(super) enum Stop<E> {
    /// It needs these records.
    Read(Vec<RecordKey>),
    /// It has this result, and changes nothing.
    With(E),
}

/// The idempotency key belongs to another request.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherBody;

/// The control that an engine has seen last.
#[derive(Clone, Debug)]
pub(super) struct Seen(Arc<RwLock<Arc<Control>>>);

impl Seen {
    pub(super) fn new(control: Control) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(control))))
    }

    pub(super) fn get(&self) -> Arc<Control> {
        Arc::clone(&read(&self.0))
    }

    pub(super) fn set(&self, control: &Arc<Control>) {
        *write(&self.0) = Arc::clone(control);
    }
}

/// The records of a transaction, as of the time of the operation.
#[derive(Debug)]
pub(super) struct RecordView<'r> {
    pub(super) records: &'r Records,
    pub(super) control: Arc<Control>,
    pub(super) times: Times,
    pub(super) room: Room,
}

impl<'r> RecordView<'r> {
    pub(super) fn history(&self) -> &History {
        &self.control.history
    }

    /// A record, if it was read.
    fn bytes<E>(&self, kind: Kind) -> Result<Option<&'r Arc<[u8]>>, Stop<E>> {
        self.records.get(&RecordKey(kind)).ok_or_else(|| Stop::Read(vec![RecordKey(kind)]))
    }

    /// The records of keys, with what is due released.
    pub(super) fn states<E: From<Outage>>(
        &self,
        hashes: impl Iterator<Item = u64> + Clone,
    ) -> Result<SmallVec<[StateRecord; INLINE]>, Stop<E>> {
        let is_missing = |key: &RecordKey| self.records.get(key).is_none();
        let missing: Vec<RecordKey> =
            hashes.clone().map(|hash| RecordKey(Kind::State(hash))).filter(is_missing).collect();
        if !missing.is_empty() {
            return Err(Stop::Read(missing));
        }
        hashes.map(|hash| self.state(hash)).collect()
    }

    fn state<E: From<Outage>>(&self, hash: u64) -> Result<StateRecord, Stop<E>> {
        let Some(bytes) = self.bytes(Kind::State(hash))? else { return Ok(StateRecord::default()) };
        let mut record =
            StateRecord::from_bytes(bytes).map_err(|it| corrupt(it, Kind::State(hash)))?;
        record.expire(self.history(), self.times);
        Ok(record)
    }

    /// The record of a hold, whether or not the hold has expired.
    pub(super) fn hold<E: From<Outage>>(&self, id: HoldId) -> Result<Option<Hold>, Stop<E>> {
        let Some(bytes) = self.bytes(Kind::Hold(id.0))? else { return Ok(None) };
        hold_from_bytes(bytes).map(Some).map_err(|it| corrupt(it, Kind::Hold(id.0)))
    }

    /// The states that have units of an open hold; `None` if it is over.
    ///
    /// Its entries in them alone say whether it lives: another engine, whose clock is ahead or which
    /// was faster, may have released it, and given its units to another client.
    pub(super) fn states_of_open<E: From<Outage>>(
        &self,
        id: HoldId,
        hold: &Hold,
    ) -> Result<Option<SmallVec<[StateRecord; INLINE]>>, Stop<E>> {
        let states = self.states(hold.items.iter().map(|item| item.hash))?;
        let has_entry = |state: &StateRecord| state.held.iter().any(|entry| entry.id == id);
        // Without items no rule limits it.
        let is_live = match hold.items.is_empty() {
            true => self.times.now < hold.expires,
            false => states.iter().all(has_entry),
        };
        Ok(is_live.then_some(states))
    }

    /// Whether a hold was committed, or is open and lives.
    fn still_counts<E: From<Outage>>(&self, id: HoldId) -> Result<bool, Stop<E>> {
        let Some(hold) = self.hold(id)? else { return Ok(false) };
        Ok(hold.end.is_some() || self.states_of_open(id, &hold)?.is_some())
    }

    /// Whether an idempotency key is that of a hold's request, and not of a later one.
    pub(super) fn is_name_of<E: From<Outage>>(
        &self,
        name: [u64; 2],
        id: HoldId,
    ) -> Result<bool, Stop<E>> {
        let kind = Kind::Idempotency(name);
        let Some(bytes) = self.bytes(kind)? else { return Ok(false) };
        let cached = name_from_bytes(bytes).map_err(|it| corrupt(it, kind))?;
        Ok(cached.response.is_of(id))
    }

    /// What a request got before, under the same idempotency key.
    pub(super) fn recall<E: From<Outage>>(
        &self,
        named: IdempotencyKey,
    ) -> Result<Result<Option<CachedResponse>, OtherBody>, Stop<E>> {
        let kind = Kind::Idempotency(named.name);
        let Some(bytes) = self.bytes(kind)? else { return Ok(Ok(None)) };
        let CachedResult { at, body, response, .. } =
            name_from_bytes(bytes).map_err(|it| corrupt(it, kind))?;
        let is_old = at < self.times.now.saturating_sub(super::REMEMBERED_FOR);
        // If its hold has expired, the request charged nothing, and is a new one.
        let is_void = match &response {
            CachedResponse::Charged { hold: Some(hold), .. }
                if hold.id.expiry_of_unlimited().is_none() =>
            {
                !self.still_counts(hold.id)?
            }
            _ => false,
        };
        Ok(match () {
            () if is_old || is_void => Ok(None),
            () if body == named.body => Ok(Some(response)),
            () => Err(OtherBody),
        })
    }
}

impl StateRecord {
    /// The state as a limit finds it. Of slots, what is on hold is all there is.
    pub(super) fn key_state(&self, limit: Option<&AnyLimit>) -> KeyState {
        self.key_state_behind(0, limit)
    }

    /// The state as a limit finds it, where so many wait for its slots that come first.
    pub(super) fn key_state_behind(&self, ahead: usize, limit: Option<&AnyLimit>) -> KeyState {
        match limit {
            Some(AnyLimit::Slots(_)) => {
                let held: u64 = self.held.iter().map(|entry| entry.item.units).sum();
                let held = held.saturating_add(ahead as u64);
                KeyState::new(Some(StoredState { tag: 0, state: AnyState::Slots { held } }))
            }
            _ => KeyState::new(self.stored),
        }
    }

    /// Takes over what has become of the state; true if it has changed. Of slots, only what is on
    /// hold counts, which is not part of it.
    pub(super) fn take(&mut self, key: &KeyState, limit: Option<&AnyLimit>) -> bool {
        let is_changed = key.is_changed && !matches!(limit, Some(AnyLimit::Slots(_)));
        if is_changed {
            self.stored = key.stored;
        }
        is_changed
    }
}

pub(super) fn corrupt<E: From<Outage>>(Malformed: Malformed, kind: Kind) -> Stop<E> {
    Stop::With(Outage::Corrupt(RecordKey(kind)).into())
}

/// The control of a transaction; `None` if there is none.
pub(super) fn control_of<E: From<Outage>>(
    records: &Records,
    seen: &Seen,
) -> Result<Option<Arc<Control>>, Stop<E>> {
    Control::read(records, &seen.get()).map_err(|it| corrupt(it, Kind::Control))
}

/// How a transaction goes on.
pub(super) fn flow<T, E>(result: Result<(Changes, T), Stop<E>>) -> Flow<Result<T, E>> {
    match result {
        Ok((changes, result)) => Flow::End(changes, Ok(result)),
        Err(Stop::Read(keys)) => Flow::Read(keys),
        Err(Stop::With(error)) => Flow::End(Changes::NONE, Err(error)),
    }
}
