//! Sorts all lines by time; equal times stay as they came. What does not fit into memory is written to
//! files without a name, which the system removes however the process ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use crate::record::{Draft, Page, Position, Record};

#[derive(Debug)]
pub(crate) struct Sorter {
    most_bytes: usize,
    bytes: usize,
    pages: Vec<Page>,
    /// Sorted lines, those that came first in front.
    runs: Vec<File>,
    spilled: u64,
}

impl Sorter {
    pub(crate) const fn new(most_bytes: usize) -> Self {
        Self { most_bytes, bytes: 0, pages: Vec::new(), runs: Vec::new(), spilled: 0 }
    }

    /// How many lines were written to files.
    pub(crate) const fn spilled(&self) -> u64 {
        self.spilled
    }

    pub(crate) fn push(&mut self, record: Record<'_>) -> io::Result<()> {
        if self.pages.last().is_none_or(Page::is_full) {
            self.pages.push(Page::default());
        }
        if let Some(page) = self.pages.last_mut() {
            page.push(&record);
        }
        self.bytes += record.bytes() + size_of::<SortKey>();
        if self.bytes > self.most_bytes {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes what is in memory to a file.
    fn spill(&mut self) -> io::Result<()> {
        let pages = std::mem::take(&mut self.pages);
        self.bytes = 0;
        let mut run = RunWriter::new()?;
        for key in sorted(&pages) {
            if let Some(record) = key.record(&pages) {
                run.write(&record)?;
                self.spilled += 1;
            }
        }
        drop(pages);
        self.runs.push(run.finish()?);
        if self.runs.len() == MOST_RUNS {
            let runs = std::mem::take(&mut self.runs);
            let mut all = RunWriter::new()?;
            merge(runs, &[], &mut |record| all.write(&record))?;
            self.runs.push(all.finish()?);
        }
        Ok(())
    }

    /// All lines in order.
    pub(crate) fn finish(&mut self, then: &mut impl FnMut(Record<'_>)) -> io::Result<()> {
        let (runs, pages) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.pages));
        merge(runs, &pages, &mut |record| {
            then(record);
            Ok(())
        })
    }
}

/// Where a line is in memory.
#[derive(Clone, Copy, Debug)]
struct SortKey {
    time_ns: u64,
    page: u32,
    index: u32,
}

impl SortKey {
    fn record(self, pages: &[Page]) -> Option<Record<'_>> {
        pages.get(self.page as usize)?.get(self.index as usize)
    }
}

fn sorted(pages: &[Page]) -> Vec<SortKey> {
    let mut keys = Vec::with_capacity(pages.iter().map(Page::len).sum());
    for (page, of_page) in (0..).zip(pages) {
        let times = (0..).map_while(|index| Some((index, of_page.time_ns(index as usize)?)));
        keys.extend(times.map(|(index, time_ns)| SortKey { time_ns, page, index }));
    }
    keys.sort_by_key(|key| key.time_ns);
    keys
}

/// Merges files, and the lines in memory, which came last.
fn merge(
    runs: Vec<File>,
    pages: &[Page],
    then: &mut impl FnMut(Record<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut readers = Vec::with_capacity(runs.len());
    let mut heads = BinaryHeap::new();
    for (number, file) in runs.into_iter().enumerate() {
        let mut reader = RunReader::new(file)?;
        if let Some(time_ns) = reader.next()? {
            heads.push(Reverse((time_ns, number)));
        }
        readers.push(reader);
    }
    let keys = sorted(pages);
    let mut in_memory = keys.iter().peekable();
    loop {
        let memory_ns = in_memory.peek().map(|key| key.time_ns);
        match heads.peek() {
            // Of equal times, that of a file came first.
            Some(Reverse((time_ns, number))) if memory_ns.is_none_or(|it| *time_ns <= it) => {
                let number = *number;
                heads.pop();
                let reader = &mut readers[number];
                then(reader.record())?;
                if let Some(time_ns) = reader.next()? {
                    heads.push(Reverse((time_ns, number)));
                }
            }
            _ => match in_memory.next() {
                Some(key) => key.record(pages).map_or(Ok(()), &mut *then)?,
                None => return Ok(()),
            },
        }
    }
}

/// Writes a run: for each line its time, its position, and its values.
struct RunWriter(BufWriter<File>);

impl RunWriter {
    fn new() -> io::Result<Self> {
        Ok(Self(BufWriter::with_capacity(RUN_BUFFER_BYTES, tempfile::tempfile()?)))
    }

    fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        let length = |it: usize| u32::try_from(it).map_err(io::Error::other);
        self.0.write_all(&record.time_ns.to_le_bytes())?;
        self.0.write_all(&record.position.line.to_le_bytes())?;
        self.0.write_all(&record.position.input.to_le_bytes())?;
        self.0.write_all(&length(record.ends().len())?.to_le_bytes())?;
        self.0.write_all(&length(record.text().len())?.to_le_bytes())?;
        for end in record.ends() {
            self.0.write_all(&end.to_le_bytes())?;
        }
        self.0.write_all(record.text().as_bytes())
    }

    fn finish(self) -> io::Result<File> {
        let mut file = self.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }
}

struct RunReader {
    file: BufReader<File>,
    left: u64,
    time_ns: u64,
    position: Position,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    draft: Draft,
}

impl RunReader {
    fn new(file: File) -> io::Result<Self> {
        let left = file.metadata()?.len();
        Ok(Self {
            file: BufReader::with_capacity(RUN_BUFFER_BYTES, file),
            left,
            time_ns: 0,
            position: Position::default(),
            bytes: Vec::new(),
            ends: Vec::new(),
            draft: Draft::default(),
        })
    }

    /// Reads the next line, and returns its time.
    fn next(&mut self) -> io::Result<Option<u64>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.time_ns = u64::from_le_bytes(self.array()?);
        self.position = Position {
            line: u64::from_le_bytes(self.array()?),
            input: u32::from_le_bytes(self.array()?),
        };
        let ends = u32::from_le_bytes(self.array()?) as usize;
        let text = u32::from_le_bytes(self.array()?) as usize;
        self.ends.clear();
        for _ in 0..ends {
            let end = u32::from_le_bytes(self.array()?);
            self.ends.push(end);
        }
        self.bytes.resize(text, 0);
        self.file.read_exact(&mut self.bytes)?;
        let text = std::str::from_utf8(&self.bytes).map_err(io::Error::other)?;
        self.draft.set(text, &self.ends);
        let read = HEAD_BYTES + self.ends.len() as u64 * 4 + self.bytes.len() as u64;
        self.left = self.left.saturating_sub(read);
        Ok(Some(self.time_ns))
    }

    fn record(&self) -> Record<'_> {
        self.draft.record(self.time_ns, self.position)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Time, line, input, and two lengths.
const HEAD_BYTES: u64 = 28;
/// As many files are merged into one.
const MOST_RUNS: usize = 64;
const RUN_BUFFER_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests;
