//! Records of the log: one for everything that happened at once. Long, because every byte is
//! encoded here.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{BucketState, CooldownState, Decision, QuotaState, Timestamp, WindowState};
use tidegate_policy::policy::{Durability, RuleId};
use tidegate_table::table::keyed::{pack_sliding, unpack_sliding};
use tidegate_table::table::{Narrow, Tagged, WIDE_WORDS};

use crate::any_limit::{AnyLimit, AnyState};
use crate::edits::{Change, Changed};
use crate::history::StoredState;
use crate::plan::KeyName;
use crate::store::memory::{
    ActionKind, Author, CachedResponse, CachedResult, EndKind, Hold, HoldEnd, JournalTransfer,
    StateImage,
};
#[cfg(feature = "durable")]
use crate::store::memory::{JournalBooking, JournalEntry};
use crate::store::{HoldId, NewHold};
use crate::transition::HoldItem;
pub(in crate::store) use bytes::{ByteReader, ByteWriter, Malformed};
pub(in crate::store) use rule::RuleImage;

mod bytes;
mod overlay;
mod rule;
pub(in crate::store) mod skim;

/// A record.
#[derive(Clone, Debug)]
pub(in crate::store) enum Record {
    /// The seed of the key hash.
    Seed(Vec<u128>),
    /// A number for a key.
    Key(KeyRecord),
    /// The limits of a rule were changed.
    Rule(Box<RuleImage>),
    /// Actions that happened at once, and the resulting states.
    Acts(Box<ActionsRecord>),
    /// A round of a domain was closed.
    Round(RoundRecord),
    /// The policy was edited.
    Edit(Box<EditRecord>),
    /// A note of the host.
    Note { at: Timestamp, domain: Box<str>, text: Box<str> },
    /// Keys whose names were erased.
    Erased { at: Timestamp, keys: Vec<u64> },
    /// The latest time of the clock, and the latest time at which a slot was reused.
    Clock { now: Timestamp, reuse: [Timestamp; 2], fence: u64 },
    /// A snapshot is complete, with this many records.
    End { records: u64 },
    /// Numbers and hashes of a rule's keys, in a snapshot: their names are in the log.
    Keys { domain: Box<str>, rule: Box<str>, keys: Vec<(u64, u64)> },
    /// Numbers, hashes and states of a rule's keys, in a snapshot.
    States { domain: Box<str>, rule: Box<str>, states: Vec<(u64, u64, StateImage)> },
    /// Bytes that a repair has given up, as many as the record has after its length.
    Lost { len: u64 },
}

/// The name of a numbered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct KeyRecord {
    pub(in crate::store) number: u64,
    pub(in crate::store) hash: u64,
    pub(in crate::store) name: KeyName,
    /// Whether only the length of the name is left.
    pub(in crate::store) is_erased: bool,
}

/// Actions that happened at once, and the resulting states.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct ActionsRecord {
    pub(in crate::store) acts: Vec<KeyedAction>,
    pub(in crate::store) states: Vec<(u64, Option<StateImage>)>,
    pub(in crate::store) holds: Vec<(HoldId, Option<Hold>)>,
    pub(in crate::store) names: Vec<([u64; 2], Option<CachedResult>)>,
    pub(in crate::store) fence: u64,
}

/// An action, with numbers for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct KeyedAction {
    pub(in crate::store) kind: ActionKind,
    pub(in crate::store) at: Timestamp,
    pub(in crate::store) hold: Option<HoldId>,
    pub(in crate::store) note: Option<Box<str>>,
    pub(in crate::store) author: Author,
    /// Key, transfer, units.
    pub(in crate::store) bookings: Vec<(u64, JournalTransfer, u64)>,
}

/// A round that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct RoundRecord {
    pub(in crate::store) at: Timestamp,
    pub(in crate::store) domain: Box<str>,
    /// How many were closed by then.
    pub(in crate::store) closed: u64,
    pub(in crate::store) note: Option<Box<str>>,
}

/// An edit of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct EditRecord {
    /// How many edits there were by then, with this one.
    pub(in crate::store) revision: u64,
    /// All edits in force from here on, as TOML.
    pub(in crate::store) overlay: OverlayEdit,
    /// What has changed: number, time of day, actor, what, before, after.
    pub(in crate::store) changes: Vec<EditedItem>,
}

/// The edits in force, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum OverlayEdit {
    /// All of it.
    Whole(Box<str>),
    /// What is new between a beginning and an end of the text before, of so many bytes each.
    Part { start: u64, end: u64, text: Box<str> },
}

/// One change of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct EditedItem {
    pub(in crate::store) number: u64,
    pub(in crate::store) at: Timestamp,
    pub(in crate::store) actor: Box<str>,
    pub(in crate::store) what: EditedKind,
    pub(in crate::store) before: Option<Box<str>>,
    pub(in crate::store) after: Option<Box<str>>,
}

/// What a change was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum EditedKind {
    Rule { domain: Box<str>, name: Box<str>, starts_fresh: bool },
    Bans { domain: Box<str> },
    Server,
}

impl Record {
    pub(in crate::store) fn write(&self, out: &mut ByteWriter) {
        match self {
            Self::Seed(words) => {
                out.byte(1);
                out.list(words.iter(), |out, word| out.0.extend_from_slice(&word.to_le_bytes()));
            }
            Self::Key(key) => {
                out.byte(2);
                key.write(out);
            }
            Self::Rule(rule) => {
                out.byte(3);
                rule.write(out);
            }
            Self::Acts(acts) => {
                out.byte(4);
                acts.write(out);
            }
            Self::Round(RoundRecord { at, domain, closed, note }) => {
                out.byte(5);
                time(out, *at);
                out.text(domain);
                out.number(*closed);
                out.option(note.as_deref(), ByteWriter::text);
            }
            Self::Edit(edit) => {
                out.byte(6);
                out.number(edit.revision);
                edit.overlay.write(out);
                out.list(edit.changes.iter(), |out, it| it.write(out));
            }
            Self::Note { at, domain, text } => {
                out.byte(7);
                time(out, *at);
                out.text(domain);
                out.text(text);
            }
            Self::Erased { at, keys } => {
                out.byte(8);
                time(out, *at);
                out.list(keys.iter(), |out, key| out.number(*key));
            }
            Self::Clock { now, reuse, fence } => {
                out.byte(9);
                [*now, reuse[0], reuse[1]].into_iter().for_each(|at| time(out, at));
                out.number(*fence);
            }
            Self::End { records } => {
                out.byte(10);
                out.number(*records);
            }
            Self::Keys { domain, rule, keys } => {
                out.byte(11);
                write_keys(out, [domain, rule], keys);
            }
            Self::States { domain, rule, states } => {
                out.byte(13);
                write_states(out, [domain, rule], states);
            }
            Self::Lost { len } => {
                out.byte(12);
                out.number(*len);
                out.0.resize(out.0.len() + usize::try_from(*len).unwrap_or(0), 0);
            }
        }
    }

    pub(in crate::store) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(match from.byte()? {
            1 => Self::Seed(from.list(|from| {
                let [low, high] = [from.word()?, from.word()?];
                Ok(u128::from(low) | (u128::from(high) << 64))
            })?),
            2 => Self::Key(KeyRecord::read(from)?),
            3 => Self::Rule(Box::new(RuleImage::read(from)?)),
            4 => Self::Acts(Box::new(ActionsRecord::read(from)?)),
            5 => Self::Round(RoundRecord {
                at: read_time(from)?,
                domain: from.text()?.into(),
                closed: from.number()?,
                note: from.option(|from| from.text().map(Into::into))?,
            }),
            6 => Self::Edit(Box::new(EditRecord {
                revision: from.number()?,
                overlay: OverlayEdit::read(from)?,
                changes: from.list(EditedItem::read)?,
            })),
            7 => Self::Note {
                at: read_time(from)?,
                domain: from.text()?.into(),
                text: from.text()?.into(),
            },
            8 => Self::Erased { at: read_time(from)?, keys: from.list(ByteReader::number)? },
            9 => Self::Clock {
                now: read_time(from)?,
                reuse: [read_time(from)?, read_time(from)?],
                fence: from.number()?,
            },
            10 => Self::End { records: from.number()? },
            11 => Self::Keys {
                domain: from.text()?.into(),
                rule: from.text()?.into(),
                keys: from.list(|from| Ok((from.number()?, from.word()?)))?,
            },
            12 => {
                let len = from.number()?;
                let rest = from.0.get(usize::try_from(len).map_err(|_| Malformed)?..);
                from.0 = rest.ok_or(Malformed)?;
                Self::Lost { len }
            }
            13 => Self::States {
                domain: from.text()?.into(),
                rule: from.text()?.into(),
                states: from.list(|from| {
                    Ok((from.number()?, from.word()?, read_image(from)?.ok_or(Malformed)?))
                })?,
            },
            _ => return Err(Malformed),
        })
    }
}

impl KeyRecord {
    fn write(&self, out: &mut ByteWriter) {
        out.number(self.number);
        out.word(self.hash);
        out.byte(u8::from(self.is_erased));
        out.text(self.name.rule.domain());
        out.text(self.name.rule.name());
        out.list(self.name.parts.iter(), |out, (attribute, value)| {
            out.text(attribute);
            out.option(value.as_deref(), ByteWriter::text);
        });
    }

    fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            number: from.number()?,
            hash: from.word()?,
            is_erased: from.byte()? == 1,
            name: KeyName {
                rule: {
                    let domain = from.text()?;
                    RuleId::named(from.text()?).in_domain(domain)
                },
                parts: from.list(|from| {
                    Ok((from.text()?.into(), from.option(|from| from.text().map(Into::into))?))
                })?,
            },
        })
    }

    /// Leaves nothing of the name but its length.
    #[cfg(feature = "durable")]
    pub(in crate::store) fn erase(&mut self) {
        (self.hash, self.is_erased) = (0, true);
        for (_, value) in &mut self.name.parts {
            if let Some(value) = value {
                *value = "\0".repeat(value.len()).into();
            }
        }
    }
}

impl ActionsRecord {
    fn write(&self, out: &mut ByteWriter) {
        out.list(self.acts.iter(), |out, act| act.write(out));
        out.list(self.states.iter(), |out, (key, image)| {
            out.number(*key);
            write_image(out, *image);
        });
        out.list(self.holds.iter(), |out, (id, hold)| {
            write_pair(out, id.0);
            out.option(hold.as_ref(), write_hold);
        });
        out.list(self.names.iter(), |out, (name, cached)| {
            write_pair(out, *name);
            out.option(cached.as_ref(), write_name);
        });
        out.number(self.fence);
    }

    fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            acts: from.list(KeyedAction::read)?,
            states: from.list(|from| Ok((from.number()?, read_image(from)?)))?,
            holds: from.list(|from| Ok((HoldId(read_pair(from)?), from.option(read_hold)?)))?,
            names: from.list(|from| Ok((read_pair(from)?, from.option(read_name)?)))?,
            fence: from.number()?,
        })
    }
}

impl KeyedAction {
    /// An action, with numbers for keys.
    #[cfg(feature = "durable")]
    pub(in crate::store) fn new(entry: &JournalEntry, number: impl Fn(u64) -> Option<u64>) -> Self {
        let JournalEntry { kind, at, hold, note, author, bookings, .. } = entry;
        let keyed =
            |booking: &JournalBooking| Some((number(booking.hash)?, booking.entry, booking.units));
        let bookings = bookings.iter().filter_map(keyed).collect();
        let (kind, at, hold, author) = (*kind, *at, *hold, *author);
        Self { kind, at, hold, note: note.clone(), author, bookings }
    }

    fn write(&self, out: &mut ByteWriter) {
        out.byte(KINDS.iter().position(|kind| *kind == self.kind).map_or(0, small));
        time(out, self.at);
        out.option(self.hold, |out, id| write_pair(out, id.0));
        match (&self.note, self.author) {
            (None, _) => out.byte(0),
            (Some(_), Author::Host) => out.byte(1),
            (Some(_), Author::Engine) => out.byte(2),
        }
        self.note.iter().for_each(|note| out.text(note));
        out.list(self.bookings.iter(), |out, (key, entry, units)| {
            out.number(*key);
            out.byte(ENTRIES.iter().position(|it| it == entry).map_or(0, small));
            out.number(*units);
        });
    }

    fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        let mut author = Author::Host;
        Ok(Self {
            kind: *KINDS.get(usize::from(from.byte()?)).ok_or(Malformed)?,
            at: read_time(from)?,
            hold: from.option(read_pair)?.map(HoldId),
            note: match from.byte()? {
                0 => None,
                1 => Some(from.text()?.into()),
                2 => {
                    author = Author::Engine;
                    Some(from.text()?.into())
                }
                _ => return Err(Malformed),
            },
            author,
            bookings: from.list(|from| {
                let key = from.number()?;
                let entry = *ENTRIES.get(usize::from(from.byte()?)).ok_or(Malformed)?;
                Ok((key, entry, from.number()?))
            })?,
        })
    }
}

fn write_keys(out: &mut ByteWriter, rule: [&str; 2], keys: &[(u64, u64)]) {
    rule.into_iter().for_each(|name| out.text(name));
    out.list(keys.iter(), |out, (number, hash)| {
        out.number(*number);
        out.word(*hash);
    });
}

fn write_states(out: &mut ByteWriter, rule: [&str; 2], states: &[(u64, u64, StateImage)]) {
    rule.into_iter().for_each(|name| out.text(name));
    out.list(states.iter(), |out, (number, hash, image)| {
        out.number(*number);
        out.word(*hash);
        write_image(out, Some(*image));
    });
}

fn write_image(out: &mut ByteWriter, image: Option<StateImage>) {
    match image {
        None => out.byte(0),
        Some(StateImage::Narrow(Tagged { tag, packed: Narrow { high, low } })) => {
            out.byte(1);
            [tag.into(), high.into(), low].into_iter().for_each(|word| out.number(word));
        }
        Some(StateImage::Wide(Tagged { tag, packed })) => {
            out.byte(2);
            out.number(tag.into());
            packed.into_iter().for_each(|word| out.number(word));
        }
    }
}

pub(in crate::store) fn read_image(
    from: &mut ByteReader<'_>,
) -> Result<Option<StateImage>, Malformed> {
    Ok(match from.byte()? {
        0 => None,
        1 => {
            let (tag, high) = (from.small()?, from.small()?);
            Some(StateImage::Narrow(Tagged { tag, packed: Narrow { high, low: from.number()? } }))
        }
        2 => {
            let (tag, mut packed) = (from.small()?, [0; WIDE_WORDS]);
            for word in &mut packed {
                *word = from.number()?;
            }
            Some(StateImage::Wide(Tagged { tag, packed }))
        }
        _ => return Err(Malformed),
    })
}

impl EditedItem {
    pub(in crate::store) fn write(&self, out: &mut ByteWriter) {
        out.number(self.number);
        time(out, self.at);
        out.text(&self.actor);
        match &self.what {
            EditedKind::Rule { domain, name, starts_fresh } => {
                out.byte(1 + u8::from(*starts_fresh));
                out.text(domain);
                out.text(name);
            }
            EditedKind::Bans { domain } => {
                out.byte(3);
                out.text(domain);
            }
            EditedKind::Server => out.byte(4),
        }
        out.option(self.before.as_deref(), ByteWriter::text);
        out.option(self.after.as_deref(), ByteWriter::text);
    }

    pub(in crate::store) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            number: from.number()?,
            at: read_time(from)?,
            actor: from.text()?.into(),
            what: match from.byte()? {
                kind @ (1 | 2) => EditedKind::Rule {
                    domain: from.text()?.into(),
                    name: from.text()?.into(),
                    starts_fresh: kind == 2,
                },
                3 => EditedKind::Bans { domain: from.text()?.into() },
                4 => EditedKind::Server,
                _ => return Err(Malformed),
            },
            before: from.option(|from| from.text().map(Into::into))?,
            after: from.option(|from| from.text().map(Into::into))?,
        })
    }
}

impl From<EditedItem> for Change {
    fn from(it: EditedItem) -> Self {
        let EditedItem { number, at, actor, what, before, after } = it;
        let what = match what {
            EditedKind::Rule { domain, name, starts_fresh } => {
                Changed::Rule { rule: RuleId::named(&name).in_domain(&domain), starts_fresh }
            }
            EditedKind::Bans { domain } => Changed::Bans { domain },
            EditedKind::Server => Changed::Server,
        };
        Self {
            number,
            at,
            actor,
            what,
            before: before.map(Into::into),
            after: after.map(Into::into),
        }
    }
}

impl From<&Change> for EditedItem {
    fn from(change: &Change) -> Self {
        let Change { number, at, actor, what, before, after } = change.clone();
        let what = match what {
            Changed::Rule { rule, starts_fresh } => {
                let (domain, name) = (rule.domain().into(), rule.name().into());
                EditedKind::Rule { domain, name, starts_fresh }
            }
            Changed::Bans { domain } => EditedKind::Bans { domain },
            Changed::Server => EditedKind::Server,
        };
        Self {
            number,
            at,
            actor,
            what,
            before: before.map(Into::into),
            after: after.map(Into::into),
        }
    }
}

pub(in crate::store) fn write_hold(out: &mut ByteWriter, hold: &Hold) {
    out.number(u64::try_from(hold.length.as_nanos()).unwrap_or(u64::MAX));
    time(out, hold.expires);
    out.number(hold.fence);
    out.option(hold.end, write_end);
    out.option(hold.name, write_pair);
    out.word(hold.domain);
    out.list(hold.items.iter(), write_item);
}

pub(in crate::store) fn write_item(out: &mut ByteWriter, item: &HoldItem) {
    out.number(item.tag.into());
    out.word(item.hash);
    out.number(item.units);
    out.number(item.debt);
    out.number(item.period);
    out.byte(u8::from(item.is_by_request));
    out.byte(durability_byte(item.durability));
    out.option(item.charged.as_deref(), |out, StoredState { tag, state }| {
        out.number((*tag).into());
        write_state(out, state);
    });
}

pub(in crate::store) fn read_hold(from: &mut ByteReader<'_>) -> Result<Hold, Malformed> {
    Ok(Hold {
        length: Duration::from_nanos(from.number()?),
        expires: read_time(from)?,
        fence: from.number()?,
        end: from.option(read_end)?,
        name: from.option(read_pair)?,
        domain: from.word()?,
        items: SmallVec::from_vec(from.list(read_item)?),
    })
}

/// An item without the attributes of its key: they are in a record of their own.
pub(in crate::store) fn read_item(from: &mut ByteReader<'_>) -> Result<HoldItem, Malformed> {
    Ok(HoldItem {
        tag: from.small()?,
        hash: from.word()?,
        units: from.number()?,
        debt: from.number()?,
        period: from.number()?,
        is_by_request: from.byte()? == 1,
        durability: read_durability(from)?,
        charged: from.option(|from| {
            let (tag, state) = (from.small()?, read_state(from)?);
            Ok(Box::new(StoredState { tag, state }))
        })?,
        key: Arc::new([]),
    })
}

fn write_end(out: &mut ByteWriter, end: HoldEnd) {
    time(out, end.at);
    match end.settlement {
        EndKind::Commit { actual } => {
            out.byte(1);
            out.option(actual, ByteWriter::number);
        }
        EndKind::Cancel => out.byte(2),
    }
    [end.units, end.debt, end.forgiven].into_iter().for_each(|units| out.number(units));
}

fn read_end(from: &mut ByteReader<'_>) -> Result<HoldEnd, Malformed> {
    Ok(HoldEnd {
        at: read_time(from)?,
        settlement: match from.byte()? {
            1 => EndKind::Commit { actual: from.option(ByteReader::number)? },
            2 => EndKind::Cancel,
            _ => return Err(Malformed),
        },
        units: from.number()?,
        debt: from.number()?,
        forgiven: from.number()?,
    })
}

pub(in crate::store) fn write_name(out: &mut ByteWriter, name: &CachedResult) {
    time(out, name.at);
    out.word(name.domain);
    out.word(name.body);
    match &name.response {
        CachedResponse::Refunded { units, hashes } => {
            out.byte(REFUND);
            out.number(*units);
            out.list(hashes.iter(), |out, hash| out.word(*hash));
        }
        CachedResponse::Charged { hold, decisions } => {
            out.option(*hold, |out, NewHold { id, expires, fence }| {
                write_pair(out, id.0);
                time(out, expires);
                out.number(fence);
            });
            out.list(decisions.iter(), |out, (hash, decision)| {
                out.word(*hash);
                decision.to_words().into_iter().for_each(|word| out.number(word));
            });
        }
    }
}

pub(in crate::store) fn read_name(from: &mut ByteReader<'_>) -> Result<CachedResult, Malformed> {
    let (at, domain, body) = (read_time(from)?, from.word()?, from.word()?);
    let hold = match from.byte()? {
        0 => None,
        1 => {
            let (id, expires) = (HoldId(read_pair(from)?), read_time(from)?);
            Some(NewHold { id, expires, fence: from.number()? })
        }
        REFUND => {
            let (units, hashes) = (from.number()?, from.list(ByteReader::word)?.into());
            let response = CachedResponse::Refunded { units, hashes };
            return Ok(CachedResult { at, domain, body, response });
        }
        _ => return Err(Malformed),
    };
    let decisions = from.list(|from| {
        let hash = from.word()?;
        let mut words = [0; Decision::WORDS];
        for word in &mut words {
            *word = from.number()?;
        }
        Ok((hash, Decision::from_words(words)))
    })?;
    let response = CachedResponse::Charged { hold, decisions: decisions.into() };
    Ok(CachedResult { at, domain, body, response })
}

pub(in crate::store) fn write_any_limit(out: &mut ByteWriter, limit: &AnyLimit) {
    let (algorithm, words) = limit.to_words();
    out.byte(algorithm);
    words.into_iter().for_each(|word| out.number(word));
}

pub(in crate::store) fn read_any_limit(from: &mut ByteReader<'_>) -> Result<AnyLimit, Malformed> {
    let algorithm = from.byte()?;
    let words = [from.number()?, from.number()?, from.number()?, from.number()?];
    AnyLimit::from_words(algorithm, words).ok_or(Malformed)
}

pub(in crate::store) fn write_state(out: &mut ByteWriter, state: &AnyState) {
    match state {
        AnyState::Bucket(BucketState { full_at_ticks, held }) => {
            out.byte(1);
            #[allow(clippy::cast_possible_truncation, reason = "each half is kept")]
            let words = [*full_at_ticks as u64, (*full_at_ticks >> 64) as u64, *held];
            words.into_iter().for_each(|word| out.number(word));
        }
        AnyState::Window(WindowState { ends_ns, used, held }) => {
            out.byte(2);
            [*ends_ns, *used, *held].into_iter().for_each(|word| out.number(word));
        }
        AnyState::Sliding(state) => {
            out.byte(3);
            pack_sliding(state).into_iter().for_each(|word| out.number(word));
            out.number(state.held);
        }
        AnyState::Cooldown(state) => {
            out.byte(4);
            out.number(state.since_ns_plus_1);
        }
        AnyState::Quota(QuotaState { period, used, carried, held, held_from, debt }) => {
            out.byte(5);
            let words = [*period, *used, *carried, *held, *held_from, *debt];
            words.into_iter().for_each(|word| out.number(word));
        }
        AnyState::Slots { held } => {
            out.byte(6);
            out.number(*held);
        }
    }
}

pub(in crate::store) fn read_state(from: &mut ByteReader<'_>) -> Result<AnyState, Malformed> {
    Ok(match from.byte()? {
        1 => {
            let [low, high] = [from.number()?, from.number()?];
            let full_at_ticks = u128::from(low) | (u128::from(high) << 64);
            AnyState::Bucket(BucketState { full_at_ticks, held: from.number()? })
        }
        2 => AnyState::Window(WindowState {
            ends_ns: from.number()?,
            used: from.number()?,
            held: from.number()?,
        }),
        3 => {
            let mut words = [0; WIDE_WORDS];
            for word in &mut words {
                *word = from.number()?;
            }
            let mut state = unpack_sliding(words);
            state.held = from.number()?;
            AnyState::Sliding(state)
        }
        4 => AnyState::Cooldown(CooldownState { since_ns_plus_1: from.number()? }),
        5 => AnyState::Quota(QuotaState {
            period: from.number()?,
            used: from.number()?,
            carried: from.number()?,
            held: from.number()?,
            held_from: from.number()?,
            debt: from.number()?,
        }),
        6 => AnyState::Slots { held: from.number()? },
        _ => return Err(Malformed),
    })
}

pub(in crate::store) fn write_pair(out: &mut ByteWriter, pair: [u64; 2]) {
    pair.into_iter().for_each(|word| out.word(word));
}

pub(in crate::store) fn read_pair(from: &mut ByteReader<'_>) -> Result<[u64; 2], Malformed> {
    Ok([from.word()?, from.word()?])
}

pub(in crate::store) fn time(out: &mut ByteWriter, at: Timestamp) {
    out.number(at.as_nanos());
}

pub(in crate::store) fn read_time(from: &mut ByteReader<'_>) -> Result<Timestamp, Malformed> {
    from.number().map(Timestamp::from_nanos)
}

/// Marks a refund, in place of whether a decision has a hold.
const REFUND: u8 = 2;

const fn durability_byte(durability: Durability) -> u8 {
    match durability {
        Durability::Memory => 0,
        Durability::Flush => 1,
        Durability::Fsync => 2,
    }
}

fn read_durability(from: &mut ByteReader<'_>) -> Result<Durability, Malformed> {
    Ok(match from.byte()? {
        0 => Durability::Memory,
        1 => Durability::Flush,
        2 => Durability::Fsync,
        _ => return Err(Malformed),
    })
}

fn small(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// By their numbers in a record.
const KINDS: [ActionKind; 9] = [
    ActionKind::Check,
    ActionKind::Reserve,
    ActionKind::Commit,
    ActionKind::Cancel,
    ActionKind::Expire,
    ActionKind::Renew,
    ActionKind::Refund,
    ActionKind::Forget,
    ActionKind::Enrol,
];

/// By their numbers in a record.
const ENTRIES: [JournalTransfer; 7] = [
    JournalTransfer::Charged,
    JournalTransfer::Held,
    JournalTransfer::Committed,
    JournalTransfer::Cancelled,
    JournalTransfer::Expired,
    JournalTransfer::Refunded,
    JournalTransfer::Forgiven,
];
