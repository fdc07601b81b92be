//! The bytes of what stores keep outside of this process: holds, cached results, states, limits, edits.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Decision, Timestamp};
use tidegate_policy::policy::{Charging, Durability, RuleId};

use crate::any_limit::{AnyLimit, AnyState};
use crate::edits::{Change, Changed};
use crate::history::StoredState;
use crate::store::memory::{CachedResponse, CachedResult, Hold, HoldEnd};
use crate::store::settlement::EndKind;
use crate::store::{HoldId, NewHold};
use crate::transition::HoldItem;
pub(in crate::store) use bytes::{ByteReader, ByteWriter, Malformed};
#[cfg(feature = "durable")]
pub(in crate::store) use log::{
    ActionsRecord, EditRecord, KeyRecord, KeyedAction, OverlayEdit, Record, RoundRecord,
    read_image, skim,
};
pub(in crate::store) use rule::RuleImage;

mod bytes;
#[cfg(feature = "durable")]
mod log;
mod rule;

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
    let is_postpaid = item.charging == Charging::Postpaid;
    out.byte(u8::from(item.is_by_request) | (u8::from(is_postpaid) << 1));
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
    let (tag, hash, units) = (from.small()?, from.word()?, from.number()?);
    let (debt, period, flags) = (from.number()?, from.number()?, from.byte()?);
    Ok(HoldItem {
        tag,
        hash,
        units,
        debt,
        period,
        is_by_request: flags & 1 != 0,
        charging: if flags & 2 != 0 { Charging::Postpaid } else { Charging::Allowed },
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
    end.settlement.write(out);
    [end.units, end.debt, end.forgiven].into_iter().for_each(|units| out.number(units));
}

fn read_end(from: &mut ByteReader<'_>) -> Result<HoldEnd, Malformed> {
    Ok(HoldEnd {
        at: read_time(from)?,
        settlement: EndKind::read(from)?,
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
        CachedResponse::Charged { is_allowed, hold, decisions } => {
            match hold {
                None => out.byte(if *is_allowed { CHARGED } else { CHARGED_AND_DENIED }),
                Some(NewHold { id, expires, fence }) => {
                    out.byte(HELD);
                    write_pair(out, id.0);
                    time(out, *expires);
                    out.number(*fence);
                }
            }
            out.list(decisions.iter(), |out, (hash, decision)| {
                out.word(*hash);
                decision.to_words().into_iter().for_each(|word| out.number(word));
            });
        }
    }
}

pub(in crate::store) fn read_name(from: &mut ByteReader<'_>) -> Result<CachedResult, Malformed> {
    let (at, domain, body) = (read_time(from)?, from.word()?, from.word()?);
    let kind = from.byte()?;
    let hold = match kind {
        CHARGED | CHARGED_AND_DENIED => None,
        HELD => {
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
    let (is_allowed, decisions) = (kind != CHARGED_AND_DENIED, decisions.into());
    let response = CachedResponse::Charged { is_allowed, hold, decisions };
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
    let (algorithm, words) = state.to_words();
    out.byte(algorithm);
    words.into_iter().for_each(|word| out.number(word));
}

pub(in crate::store) fn read_state(from: &mut ByteReader<'_>) -> Result<AnyState, Malformed> {
    let algorithm = from.byte()?;
    AnyState::from_words(algorithm, || from.number())?.ok_or(Malformed)
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

/// What is remembered under an idempotency key: a charge, a charge on hold, a refund, or a charge of a
/// request that was denied.
const CHARGED: u8 = 0;
const HELD: u8 = 1;
const REFUND: u8 = 2;
const CHARGED_AND_DENIED: u8 = 3;

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
