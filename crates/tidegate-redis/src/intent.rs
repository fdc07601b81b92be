//! Commits over keys that no server holds all of.
//!
//! A group of keys is committed by laying an *intent* on each of them: a value with the stamp of the
//! group, what was there before, what will be there, and all keys of the group. It replaces exactly
//! the value that was decided by. When all of them are laid, the group is committed. The first key
//! of the group is its primary: it is marked as committed before the first intent is replaced
//! by its record, and is the last one to be replaced. The rules for all others are in
//! [`judge`]; docs/internals/shared-store.md has the argument.

use std::sync::Arc;

use tidegate_engine::shared::RecordKey;

use crate::frame::{self, Cell, Foreign, Head};

/// What is at a key of a group until the group is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) phase: Phase,
    /// The stamp of the group.
    pub(crate) stamp: u64,
    /// When the server removes it, in milliseconds since 1970; 0 if never. All intents of a group
    /// expire at once, and no earlier than any record that was or will be there.
    pub(crate) expires_ms: u64,
    /// All keys of the group; the first is its primary.
    pub(crate) members: Arc<[Member]>,
    /// What was there.
    pub(crate) before: Cell,
    pub(crate) after: After,
}

/// How far a group is, as far as this key shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Its writer may still withdraw it.
    Laid,
    /// Another writer has seen it, and its own one cannot withdraw it any more.
    Pinned,
    /// The group is committed; only the primary is marked so.
    Committed,
}

/// A key of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) key: RecordKey,
    /// The stamp of the record that the intent replaces; `None` if there is none.
    pub(crate) expected: Option<u64>,
}

/// What is at a key when its group is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The key was only read.
    Unchanged,
    /// Another record; `None`: it is removed.
    Changed { expires_ms: u64, record: Option<Arc<[u8]>> },
}

/// A value of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Cell(Cell),
    Intent(Box<Intent>),
}

/// What a key of a group has, as far as it concerns the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Held {
    /// The intent of the group.
    Intent(Phase),
    /// The record that the group has put there.
    Done,
    /// The value that the intent may still replace.
    Open,
    /// Another value. No value comes back, so the intent can never be laid there (again).
    Closed,
}

/// What is to be done about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is committed: the new records count.
    Committed,
    /// All intents are laid: it is committed once all are pinned and the primary is marked.
    Laid,
    /// It can never be committed: what was there before counts.
    Aborted,
    /// Its writer may be at work, or gone: this key can be closed to it.
    Undecided { open: usize },
}

/// Judges a group by what its keys have. The primary, which is the first, has to be read last.
///
/// - A mark or a record of the group is only there after it was committed.
/// - A closed key, without a mark at the primary later on: the intent was never laid there, or it was
///   withdrawn; or all intents are replaced already, and no write for this judgement takes effect.
/// - An open key may get the intent at any time. It has to be closed first.
pub(crate) fn judge(members: &[Held]) -> Judgement {
    let is_committed = |held: &Held| matches!(held, Held::Done | Held::Intent(Phase::Committed));
    if members.iter().any(is_committed) {
        return Judgement::Committed;
    }
    if members.contains(&Held::Closed) {
        return Judgement::Aborted;
    }
    match members.iter().position(|held| *held == Held::Open) {
        Some(open) => Judgement::Undecided { open },
        None => Judgement::Laid,
    }
}

impl Found {
    /// Reads a value of the server.
    pub(crate) fn read(value: &[u8]) -> Result<Self, Foreign> {
        match value.first_chunk::<4>() {
            Some(magic) if *magic == frame::RECORD => Cell::read(value).map(Self::Cell),
            _ => Intent::read(value).map(|intent| Self::Intent(Box::new(intent))),
        }
    }

    /// What scripts compare.
    pub(crate) fn head(&self) -> Head {
        match self {
            Self::Cell(cell) => cell.head(),
            Self::Intent(intent) => intent.head(),
        }
    }

    /// What this value of a member means for a group.
    pub(crate) fn held(&self, stamp: u64, member: &Member) -> Held {
        match self {
            Self::Intent(intent) if intent.stamp == stamp => Held::Intent(intent.phase),
            Self::Intent(_) => Held::Closed,
            Self::Cell(cell) if cell.stamp == Some(stamp) => Held::Done,
            Self::Cell(cell) if cell.stamp == member.expected => Held::Open,
            Self::Cell(_) => Held::Closed,
        }
    }
}

impl Intent {
    /// The record at the key when the group is committed.
    pub(crate) fn committed(&self, at_least_ms: u64) -> Cell {
        let (expires_ms, record) = match &self.after {
            After::Unchanged => (self.before.expires_ms, self.before.record.clone()),
            After::Changed { expires_ms, record } => (*expires_ms, record.clone()),
        };
        let expires_ms = kept_until(expires_ms, record.is_none(), at_least_ms);
        Cell { stamp: Some(self.stamp), expires_ms, record }
    }

    /// What was there before, with a stamp of its own: no value comes back.
    pub(crate) fn withdrawn(&self, stamp: u64, at_least_ms: u64) -> Cell {
        self.before.renewed(stamp, at_least_ms)
    }

    pub(crate) fn with_phase(&self, phase: Phase) -> Self {
        Self { phase, ..self.clone() }
    }

    /// What scripts compare.
    pub(crate) fn head(&self) -> Head {
        frame::head(self.phase.magic(), self.stamp)
    }

    /// The value on the server.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut value = self.head().to_vec();
        value.extend_from_slice(&self.expires_ms.to_le_bytes());
        let count = u16::try_from(self.members.len()).unwrap_or(u16::MAX);
        value.extend_from_slice(&count.to_le_bytes());
        for Member { key, expected } in self.members.iter() {
            let key = key.to_string();
            value.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
            value.extend_from_slice(key.as_bytes());
            put_stamp(&mut value, *expected);
        }
        put_stamp(&mut value, self.before.stamp);
        value.extend_from_slice(&self.before.expires_ms.to_le_bytes());
        let record = self.before.record.as_deref().unwrap_or_default();
        let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
        value.extend_from_slice(&length.to_le_bytes());
        value.extend_from_slice(record);
        match &self.after {
            After::Unchanged => value.push(0),
            After::Changed { expires_ms, record } => {
                value.push(1);
                value.extend_from_slice(&expires_ms.to_le_bytes());
                value.extend_from_slice(record.as_deref().unwrap_or_default());
            }
        }
        value
    }

    fn read(value: &[u8]) -> Result<Self, Foreign> {
        let mut rest = value;
        let phase = Phase::read(take(&mut rest)?)?;
        let stamp = u64::from_le_bytes(take(&mut rest)?);
        let expires_ms = u64::from_le_bytes(take(&mut rest)?);
        let count = u16::from_le_bytes(take(&mut rest)?);
        let mut members = Vec::new();
        for _ in 0..count {
            let [length] = take(&mut rest)?;
            let key = std::str::from_utf8(take_slice(&mut rest, length.into())?);
            let key = key.ok().and_then(RecordKey::from_text).ok_or(Foreign)?;
            members.push(Member { key, expected: take_stamp(&mut rest)? });
        }
        let before_stamp = take_stamp(&mut rest)?;
        let before_expires_ms = u64::from_le_bytes(take(&mut rest)?);
        let length = u32::from_le_bytes(take(&mut rest)?);
        let length = usize::try_from(length).map_err(|_| Foreign)?;
        let record = not_empty(take_slice(&mut rest, length)?);
        let before = Cell { stamp: before_stamp, expires_ms: before_expires_ms, record };
        let after = match take(&mut rest)? {
            [0] if rest.is_empty() => After::Unchanged,
            [1] => {
                let expires_ms = u64::from_le_bytes(take(&mut rest)?);
                After::Changed { expires_ms, record: not_empty(rest) }
            }
            _ => return Err(Foreign),
        };
        if members.is_empty() {
            return Err(Foreign);
        }
        Ok(Self { phase, stamp, expires_ms, members: members.into(), before, after })
    }
}

impl Cell {
    /// The same record with another stamp.
    pub(crate) fn renewed(&self, stamp: u64, at_least_ms: u64) -> Self {
        let is_forever = self.record.is_some() && self.expires_ms == 0;
        let expires_ms = if is_forever { 0 } else { self.expires_ms.max(at_least_ms) };
        Self { stamp: Some(stamp), expires_ms, record: self.record.clone() }
    }
}

impl Phase {
    const fn magic(self) -> [u8; 4] {
        match self {
            Self::Laid => *b"tgi1",
            Self::Pinned => *b"tgp1",
            Self::Committed => *b"tgc1",
        }
    }

    fn read(magic: [u8; 4]) -> Result<Self, Foreign> {
        let all = [Self::Laid, Self::Pinned, Self::Committed];
        all.into_iter().find(|phase| phase.magic() == magic).ok_or(Foreign)
    }
}

/// A removed record is kept for a while, and none is written that has expired already.
fn kept_until(expires_ms: u64, is_removed: bool, at_least_ms: u64) -> u64 {
    if expires_ms == 0 && !is_removed { 0 } else { expires_ms.max(at_least_ms) }
}

fn put_stamp(value: &mut Vec<u8>, stamp: Option<u64>) {
    value.push(u8::from(stamp.is_some()));
    value.extend_from_slice(&stamp.unwrap_or_default().to_le_bytes());
}

fn take_stamp(rest: &mut &[u8]) -> Result<Option<u64>, Foreign> {
    let [is_there] = take(rest)?;
    let stamp = u64::from_le_bytes(take(rest)?);
    Ok((is_there == 1).then_some(stamp))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Foreign> {
    let (first, others) = rest.split_first_chunk::<N>().ok_or(Foreign)?;
    *rest = others;
    Ok(*first)
}

fn take_slice<'v>(rest: &mut &'v [u8], length: usize) -> Result<&'v [u8], Foreign> {
    let (first, others) = rest.split_at_checked(length).ok_or(Foreign)?;
    *rest = others;
    Ok(first)
}

fn not_empty(record: &[u8]) -> Option<Arc<[u8]>> {
    (!record.is_empty()).then(|| Arc::from(record))
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
