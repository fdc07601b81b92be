//! The frames of HTTP/2 in a stream of bytes, without their payload.

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;

    /// Whether the sender sends no more on this stream.
    pub(crate) const fn ends_stream(self) -> bool {
        match self.kind {
            Self::DATA | Self::HEADERS => self.flags & END_STREAM != 0,
            Self::RST_STREAM => true,
            _ => false,
        }
    }

    fn parse(bytes: [u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & !RESERVED,
        }
    }
}

/// Finds the heads of frames in bytes that come in parts.
#[derive(Debug, Default)]
pub(crate) struct FrameHeads {
    head: [u8; HEAD_BYTES],
    filled: usize,
    payload_left: usize,
}

impl FrameHeads {
    /// The heads that are complete with these bytes.
    pub(crate) fn find(&mut self, mut bytes: &[u8], mut found: impl FnMut(FrameHead)) {
        while !bytes.is_empty() {
            let skipped = self.payload_left.min(bytes.len());
            self.payload_left -= skipped;
            bytes = &bytes[skipped..];
            let (now, later) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.filled));
            self.head[self.filled..][..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == HEAD_BYTES {
                let head = FrameHead::parse(self.head);
                (self.filled, self.payload_left) = (0, head.length);
                found(head);
            }
        }
    }
}

const HEAD_BYTES: usize = 9;
const END_STREAM: u8 = 1;
/// The highest bit of a stream's number has no meaning.
const RESERVED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_found_however_the_bytes_are_split() {
        let frames =
            b"\0\0\x03\0\x01\x80\0\0\x05abc\0\0\0\x04\0\0\0\0\0\0\x01\x02\x01\x04\0\0\0\x07";
        let bytes = [&frames[..], &[b'x'; 258], b"\0\0\x04\x03\0\0\0\0\x07\0\0\0\x08"].concat();
        let expected = [(3, 0, 5), (0, 4, 0), (258, 1, 7), (4, 3, 7)];
        for part in 1..=bytes.len() {
            let (mut heads, mut found) = (FrameHeads::default(), Vec::new());
            for bytes in bytes.chunks(part) {
                heads.find(bytes, |head| found.push(head));
            }
            let found: Vec<_> = found.iter().map(|it| (it.length, it.kind, it.stream)).collect();
            assert_eq!(found, expected, "{part}");
        }
    }

    #[test]
    fn the_end_of_a_stream_is_a_flag_or_a_reset() {
        let head = |kind, flags| FrameHead { length: 0, kind, flags, stream: 1 };
        assert!(head(FrameHead::DATA, 1).ends_stream());
        assert!(head(FrameHead::HEADERS, 5).ends_stream());
        assert!(!head(FrameHead::HEADERS, 4).ends_stream());
        assert!(head(FrameHead::RST_STREAM, 0).ends_stream());
        // The same bit means another thing there: an acknowledgement.
        assert!(!head(6, 1).ends_stream());
    }
}
