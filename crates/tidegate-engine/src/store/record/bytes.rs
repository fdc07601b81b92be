//! Numbers and texts as bytes: small numbers take few.

/// Writes values one after the other.
#[derive(Debug, Default)]
pub(in crate::store) struct ByteWriter(pub(in crate::store) Vec<u8>);

/// Reads what a [`ByteWriter`] has written.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct ByteReader<'a>(pub(in crate::store) &'a [u8]);

/// The bytes are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Malformed;

impl ByteWriter {
    pub(in crate::store) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Seven bits to a byte, the lowest first; the top bit is set if more follow.
    pub(in crate::store) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            #[allow(clippy::cast_possible_truncation, reason = "seven bits at a time")]
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        #[allow(clippy::cast_possible_truncation, reason = "below 128")]
        self.0.push(value as u8);
    }

    /// For numbers that use all of their bits, such as hashes.
    pub(in crate::store) fn word(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(in crate::store) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(in crate::store) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A byte for its presence, and then the value.
    pub(in crate::store) fn option<T>(
        &mut self,
        value: Option<T>,
        write: impl FnOnce(&mut Self, T),
    ) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(in crate::store) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.number(items.len() as u64);
        items.for_each(|item| write(self, item));
    }
}

impl<'a> ByteReader<'a> {
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::store) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    #[inline]
    pub(in crate::store) fn number(&mut self) -> Result<u64, Malformed> {
        // Up to eight bytes at once: their lengths vary, so a branch for each would often be
        // mispredicted.
        if let Some(word) = self.0.first_chunk() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & TOP_BITS;
            if ends != 0 {
                self.0 = &self.0[ends.trailing_zeros() as usize / 8 + 1..];
                return Ok(joined(word & (ends ^ (ends - 1))));
            }
        }
        self.number_by_bytes()
    }

    /// A number that is long, or near the end.
    fn number_by_bytes(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub(in crate::store) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(in crate::store) fn word(&mut self) -> Result<u64, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    pub(in crate::store) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.small::<usize>()?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(in crate::store) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub(in crate::store) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(Malformed),
        }
    }

    /// How many items of a list follow.
    pub(in crate::store) fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.small::<usize>()?;
        // No item takes less than a byte, so a wrong length does not cost memory.
        if count > self.0.len() { Err(Malformed) } else { Ok(count) }
    }

    pub(in crate::store) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count()?;
        (0..count).map(|_| read(self)).collect()
    }
}

/// The lower seven bits of each byte, without gaps.
const fn joined(bytes: u64) -> u64 {
    let pairs = (bytes & 0x007f_007f_007f_007f) | ((bytes & 0x7f00_7f00_7f00_7f00) >> 1);
    let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    (fours & 0x0000_0000_0fff_ffff) | ((fours & 0x0fff_ffff_0000_0000) >> 4)
}

/// The top bit of each byte.
const TOP_BITS: u64 = 0x8080_8080_8080_8080;

#[cfg(test)]
mod tests {
    use super::{ByteReader, ByteWriter, Malformed};

    #[test]
    fn numbers_round_trip() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut writer = ByteWriter::default();
        numbers.iter().for_each(|number| writer.number(*number));
        let mut reader = ByteReader(&writer.0);
        numbers.iter().for_each(|number| assert_eq!(reader.number(), Ok(*number)));
        assert!(reader.is_empty());
    }

    #[test]
    fn numbers_of_any_length_are_read_alike() {
        let ones = (0..64).map(|bit| 1_u64 << bit);
        let numbers = ones.flat_map(|one| [one - 1, one, one | 0x55, one.wrapping_mul(7)]);
        for number in numbers {
            let mut writer = ByteWriter::default();
            writer.number(number);
            let len = writer.0.len();
            // Followed by nothing, by few bytes, and by many.
            for after in [0, 1, 7, 8, 20] {
                let mut bytes = writer.0.clone();
                bytes.extend(std::iter::repeat_n(0xff, after));
                let [mut reader, mut by_bytes] = [ByteReader(&bytes), ByteReader(&bytes)];
                assert_eq!(reader.number(), Ok(number));
                assert_eq!(by_bytes.number_by_bytes(), Ok(number));
                assert_eq!((reader.0, by_bytes.0), (&bytes[len..], &bytes[len..]));
            }
            for cut in 0..len {
                assert_eq!(ByteReader(&writer.0[..cut]).number(), Err(Malformed));
            }
        }
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        assert_eq!(ByteReader(&[0xff; 10]).number(), Err(Malformed), "more than 64 bits");
        assert_eq!(ByteReader(&[0x80]).number(), Err(Malformed), "cut off");
        assert_eq!(ByteReader(&[9, b'a']).text(), Err(Malformed), "shorter than its length");
        assert_eq!(ByteReader(&[1, 0xff]).text(), Err(Malformed), "not UTF-8");
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(
            ByteReader(&huge).list(ByteReader::byte),
            Err(Malformed),
            "a list longer than the bytes"
        );
    }
}
