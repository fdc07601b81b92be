//! Inputs: files or streams, plain, in gzip or in zstd.

use std::fmt;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, errors};

/// Where a log comes from.
pub struct Source<'a> {
    /// Its name in messages.
    pub name: String,
    /// Its bytes.
    pub bytes: Box<dyn Read + 'a>,
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Counts the bytes that are read.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

type Buffered<'a> = BufReader<Counted<Box<dyn Read + 'a>>>;
type Whole<'a> = Chain<Cursor<Vec<u8>>, Buffered<'a>>;

/// The contents of a source, decompressed by its first bytes. `count` gets the bytes that are read.
pub(crate) fn decompressed<'a>(
    bytes: Box<dyn Read + 'a>,
    count: &Arc<AtomicU64>,
) -> io::Result<Box<dyn Read + 'a>> {
    let counted = Counted { inner: bytes, count: Arc::clone(count) };
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, counted);
    let mut start = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut start)?;
    let kind = match *start {
        [0x1f, 0x8b, ..] => Kind::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Kind::Zstd,
        _ => Kind::Plain,
    };
    let whole = Cursor::new(start).chain(reader);
    Ok(match kind {
        Kind::Plain => Box::new(whole),
        Kind::Gzip => Box::new(MultiGzDecoder::new(whole)),
        Kind::Zstd => Box::new(ZstdReader { source: whole, decoder: None }),
    })
}

enum Kind {
    Plain,
    Gzip,
    Zstd,
}

/// The contents of all frames of a zstd file.
struct ZstdReader<'a> {
    source: Whole<'a>,
    /// The frame that is read now.
    decoder: Option<Box<FrameDecoder>>,
}

impl Read for ZstdReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else {
                if !self.next_frame()? {
                    return Ok(0);
                }
                continue;
            };
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                decoder.decode_blocks(&mut self.source, blocks).map_err(damaged)?;
            }
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let (stored, computed) =
                (decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
            if stored.is_some() && stored != computed {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a checksum is wrong"));
            }
            self.decoder = None;
        }
    }
}

impl ZstdReader<'_> {
    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            let mut decoder = Box::new(FrameDecoder::new());
            match decoder.init(&mut self.source) {
                Ok(()) => {
                    self.decoder = Some(decoder);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
    }
}

fn damaged(error: errors::FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

const BUFFER_BYTES: usize = 1 << 18;

#[cfg(test)]
mod tests;
