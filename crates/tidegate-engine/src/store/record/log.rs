//! Records of the log: one for everything that happened at once.

use tidegate_core::Timestamp;
use tidegate_policy::policy::RuleId;
use tidegate_table::table::{Narrow, Tagged, WIDE_WORDS};

use super::{
    ByteReader, ByteWriter, EditedItem, Malformed, RuleImage, read_hold, read_name, read_pair,
    read_time, time, write_hold, write_name, write_pair,
};
use crate::plan::KeyName;
use crate::store::HoldId;
use crate::store::actions::{EntryKind, KINDS, TRANSFERS, Transfer};
use crate::store::memory::{Author, CachedResult, Hold, JournalBooking, JournalEntry, StateImage};

mod overlay;
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
    pub(in crate::store) kind: EntryKind,
    pub(in crate::store) at: Timestamp,
    pub(in crate::store) hold: Option<HoldId>,
    pub(in crate::store) note: Option<Box<str>>,
    pub(in crate::store) author: Author,
    /// Key, transfer, units.
    pub(in crate::store) bookings: Vec<(u64, Transfer, u64)>,
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

    /// The record as bytes.
    pub(in crate::store) fn to_bytes(&self) -> Vec<u8> {
        let mut out = ByteWriter::default();
        self.write(&mut out);
        out.0
    }

    /// Calls a function with each record of a batch.
    pub(in crate::store) fn each(
        batch: &[u8],
        mut then: impl FnMut(Self),
    ) -> Result<(), Malformed> {
        let mut records = ByteReader(batch);
        while !records.is_empty() {
            then(Self::read(&mut records)?);
        }
        Ok(())
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
    pub(in crate::store) fn new(entry: &JournalEntry, number: impl Fn(u64) -> Option<u64>) -> Self {
        let JournalEntry { kind, at, hold, note, author, bookings, .. } = entry;
        let keyed =
            |booking: &JournalBooking| Some((number(booking.hash)?, booking.entry, booking.units));
        let bookings = bookings.iter().filter_map(keyed).collect();
        let (kind, at, hold, author) = (kind.clone(), *at, *hold, *author);
        Self { kind, at, hold, note: note.clone(), author, bookings }
    }

    fn write(&self, out: &mut ByteWriter) {
        out.byte(self.kind.number().unwrap_or(u8::MAX));
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
            out.byte(entry.number());
            out.number(*units);
        });
    }

    fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        let mut author = Author::Host;
        Ok(Self {
            kind: {
                let number = Some(from.byte()?);
                KINDS.iter().find(|kind| kind.number() == number).cloned().ok_or(Malformed)?
            },
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
                let number = from.byte()?;
                let mut transfers = TRANSFERS.into_iter();
                let entry = transfers.find(|it| it.number() == number).ok_or(Malformed)?;
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
