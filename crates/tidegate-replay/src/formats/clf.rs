//! The Common and the Combined Log Format.
//!
//! `address ident user [time] "request" status bytes "referer" "agent"`, with more behind it or less.

use std::borrow::Cow;

use tidegate::policy::{EncodedSlash, normalized_path};

use super::{ParsedLine, present, request_line, valid};
use crate::attributes::{AttributePlan, StandardField};
use crate::record::Draft;
use crate::times;

#[derive(Debug)]
pub(crate) struct ClfParser {
    /// For every planned attribute its field, and whether it gets the normal form of a path.
    planned: Vec<(Option<StandardField>, bool)>,
    encoded_slash: EncodedSlash,
    needs: Needs,
    /// The last time as text, and what it is: neighbours often have the same.
    last: Option<([u8; CLF_TIME], u64)>,
}

/// How much of a line is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// The address and the time.
    Start,
    /// All.
    All,
}

/// The fields of a line.
#[derive(Debug, Default)]
struct Fields<'a> {
    address: &'a [u8],
    user: &'a [u8],
    request: Cow<'a, [u8]>,
    status: &'a [u8],
    bytes: &'a [u8],
    referer: Cow<'a, [u8]>,
    agent: Cow<'a, [u8]>,
}

impl ClfParser {
    pub(crate) fn new(plan: &AttributePlan) -> Self {
        let planned: Vec<_> =
            plan.attributes.iter().map(|it| (it.field.standard, it.is_path)).collect();
        let is_at_start =
            |it: &(Option<StandardField>, bool)| matches!(it.0, None | Some(StandardField::Ip));
        let needs = if planned.iter().all(is_at_start) { Needs::Start } else { Needs::All };
        Self { planned, encoded_slash: plan.encoded_slash, needs, last: None }
    }

    #[inline]
    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> ParsedLine {
        let end = memchr::memchr(b' ', line).unwrap_or(line.len());
        let (address, rest) = line.split_at(end);
        if address.is_empty() {
            return ParsedLine::Unreadable("the line does not begin with an address");
        }
        let Some(Bracket { time_ns, start, end }) = self.time(rest) else {
            return ParsedLine::Unreadable("there is no time in brackets");
        };
        let mut fields = Fields { address, ..Fields::default() };
        if self.needs == Needs::All {
            fields.user = user(&rest[..start]);
            fields.read(&rest[end..]);
        }
        self.push(&fields, draft);
        ParsedLine::Request(time_ns)
    }

    /// The time, in the first brackets in front of the request that contain one.
    #[inline]
    fn time(&mut self, rest: &[u8]) -> Option<Bracket> {
        let mut from = 0;
        loop {
            let start = from + memchr::memchr(b'[', &rest[from..])?;
            if memchr::memchr(b'"', &rest[from..start]).is_some() {
                return None;
            }
            let text = &rest[start + 1..];
            let bracket = |time_ns, length| Bracket { time_ns, start, end: start + length + 2 };
            if let Some(usual) = text.first_chunk::<CLF_TIME>()
                && text.get(CLF_TIME) == Some(&b']')
            {
                if let Some((last, time_ns)) = &self.last
                    && last == usual
                {
                    return Some(bracket(*time_ns, CLF_TIME));
                }
                if let Some(time_ns) = times::clf(usual) {
                    self.last = Some((*usual, time_ns));
                    return Some(bracket(time_ns, CLF_TIME));
                }
            }
            let length = memchr::memchr(b']', text)?;
            let time = std::str::from_utf8(&text[..length]).ok().and_then(times::time_from_text);
            if let Some(time_ns) = time {
                return Some(bracket(time_ns, length));
            }
            from = start + 1;
        }
    }

    #[inline]
    fn push(&self, fields: &Fields<'_>, draft: &mut Draft) {
        let mut request = None;
        for &(field, is_path) in &self.planned {
            let mut request = || *request.get_or_insert_with(|| request_line(&fields.request));
            let value = match field {
                None | Some(StandardField::Host) => None,
                Some(StandardField::Ip) => present(fields.address),
                Some(StandardField::User) => present(fields.user),
                Some(StandardField::Method) => request().map(|(method, _)| method),
                Some(StandardField::Path) => request().map(|(_, target)| target),
                Some(StandardField::Status) => present(fields.status),
                Some(StandardField::Bytes) => present(fields.bytes),
                Some(StandardField::Agent) => present(&fields.agent),
                Some(StandardField::Referer) => present(&fields.referer),
            };
            let value = value.and_then(|value| valid(field, value));
            match value {
                Some(path) if is_path => {
                    draft.push(normalized_path(path, self.encoded_slash).ok().as_deref());
                }
                value => draft.push_bytes(value),
            }
        }
    }
}

/// A time, and where its brackets are.
struct Bracket {
    time_ns: u64,
    start: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// Reads what follows the time. What is missing stays empty.
    fn read(&mut self, rest: &'a [u8]) {
        let mut rest = rest.trim_ascii_start();
        if let Some((request, after)) = quoted(rest) {
            (self.request, rest) = (request, after);
        }
        for field in [&mut self.status, &mut self.bytes] {
            rest = rest.trim_ascii_start();
            if !rest.starts_with(b"\"") {
                let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
                (*field, rest) = rest.split_at(end);
            }
        }
        for field in [&mut self.referer, &mut self.agent] {
            if let Some((text, after)) = quoted(rest.trim_ascii_start()) {
                (*field, rest) = (text, after);
            }
        }
    }
}

/// The user in front of the time: the third field, which may have spaces.
fn user(between: &[u8]) -> &[u8] {
    let between = between.trim_ascii();
    let ident = memchr::memchr(b' ', between).unwrap_or(between.len());
    between[ident..].trim_ascii()
}

/// A text in quotes, and what follows; without an end it is the rest.
fn quoted(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let mut from = 0;
    let mut is_escaped = false;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text[from..]) {
        let at = from + found;
        if text[at] == b'"' {
            let (inner, rest) = (&text[..at], &text[at + 1..]);
            return Some((if is_escaped { unescaped(inner) } else { inner.into() }, rest));
        }
        is_escaped = true;
        from = text.len().min(at + 2);
    }
    Some((if is_escaped { unescaped(text) } else { text.into() }, b""))
}

/// The bytes of a text in which servers have escaped some: `\"`, `\\`, `\x16`, `\n`.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, further)) = rest.split_first() {
        let (plain, further) = match (byte, further) {
            (b'\\', [b'x', high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, after),
                _ => (byte, further),
            },
            (b'\\', [b'n', after @ ..]) => (b'\n', after),
            (b'\\', [b't', after @ ..]) => (b'\t', after),
            (b'\\', [b'r', after @ ..]) => (b'\r', after),
            (b'\\', [quoted @ (b'"' | b'\\'), after @ ..]) => (*quoted, after),
            _ => (byte, further),
        };
        bytes.push(plain);
        rest = further;
    }
    bytes.into()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The usual length of a time: `12/May/2024:00:00:17 +0000`.
const CLF_TIME: usize = 26;

#[cfg(test)]
mod tests;
