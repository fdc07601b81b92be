//! The frequent records, decoded without a copy of them: a start reads millions.

use tidegate_core::Timestamp;

use super::{ByteReader, KINDS, Malformed, TRANSFERS, read_pair, read_time};

/// The first byte of a record of actions.
pub(in crate::store) const ACTS: u8 = 4;

/// The first bytes of other records.
pub(in crate::store) const KEY: u8 = 2;
pub(in crate::store) const END: u8 = 10;
pub(in crate::store) const KEYS: u8 = 11;
pub(in crate::store) const STATES: u8 = 13;

/// A record of a key, without the parts of its name.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct KeyHead<'a> {
    pub(in crate::store) number: u64,
    pub(in crate::store) hash: u64,
    pub(in crate::store) is_erased: bool,
    pub(in crate::store) domain: &'a str,
    pub(in crate::store) rule: &'a str,
}

impl<'a> KeyHead<'a> {
    /// Reads all of a record after its first byte.
    pub(in crate::store) fn read(from: &mut ByteReader<'a>) -> Result<Self, Malformed> {
        let head = Self {
            number: from.number()?,
            hash: from.word()?,
            is_erased: from.byte()? == 1,
            domain: from.text()?,
            rule: from.text()?,
        };
        for _ in 0..from.count()? {
            from.text()?;
            from.option(ByteReader::text)?;
        }
        Ok(head)
    }
}

/// Reads an action, and returns its time.
pub(in crate::store) fn skim_action(from: &mut ByteReader<'_>) -> Result<Timestamp, Malformed> {
    if usize::from(from.byte()?) >= KINDS.len() {
        return Err(Malformed);
    }
    let at = read_time(from)?;
    from.option(read_pair)?;
    match from.byte()? {
        0 => {}
        1 | 2 => {
            from.text()?;
        }
        _ => return Err(Malformed),
    }
    for _ in 0..from.count()? {
        from.number()?;
        if usize::from(from.byte()?) >= TRANSFERS.len() {
            return Err(Malformed);
        }
        from.number()?;
    }
    Ok(at)
}
