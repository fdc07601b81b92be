//! Rate-limit headers of HTTP responses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidegate_core::{Decision, Wait};

use crate::percent;

/// The set of rate-limit headers that a response carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` of the IETF's draft 11: `"search";q=100;w=60` and
    /// `"search";r=50;t=30`, one member for every limit.
    #[default]
    Ietf11,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy` of the IETF's draft 6.
    Ietf06,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last one in seconds from now.
    XRateLimit,
    /// As Envoy writes them: `X-RateLimit-Limit: 100, 100;w=60;name="search"`.
    Envoy03,
    /// None.
    None,
}

/// What headers report about one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFields<'a> {
    /// The name of the limit.
    pub name: &'a str,
    /// Its capacity.
    pub limit: u64,
    /// The time over which the capacity is restored, if it is known.
    pub span: Option<Duration>,
    /// The remaining units.
    pub remaining: u64,
    /// The time until a denied request would be allowed, or else until the limit is fresh again;
    /// `None` if it is unknown.
    pub until: Option<Duration>,
}

impl<'a> LimitFields<'a> {
    /// The fields of a decision, under the name of its limit.
    #[must_use]
    pub fn new(name: &'a str, decision: &Decision) -> Self {
        let until = match decision.retry_after() {
            Some(Wait::After(wait)) => Some(wait),
            Some(Wait::Never | Wait::Unknown) => None,
            None => decision.reset(),
        };
        Self {
            name,
            limit: decision.limit(),
            span: decision.span(),
            remaining: decision.remaining(),
            until,
        }
    }
}

impl Dialect {
    /// All dialects, by their names in settings.
    pub const ALL: [(&'static str, Self); 5] = [
        ("ietf-11", Self::Ietf11),
        ("ietf-06", Self::Ietf06),
        ("x-ratelimit", Self::XRateLimit),
        ("envoy-03", Self::Envoy03),
        ("none", Self::None),
    ];

    /// Passes every header of a response to `put`: its name in lower case, and its value.
    ///
    /// `decisive` is the index of the limit that dialects for a single limit report. Without lines
    /// there are no headers.
    pub fn write(
        self,
        lines: &[LimitFields<'_>],
        decisive: usize,
        mut put: impl FnMut(&'static str, &[u8]),
    ) {
        let Some(first) = lines.get(decisive).or(lines.first()) else { return };
        let reset = |name, put: &mut dyn FnMut(&'static str, &[u8])| {
            if let Some(until) = first.until {
                put(name, &number(seconds(until)));
            }
        };
        match self {
            Self::Ietf11 => {
                put("ratelimit-policy", &joined(lines, push_policy));
                put("ratelimit", &joined(lines, push_state));
            }
            Self::Ietf06 => {
                put("ratelimit-policy", &joined(lines, push_quota));
                put("ratelimit-limit", &number(first.limit));
                put("ratelimit-remaining", &number(first.remaining));
                reset("ratelimit-reset", &mut put);
            }
            Self::XRateLimit => {
                put("x-ratelimit-limit", &number(first.limit));
                put("x-ratelimit-remaining", &number(first.remaining));
                reset("x-ratelimit-reset", &mut put);
            }
            Self::Envoy03 => {
                let mut limit = number(first.limit);
                limit.extend_from_slice(b", ");
                limit.extend_from_slice(&joined(lines, push_named_quota));
                put("x-ratelimit-limit", &limit);
                put("x-ratelimit-remaining", &number(first.remaining));
                reset("x-ratelimit-reset", &mut put);
            }
            Self::None => {}
        }
    }
}

/// The bytes of a header value.
type ValueText = Vec<u8>;

/// The members of a list, separated by commas.
fn joined(lines: &[LimitFields<'_>], push: fn(&mut ValueText, &LimitFields<'_>)) -> ValueText {
    let mut out = ValueText::with_capacity(lines.len() * USUAL_LENGTH);
    for line in lines {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        push(&mut out, line);
    }
    out
}

/// `"search";q=100;w=60`
fn push_policy(out: &mut ValueText, line: &LimitFields<'_>) {
    push_text(out, line.name);
    out.extend_from_slice(b";q=");
    push_number(out, line.limit);
    push_span(out, line);
}

/// `"search";r=50;t=30`
fn push_state(out: &mut ValueText, line: &LimitFields<'_>) {
    push_text(out, line.name);
    out.extend_from_slice(b";r=");
    push_number(out, line.remaining);
    if let Some(until) = line.until {
        out.extend_from_slice(b";t=");
        push_number(out, seconds(until));
    }
}

/// `100;w=60`
fn push_quota(out: &mut ValueText, line: &LimitFields<'_>) {
    push_number(out, line.limit);
    push_span(out, line);
}

/// `100;w=60;name="search"`
fn push_named_quota(out: &mut ValueText, line: &LimitFields<'_>) {
    push_quota(out, line);
    out.extend_from_slice(b";name=");
    push_text(out, line.name);
}

fn push_span(out: &mut ValueText, line: &LimitFields<'_>) {
    if let Some(span) = line.span {
        out.extend_from_slice(b";w=");
        push_number(out, seconds(span));
    }
}

/// Whole seconds, rounded up, so that no client retries too early.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

fn number(number: u64) -> ValueText {
    let mut out = ValueText::with_capacity(USUAL_LENGTH);
    push_number(&mut out, number);
    out
}

/// An integer of a structured field: at most 15 digits.
fn push_number(out: &mut ValueText, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number.min(MOST)).as_bytes());
}

/// A string of a structured field. Characters that are not allowed in one become `%` and two hex
/// digits.
fn push_text(out: &mut ValueText, text: &str) {
    out.push(b'"');
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                b' '..=b'~' => out.push(byte),
                _ => out.extend_from_slice(&percent::escape(byte)),
            }
        }
    }
    out.push(b'"');
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, dialect)| dialect == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

/// The text is not the name of a dialect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DialectError;

impl fmt::Display for DialectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Dialect::ALL.iter().map(|(name, _)| *name).collect();
        write!(f, "unknown header dialect; expected one of {}", names.join(", "))
    }
}

tidegate_core::debug_as_displayed!(DialectError);

impl std::error::Error for DialectError {}

impl FromStr for Dialect {
    type Err = DialectError;

    fn from_str(text: &str) -> Result<Self, DialectError> {
        let named = Self::ALL.iter().find(|(name, _)| *name == text);
        named.map(|(_, dialect)| *dialect).ok_or(DialectError)
    }
}

/// The largest integer that a structured field can hold.
const MOST: u64 = 999_999_999_999_999;
/// The usual length of one member of a list.
const USUAL_LENGTH: usize = 48;

#[cfg(test)]
mod tests;
