//! The formats of logs: how a line becomes values, and how a format is guessed.

use std::fmt;

use crate::attributes::{AttributePlan, PlannedAttribute, StandardField};
use crate::record::Draft;
use clf::ClfParser;
use csv::CsvParser;
use json::JsonParser;

mod clf;
mod csv;
mod fields;
mod guess;
mod json;

pub(crate) use guess::{Guess, guess};

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The Common Log Format.
    Common,
    /// The Combined Log Format: nginx's default, and one of Apache's.
    Combined,
    /// Caddy's JSON lines.
    Caddy,
    /// Envoy's JSON lines, with the field names of Istio or Envoy Gateway.
    Envoy,
    /// Traefik's JSON lines.
    Traefik,
    /// JSON lines.
    Json,
    /// Comma-separated values, with a header. Semicolons and tabs separate as well.
    Csv,
}

impl LogFormat {
    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Common => "Common Log Format",
            Self::Combined => "Combined Log Format",
            Self::Caddy => "Caddy's JSON",
            Self::Envoy => "Envoy's JSON",
            Self::Traefik => "Traefik's JSON",
            Self::Json => "JSON lines",
            Self::Csv => "CSV",
        }
    }

    const fn has_named_fields(self) -> bool {
        !matches!(self, Self::Common | Self::Combined)
    }
}

/// A field was named that logs of this format do not have.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// The name that was given.
    pub field: Box<str>,
    /// The format of the log.
    pub format: LogFormat,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, format) = (&self.field, self.format.name());
        write!(f, "a log in the {format} has no field `{field}`")
    }
}

tidegate::debug_as_displayed!(UnknownField);

impl std::error::Error for UnknownField {}

/// Makes values of lines.
#[derive(Debug)]
pub(crate) enum LineParser {
    Clf(ClfParser),
    Json(Box<JsonParser>),
    Csv(CsvParser),
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedLine {
    /// A request at this time; its values are in the draft.
    Request(u64),
    /// The header of a file.
    Header,
    /// Not readable, and why.
    Unreadable(&'static str),
}

impl LineParser {
    pub(crate) fn new(
        format: LogFormat,
        plan: &AttributePlan,
        time_field: Option<&str>,
    ) -> Result<Self, UnknownField> {
        if !format.has_named_fields() {
            let is_unknown =
                |it: &&PlannedAttribute| it.field.is_given && it.field.standard.is_none();
            let unknown = plan.attributes.iter().find(is_unknown).map(|it| &*it.field.name);
            if let Some(field) = unknown.or(time_field) {
                return Err(UnknownField { field: field.into(), format });
            }
        }
        Ok(match format {
            LogFormat::Common | LogFormat::Combined => Self::Clf(ClfParser::new(plan)),
            LogFormat::Csv => Self::Csv(CsvParser::new(plan, time_field)),
            _ => Self::Json(Box::new(JsonParser::new(format, plan, time_field))),
        })
    }

    /// Parses a line into a draft, which is empty.
    #[inline]
    pub(crate) fn parse(&mut self, line: &[u8], draft: &mut Draft) -> ParsedLine {
        if line.iter().all(u8::is_ascii_whitespace) {
            return ParsedLine::Unreadable("the line is empty");
        }
        match self {
            Self::Clf(parser) => parser.parse(line, draft),
            Self::Json(parser) => parser.parse(line, draft),
            Self::Csv(parser) => parser.parse(line, draft),
        }
    }
}

/// A value of a line, or `None` where a log writes that there is none.
fn present(value: &[u8]) -> Option<&[u8]> {
    (!matches!(value, b"" | b"-")).then_some(value)
}

/// A value as an attribute, or `None` if it is not one of its kind.
fn valid(field: Option<StandardField>, value: &[u8]) -> Option<&[u8]> {
    let is_number = field.is_some_and(StandardField::is_number);
    (!is_number || value.iter().all(u8::is_ascii_digit)).then_some(value)
}

/// The method and the target of a request line; `None` if it is broken.
fn request_line(request: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', request)?;
    let (method, rest) = (&request[..space], &request[space + 1..]);
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let target = match memchr::memrchr(b' ', rest) {
        Some(last) if rest[last + 1..].starts_with(b"HTTP/") => &rest[..last],
        // Without a protocol it is HTTP/0.9.
        None if !rest.starts_with(b"HTTP/") => rest,
        _ => return None,
    };
    let is_whole = !method.is_empty() && method.iter().all(is_of_token) && !target.is_empty();
    is_whole.then_some((method, target))
}

#[cfg(test)]
mod tests;
