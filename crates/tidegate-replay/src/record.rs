//! A line of a log after parsing: its time, where it is, and the attributes that rules read.

/// A parsed line.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When it is decided, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Where it is.
    pub position: Position,
    text: &'a str,
    ends: &'a [u32],
}

/// A line of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The index of the input.
    pub input: u32,
    /// The number of the line, from 1.
    pub line: u64,
}

impl<'a> Record<'a> {
    /// The values of the planned attributes, in their order; `None` where the line has none.
    pub fn values(&self) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
        let text = self.text;
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            if end == ABSENT {
                return None;
            }
            let value = text.get(start..end as usize);
            start = end as usize;
            value
        })
    }

    /// How much memory a buffer needs for it, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.text.len() + size_of_val(self.ends) + size_of::<Head>()
    }

    pub(crate) const fn text(&self) -> &'a str {
        self.text
    }

    pub(crate) const fn ends(&self) -> &'a [u32] {
        self.ends
    }
}

/// The values of one line, while it is parsed.
#[derive(Debug, Default)]
pub struct Draft {
    text: String,
    ends: Vec<u32>,
}

impl Draft {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Adds the value of the next attribute.
    pub(crate) fn push(&mut self, value: Option<&str>) {
        let end = value.and_then(|value| {
            // Lines are shorter than this, see `lines.rs`.
            let end = u32::try_from(self.text.len() + value.len()).ok()?;
            self.text.push_str(value);
            Some(end)
        });
        self.ends.push(end.unwrap_or(ABSENT));
    }

    /// Adds a value that may not be UTF-8; what is not becomes `U+FFFD`.
    pub(crate) fn push_bytes(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.push(None),
            Some(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => self.push(Some(text)),
                Err(_) => self.push(Some(&String::from_utf8_lossy(bytes))),
            },
        }
    }

    pub(crate) fn record(&self, time_ns: u64, position: Position) -> Record<'_> {
        Record { time_ns, position, text: &self.text, ends: &self.ends }
    }

    pub(crate) fn set(&mut self, text: &str, ends: &[u32]) {
        self.clear();
        self.text.push_str(text);
        self.ends.extend_from_slice(ends);
    }
}

/// Many records, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
    ends: Vec<u32>,
    heads: Vec<Head>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    time_ns: u64,
    position: Position,
    text_end: u32,
    ends_end: u32,
}

impl Page {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.heads.clear();
    }

    pub(crate) const fn len(&self) -> usize {
        self.heads.len()
    }

    /// Whether another record belongs onto the next page.
    pub(crate) const fn is_full(&self) -> bool {
        self.text.len() >= PAGE_BYTES || self.ends.len() >= PAGE_BYTES
    }

    pub(crate) fn push(&mut self, record: &Record<'_>) {
        self.text.push_str(record.text);
        self.ends.extend_from_slice(record.ends);
        // A page is full long before; a line adds at most a mebibyte.
        let offset = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        self.heads.push(Head {
            time_ns: record.time_ns,
            position: record.position,
            text_end: offset(self.text.len()),
            ends_end: offset(self.ends.len()),
        });
    }

    pub(crate) fn time_ns(&self, index: usize) -> Option<u64> {
        self.heads.get(index).map(|head| head.time_ns)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Record<'_>> {
        let head = self.heads.get(index)?;
        let (text_start, ends_start) = match index.checked_sub(1) {
            Some(before) => (self.heads[before].text_end, self.heads[before].ends_end),
            None => (0, 0),
        };
        Some(Record {
            time_ns: head.time_ns,
            position: head.position,
            text: self.text.get(text_start as usize..head.text_end as usize)?,
            ends: self.ends.get(ends_start as usize..head.ends_end as usize)?,
        })
    }
}

/// In place of an end: the line has no such value.
pub(crate) const ABSENT: u32 = u32::MAX;
/// A page has about as many bytes of text.
const PAGE_BYTES: usize = 1 << 18;
