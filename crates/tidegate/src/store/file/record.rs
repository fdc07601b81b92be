//! Records of the log: one for everything that happened at once. Long, because every byte is
//! encoded here.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    BucketState, CooldownState, Decision, Period, QuotaState, Timestamp, WindowState,
};

use super::bytes::{ByteReader, ByteWriter, Malformed};
use crate::any_limit::{AnyLimit, AnyState, DecisionTime, Decisions};
use crate::calendar::Calendar;
use crate::cycle::Times;
use crate::keyed::{pack_sliding, unpack_sliding};
use crate::policy::{Cycle, Durability, Effective};
use crate::store::memory::{
    ActionKind, CachedDecisions, CachedResult, Happened, Hold, HoldItem, JournalBooking,
    JournalTransfer, LimitImage, OverrideId, StateImage, Successor,
};
use crate::store::{Decided, HoldId, KeyName, NewHold};
use crate::table::{Narrow, Tagged, WIDE_WORDS};

/// A record.
#[derive(Clone, Debug)]
pub(super) enum Record {
    /// The seed of the key hash.
    Seed(Vec<u128>),
    /// A number for a key.
    Key(KeyRecord),
    /// A limit was added or changed.
    Limit(Box<LimitImage>),
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
}

/// The name of a numbered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRecord {
    pub(super) number: u64,
    pub(super) hash: u64,
    pub(super) name: KeyName,
    /// Whether only the length of the name is left.
    pub(super) is_erased: bool,
}

/// Actions that happened at once, and the resulting states.
#[derive(Clone, Debug, Default)]
pub(super) struct ActionsRecord {
    pub(super) acts: Vec<KeyedAction>,
    pub(super) states: Vec<(u64, Option<StateImage>)>,
    pub(super) holds: Vec<(HoldId, Option<Hold>)>,
    pub(super) names: Vec<([u64; 2], Option<CachedResult>)>,
    pub(super) fence: u64,
}

/// An action, with numbers for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyedAction {
    pub(super) kind: ActionKind,
    pub(super) at: Timestamp,
    pub(super) hold: Option<HoldId>,
    pub(super) note: Option<Box<str>>,
    /// Key, transfer, units.
    pub(super) bookings: Vec<(u64, JournalTransfer, u64)>,
}

/// A round that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoundRecord {
    pub(super) at: Timestamp,
    pub(super) domain: Box<str>,
    /// How many were closed by then.
    pub(super) closed: u64,
    pub(super) note: Option<Box<str>>,
}

/// An edit of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EditRecord {
    /// All edits in force from here on, as TOML.
    pub(super) overlay: Box<str>,
    /// What has changed: number, time of day, actor, what, before, after.
    pub(super) changes: Vec<EditedItem>,
}

/// One change of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EditedItem {
    pub(super) number: u64,
    pub(super) at: Timestamp,
    pub(super) actor: Box<str>,
    pub(super) what: EditedKind,
    pub(super) before: Option<Box<str>>,
    pub(super) after: Option<Box<str>>,
}

/// What a change was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EditedKind {
    Rule { domain: Box<str>, name: Box<str>, starts_fresh: bool },
    Bans { domain: Box<str> },
    Server,
}

impl Record {
    pub(super) fn write(&self, out: &mut ByteWriter) {
        match self {
            Self::Seed(words) => {
                out.byte(1);
                out.list(words.iter(), |out, word| out.0.extend_from_slice(&word.to_le_bytes()));
            }
            Self::Key(key) => {
                out.byte(2);
                key.write(out);
            }
            Self::Limit(limit) => {
                out.byte(3);
                write_limit(out, limit);
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
                out.text(&edit.overlay);
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
                out.text(domain);
                out.text(rule);
                out.list(keys.iter(), |out, (number, hash)| {
                    out.number(*number);
                    out.word(*hash);
                });
            }
        }
    }

    pub(super) fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(match from.byte()? {
            1 => Self::Seed(from.list(|from| {
                let [low, high] = [from.word()?, from.word()?];
                Ok(u128::from(low) | (u128::from(high) << 64))
            })?),
            2 => Self::Key(KeyRecord::read(from)?),
            3 => Self::Limit(Box::new(read_limit(from)?)),
            4 => Self::Acts(Box::new(ActionsRecord::read(from)?)),
            5 => Self::Round(RoundRecord {
                at: read_time(from)?,
                domain: from.text()?.into(),
                closed: from.number()?,
                note: from.option(|from| from.text().map(Into::into))?,
            }),
            6 => Self::Edit(Box::new(EditRecord {
                overlay: from.text()?.into(),
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
            _ => return Err(Malformed),
        })
    }
}

impl KeyRecord {
    fn write(&self, out: &mut ByteWriter) {
        out.number(self.number);
        out.word(self.hash);
        out.byte(u8::from(self.is_erased));
        out.text(&self.name.domain);
        out.text(&self.name.rule);
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
                domain: from.text()?.into(),
                rule: from.text()?.into(),
                parts: from.list(|from| {
                    Ok((from.text()?.into(), from.option(|from| from.text().map(Into::into))?))
                })?,
            },
        })
    }

    /// Leaves nothing of the name but its length.
    pub(super) fn erase(&mut self) {
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
    pub(super) fn new(act: Happened, number: impl Fn(u64) -> Option<u64>) -> Self {
        let Happened { kind, at, hold, note, bookings } = act;
        let keyed = |JournalBooking { hash, entry, units }| Some((number(hash)?, entry, units));
        Self { kind, at, hold, note, bookings: bookings.into_iter().filter_map(keyed).collect() }
    }

    fn write(&self, out: &mut ByteWriter) {
        out.byte(KINDS.iter().position(|kind| *kind == self.kind).map_or(0, small));
        time(out, self.at);
        out.option(self.hold, |out, id| write_pair(out, id.0));
        out.option(self.note.as_deref(), ByteWriter::text);
        out.list(self.bookings.iter(), |out, (key, entry, units)| {
            out.number(*key);
            out.byte(ENTRIES.iter().position(|it| it == entry).map_or(0, small));
            out.number(*units);
        });
    }

    fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            kind: *KINDS.get(usize::from(from.byte()?)).ok_or(Malformed)?,
            at: read_time(from)?,
            hold: from.option(read_pair)?.map(HoldId),
            note: from.option(|from| from.text().map(Into::into))?,
            bookings: from.list(|from| {
                let key = from.number()?;
                let entry = *ENTRIES.get(usize::from(from.byte()?)).ok_or(Malformed)?;
                Ok((key, entry, from.number()?))
            })?,
        })
    }
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

fn read_image(from: &mut ByteReader<'_>) -> Result<Option<StateImage>, Malformed> {
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
    fn write(&self, out: &mut ByteWriter) {
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

    fn read(from: &mut ByteReader<'_>) -> Result<Self, Malformed> {
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

fn write_hold(out: &mut ByteWriter, hold: &Hold) {
    out.number(u64::try_from(hold.length.as_nanos()).unwrap_or(u64::MAX));
    time(out, hold.expires);
    out.number(hold.fence);
    out.option(hold.settled, time);
    out.option(hold.name, write_pair);
    out.list(hold.items.iter(), |out, item| {
        out.number(item.tag.into());
        out.word(item.hash);
        out.number(item.units);
        out.number(item.period);
        out.byte(u8::from(item.is_by_request));
        out.byte(durability_byte(item.durability));
        out.option(item.charged.as_deref(), |out, (tag, state)| {
            out.number((*tag).into());
            write_state(out, state);
        });
    });
}

fn read_hold(from: &mut ByteReader<'_>) -> Result<Hold, Malformed> {
    Ok(Hold {
        length: Duration::from_nanos(from.number()?),
        expires: read_time(from)?,
        fence: from.number()?,
        settled: from.option(read_time)?,
        name: from.option(read_pair)?,
        items: SmallVec::from_vec(from.list(|from| {
            Ok(HoldItem {
                tag: from.small()?,
                hash: from.word()?,
                units: from.number()?,
                period: from.number()?,
                is_by_request: from.byte()? == 1,
                durability: read_durability(from)?,
                charged: from.option(|from| Ok(Box::new((from.small()?, read_state(from)?))))?,
            })
        })?),
    })
}

fn write_name(out: &mut ByteWriter, name: &CachedResult) {
    time(out, name.at);
    out.word(name.body);
    let CachedDecisions { decided, decisions, hashes, refunded } = &name.result;
    if let Some(units) = refunded {
        out.byte(REFUND);
        out.number(*units);
        return out.list(hashes.iter(), |out, hash| out.word(*hash));
    }
    out.option(decided.hold, |out, NewHold { id, expires, fence }| {
        write_pair(out, id.0);
        time(out, expires);
        out.number(fence);
    });
    out.list(hashes.iter().zip(decisions), |out, (hash, decision)| {
        out.word(*hash);
        decision.to_words().into_iter().for_each(|word| out.number(word));
    });
}

fn read_name(from: &mut ByteReader<'_>) -> Result<CachedResult, Malformed> {
    let (at, body) = (read_time(from)?, from.word()?);
    let mut decided = Decided { is_allowed: true, hold: None, is_repeat: false };
    match from.byte()? {
        0 => {}
        1 => {
            let (id, expires) = (HoldId(read_pair(from)?), read_time(from)?);
            decided.hold = Some(NewHold { id, expires, fence: from.number()? });
        }
        REFUND => {
            let refunded = Some(from.number()?);
            let (decisions, hashes) = (Decisions::new(), from.list(ByteReader::word)?.into());
            let result = CachedDecisions { decided, decisions, hashes, refunded };
            return Ok(CachedResult { at, body, result });
        }
        _ => return Err(Malformed),
    }
    let decided_limits = from.list(|from| {
        let hash = from.word()?;
        let mut words = [0; Decision::WORDS];
        for word in &mut words {
            *word = from.number()?;
        }
        Ok((hash, Decision::from_words(words)))
    })?;
    let (hashes, decisions) = decided_limits.into_iter().unzip();
    Ok(CachedResult {
        at,
        body,
        result: CachedDecisions { decided, decisions, hashes, refunded: None },
    })
}

fn write_limit(out: &mut ByteWriter, limit: &LimitImage) {
    out.number(limit.tag.into());
    out.word(limit.family);
    write_any_limit(out, &limit.limit);
    out.option(limit.cycle.as_ref(), |out, (cycle, domain)| {
        let calendar = match cycle {
            Cycle::Calendar(calendar) => calendar.to_string(),
            Cycle::Round => String::new(),
        };
        out.text(&calendar);
        out.text(domain);
    });
    write_decision_time(out, limit.since);
    out.option(limit.until, |out, Times { now, wall }| {
        time(out, now);
        time(out, wall);
    });
    out.option(limit.common, |out, tag| out.number(tag.into()));
    out.option(limit.override_id, |out, OverrideId { key, index }| {
        out.word(key);
        out.number(index.into());
    });
    out.option(limit.successor, |out, successor| {
        out.number(successor.tag.into());
        write_decision_time(out, successor.at);
        out.number(successor.period_after);
        out.byte(u8::from(successor.effective == Effective::Next));
    });
    out.byte(u8::from(limit.is_removed));
}

fn read_limit(from: &mut ByteReader<'_>) -> Result<LimitImage, Malformed> {
    Ok(LimitImage {
        tag: from.small()?,
        family: from.word()?,
        limit: read_any_limit(from)?,
        cycle: from.option(|from| {
            let cycle = match from.text()? {
                "" => Cycle::Round,
                text => Cycle::Calendar(text.parse::<Calendar>().map_err(|_| Malformed)?),
            };
            Ok((cycle, from.text()?.into()))
        })?,
        since: read_decision_time(from)?,
        until: from.option(|from| Ok(Times { now: read_time(from)?, wall: read_time(from)? }))?,
        common: from.option(ByteReader::small)?,
        override_id: from
            .option(|from| Ok(OverrideId { key: from.word()?, index: from.small()? }))?,
        successor: from.option(|from| {
            Ok(Successor {
                tag: from.small()?,
                at: read_decision_time(from)?,
                period_after: from.number()?,
                effective: match from.byte()? {
                    0 => Effective::Now,
                    _ => Effective::Next,
                },
            })
        })?,
        is_removed: from.byte()? == 1,
    })
}

fn write_any_limit(out: &mut ByteWriter, limit: &AnyLimit) {
    let (algorithm, words) = limit.to_words();
    out.byte(algorithm);
    words.into_iter().for_each(|word| out.number(word));
}

fn read_any_limit(from: &mut ByteReader<'_>) -> Result<AnyLimit, Malformed> {
    let algorithm = from.byte()?;
    let words = [from.number()?, from.number()?, from.number()?, from.number()?];
    AnyLimit::from_words(algorithm, words).ok_or(Malformed)
}

fn write_state(out: &mut ByteWriter, state: &AnyState) {
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

fn read_state(from: &mut ByteReader<'_>) -> Result<AnyState, Malformed> {
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

fn write_decision_time(out: &mut ByteWriter, decided_at: DecisionTime) {
    time(out, decided_at.now);
    out.number(decided_at.period.index);
    out.option(decided_at.period.ends, time);
}

fn read_decision_time(from: &mut ByteReader<'_>) -> Result<DecisionTime, Malformed> {
    let now = read_time(from)?;
    Ok(DecisionTime {
        now,
        period: Period { index: from.number()?, ends: from.option(read_time)? },
    })
}

fn write_pair(out: &mut ByteWriter, pair: [u64; 2]) {
    pair.into_iter().for_each(|word| out.word(word));
}

fn read_pair(from: &mut ByteReader<'_>) -> Result<[u64; 2], Malformed> {
    Ok([from.word()?, from.word()?])
}

fn time(out: &mut ByteWriter, at: Timestamp) {
    out.number(at.as_nanos());
}

fn read_time(from: &mut ByteReader<'_>) -> Result<Timestamp, Malformed> {
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
    ActionKind::Carry,
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
