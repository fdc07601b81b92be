//! The records of holds, and of idempotency keys.

use tidegate_core::Timestamp;

use super::records::{Kind, Write};
use super::state::write_key;
use crate::store::HoldId;
use crate::store::memory::{CachedResult, Hold};
use crate::store::record::{
    ByteReader, ByteWriter, Malformed, read_hold, read_name, write_hold, write_name,
};

/// The change that writes a hold; `None` removes it.
pub(super) fn hold_write(id: HoldId, hold: Option<&Hold>, now: Timestamp) -> Write {
    let value = hold.map(|hold| {
        let mut out = ByteWriter::default();
        out.bytes(HOLD_MAGIC);
        write_hold(&mut out, hold);
        hold.items.iter().for_each(|item| write_key(&mut out, item));
        out.0
    });
    let ends = hold.map(|hold| hold.end.map_or(hold.expires, |end| end.at));
    let keep_for =
        ends.map(|ends| ends.saturating_duration_since(now).saturating_add(super::REMEMBERED_FOR));
    Write { keep_for, ..Write::new(Kind::Hold(id.0), value) }
}

pub(super) fn hold_from_bytes(bytes: &[u8]) -> Result<Hold, Malformed> {
    let mut from = ByteReader(bytes);
    if from.bytes()? != HOLD_MAGIC {
        return Err(Malformed);
    }
    let mut hold = read_hold(&mut from)?;
    for item in &mut hold.items {
        let key = from.list(|from| Ok((from.text()?.into(), from.text()?.into())))?;
        item.key = key.into();
    }
    if from.is_empty() { Ok(hold) } else { Err(Malformed) }
}

/// The change that writes what a request under an idempotency key got; `None` removes it.
pub(super) fn name_write(name: [u64; 2], cached: Option<&CachedResult>) -> Write {
    let value = cached.map(|cached| {
        let mut out = ByteWriter::default();
        out.bytes(NAME_MAGIC);
        write_name(&mut out, cached);
        out.0
    });
    let keep_for = cached.map(|_| super::REMEMBERED_FOR);
    Write { keep_for, ..Write::new(Kind::Idempotency(name), value) }
}

pub(super) fn name_from_bytes(bytes: &[u8]) -> Result<CachedResult, Malformed> {
    let mut from = ByteReader(bytes);
    if from.bytes()? != NAME_MAGIC {
        return Err(Malformed);
    }
    let cached = read_name(&mut from)?;
    if from.is_empty() { Ok(cached) } else { Err(Malformed) }
}

const HOLD_MAGIC: &[u8] = b"tgh1";
const NAME_MAGIC: &[u8] = b"tgn1";
