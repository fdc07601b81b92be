//! From the bytes of a file to a policy, or to all of its errors.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check::{self, Finding};
use super::diagnostic::{
    Diagnostic, Origin, PolicyErrors, RawDiagnostic, RelatedSpan, Severity, Source,
};
use super::load::{FileRules, domain_twice};
use super::{Listen, Parsed, Policy, Rule, fields, lints, rule_fields};
use crate::request_path::EncodedSlash;
use diagnostic_sink::DiagnosticSink;
use reader::TableReader;
use shape::{Shape, ShapeError};

pub(super) mod diagnostic_sink;
pub(super) mod metadata;
pub mod overlay;
pub(super) mod reader;
pub(super) mod rule;
mod server;
mod settings;
mod shape;
mod tls;
pub(super) mod tokens;

/// How much of a policy a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileScope {
    Whole,
    /// Other files have the rest of it, and perhaps all rules.
    Part,
}

/// The bytes of a file, parsed and checked.
pub(crate) fn parse(file: &str, bytes: &[u8], extent: FileScope) -> Result<Parsed, PolicyErrors> {
    parse_part(file, bytes, extent).map(|it| it.parsed)
}

/// The same, and where the domains of its rules are, should other files have the rest.
pub(super) fn parse_part(
    file: &str,
    bytes: &[u8],
    extent: FileScope,
) -> Result<FileRules, PolicyErrors> {
    let BoundedText { text, skipped, shape } = readable(file, bytes)?;
    parse_text(file, &Source::new(file, text, skipped), text, &shape, extent)
}

/// Text within the bounds for parsing it as TOML.
pub(crate) struct BoundedText<'b> {
    pub(crate) text: &'b str,
    /// Bytes in front of the text that are not part of it.
    skipped: usize,
    shape: Shape,
}

/// The text of a file, unless it is too large, not UTF-8, or nested too deep.
pub(crate) fn readable<'b>(file: &str, bytes: &'b [u8]) -> Result<BoundedText<'b>, PolicyErrors> {
    if bytes.len() > MOST_BYTES {
        let message = format!("the file has more than {MOST_BYTES} bytes");
        let hint = "split it, or use fewer rules with `override` and lists".into();
        return Err(whole_file(file, 0..0, message, Some(hint)));
    }
    let (text, skipped) = readable_text(file, bytes)?;
    match Shape::of(text) {
        Ok(shape) => Ok(BoundedText { text, skipped, shape }),
        Err(ShapeError { span, error }) => {
            let mut problem = RawDiagnostic::new(Severity::Error, span, error.message);
            problem.hint = error.hint;
            let diagnostic = Source::new(file, text, skipped).diagnostic(problem);
            Err(PolicyErrors::new(vec![diagnostic], 0))
        }
    }
}

/// The text of a file, and how many bytes in front of it are not part of it.
pub(super) fn readable_text<'b>(
    file: &str,
    bytes: &'b [u8],
) -> Result<(&'b str, usize), PolicyErrors> {
    let (skipped, bytes) = match bytes.strip_prefix(BOM) {
        Some(rest) => (BOM.len(), rest),
        None => (0, bytes),
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok((text, skipped)),
        Err(error) => Err(not_utf8(file, bytes, error.valid_up_to(), skipped)),
    }
}

fn parse_text(
    file_name: &str,
    source: &Source<'_>,
    text: &str,
    shape: &Shape,
    extent: FileScope,
) -> Result<FileRules, PolicyErrors> {
    let mut report = DiagnosticSink::default();
    let table = read_toml(text, shape, &mut report);
    let mut file = TableReader::new(&mut report, table.get_ref(), 0..0, &fields::FILE);
    let table = file.table("server");
    let settings = table.map(|mut it| (settings::read(&mut it), server::read(&mut it)));
    let (settings, server) = settings.unwrap_or_default();
    let spans = tables(&mut file, "rule");
    let rules: Vec<_> = spans
        .iter()
        .map(|it| {
            rule_fields::read(&mut TableReader::new(
                &mut report,
                it.table,
                it.span.clone(),
                &rule_fields::RULE,
            ))
        })
        .collect();
    let policy = Policy { settings, rules, takes_own_limits: false, found: None };
    for finding in check::check(&policy.rules) {
        // Rules that could not be parsed have been reported, and other files may have rules.
        if finding.rule.is_some() || !report.has_errors() && extent == FileScope::Whole {
            report.push(located(finding, &spans));
        }
    }
    if !report.has_errors() {
        // The setting may be in another file.
        let forms: &[EncodedSlash] = match extent {
            FileScope::Whole => &[policy.settings.encoded_slash],
            FileScope::Part => &[EncodedSlash::Decode, EncodedSlash::Keep],
        };
        let mut findings = lints::lint(&policy.rules, forms);
        if server.grpc().is_some_and(|it| !matches!(it, Listen::Off)) {
            findings.extend(lints::lint_for_envoy(&policy.rules));
        }
        for finding in findings {
            report.push(located(finding, &spans));
        }
    }
    let has_errors = report.has_errors();
    let (diagnostics, left_out) = render(source, report);
    if has_errors {
        return Err(PolicyErrors::new(diagnostics, left_out));
    }
    let domains = match extent {
        FileScope::Whole => HashMap::new(),
        FileScope::Part => domains(&policy.rules, &spans, source),
    };
    let parsed = Parsed::new(policy, server, diagnostics, left_out);
    Ok(FileRules { file: file_name.into(), parsed, domains })
}

/// Where each domain is first named.
fn domains(
    rules: &[Rule],
    spans: &[TableSpan<'_>],
    source: &Source<'_>,
) -> HashMap<Box<str>, Diagnostic> {
    let mut domains = HashMap::new();
    for (rule, at) in rules.iter().zip(spans) {
        if !domains.contains_key(&rule.id.domain) {
            let span = at.table.get("domain").map_or_else(|| at.span.clone(), Spanned::span);
            let place = source.diagnostic(domain_twice(&rule.id.domain, span));
            domains.insert(rule.id.domain.clone(), place);
        }
    }
    domains
}

/// The tables of the file, as far as it is TOML.
fn read_toml<'t>(
    text: &'t str,
    shape: &Shape,
    report: &mut DiagnosticSink,
) -> Spanned<DeTable<'t>> {
    if shape.marks > MOST_MARKS_FOR_ALL_SYNTAX_ERRORS {
        return DeTable::parse(text).unwrap_or_else(|error| {
            report.push(syntax(&error, text));
            Spanned::new(0..0, DeTable::new())
        });
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    // After an unclosed brace nothing parses as it was meant.
    let unclosed = shape.unclosed.filter(|_| !errors.is_empty()).unwrap_or(usize::MAX);
    for error in &errors {
        let problem = syntax(error, text);
        if problem.span.start <= unclosed {
            report.push(problem);
        }
    }
    if unclosed < text.len() {
        let problem = report.error(unclosed..unclosed + 1, "this `{` is not closed");
        problem.hint = Some("the rest of the file was not checked".into());
        problem.origin = Origin::Unclosed;
    }
    table
}

fn syntax(error: &toml::de::Error, text: &str) -> RawDiagnostic {
    let span = error.span().unwrap_or(text.len()..text.len());
    let mut problem = RawDiagnostic::new(Severity::Error, span, error.message().to_owned());
    problem.origin = Origin::Syntax;
    problem
}

/// A rule, or another table of a list, and its span in the file.
struct TableSpan<'t> {
    table: &'t DeTable<'t>,
    span: Range<usize>,
}

/// The tables of a field that is a list of them.
fn tables<'t>(file: &mut TableReader<'_, 't>, name: &str) -> Vec<TableSpan<'t>> {
    let Some(value) = file.value(name) else { return Vec::new() };
    let hint = || Some(format!("write `[[{name}]]`"));
    let DeValue::Array(list) = value.get_ref() else {
        let message = format!("`{name}` is not a list of {name}s");
        file.report.error(value.span(), message).hint = hint();
        return Vec::new();
    };
    let mut spans = Vec::new();
    for item in list.iter() {
        match item.get_ref() {
            DeValue::Table(table) => spans.push(TableSpan { table, span: item.span() }),
            other => {
                let a = if name.starts_with('o') { "an" } else { "a" };
                let message = format!("{a} {name} is a table, not {}", reader::kind_of(other));
                file.report.error(item.span(), message).hint = hint();
            }
        }
    }
    spans
}

/// A finding about rules, with the span of the field that it is about.
fn located(finding: Finding, spans: &[TableSpan<'_>]) -> RawDiagnostic {
    let span = |rule: Option<usize>, field: &str, element: Option<usize>| {
        let Some(it) = rule.and_then(|rule| spans.get(rule)) else { return 0..0 };
        let Some(value) = it.table.get(field) else { return it.span.clone() };
        match (value.get_ref(), element) {
            (DeValue::Array(array), Some(at)) => array.get(at).unwrap_or(value).span(),
            _ => value.span(),
        }
    };
    let at = span(finding.rule, finding.field, finding.element);
    let mut problem = RawDiagnostic::new(finding.severity, at, finding.message);
    problem.hint = finding.hint;
    problem.note = finding.other.map(|other| RelatedSpan {
        span: span(Some(other.rule), finding.field, other.element),
        text: other.text,
    });
    problem
}

/// The diagnostics in the order of the file, without those that follow from syntax errors.
fn render(source: &Source<'_>, report: DiagnosticSink) -> (Vec<Diagnostic>, usize) {
    let (mut problems, mut left_out) = report.into_parts();
    let unclosed = problems.iter().find(|problem| problem.origin == Origin::Unclosed);
    let unclosed = unclosed.map_or(usize::MAX, |problem| problem.span.start);
    let syntax_lines: HashSet<usize> = problems
        .iter()
        .filter(|problem| problem.origin.is_syntax())
        .map(|problem| source.line_of(problem.span.start))
        .collect();
    problems.retain(|problem| match problem.origin {
        Origin::Syntax | Origin::Unclosed => true,
        Origin::Absence => syntax_lines.is_empty(),
        Origin::Meaning => {
            problem.span.start < unclosed
                && !syntax_lines.contains(&source.line_of(problem.span.start))
        }
    });
    problems.sort_by_key(|problem| problem.span.start);
    left_out += problems.len().saturating_sub(PolicyErrors::MOST);
    problems.truncate(PolicyErrors::MOST);
    (problems.into_iter().map(|problem| source.diagnostic(problem)).collect(), left_out)
}

fn not_utf8(file: &str, bytes: &[u8], at: usize, skipped: usize) -> PolicyErrors {
    let text = String::from_utf8_lossy(&bytes[..at]);
    let problem = RawDiagnostic {
        hint: Some("save the file as UTF-8".into()),
        ..RawDiagnostic::new(
            Severity::Error,
            at..at,
            format!("byte 0x{:02x} is not UTF-8", bytes[at]),
        )
    };
    PolicyErrors::new(vec![Source::new(file, &text, skipped).diagnostic(problem)], 0)
}

/// An error about a file as a whole.
pub(super) fn whole_file(
    file: &str,
    span: Range<usize>,
    message: String,
    hint: Option<String>,
) -> PolicyErrors {
    let problem = RawDiagnostic { hint, ..RawDiagnostic::new(Severity::Error, span, message) };
    PolicyErrors::new(vec![Source::new(file, "", 0).diagnostic(problem)], 0)
}

/// The largest file that is parsed.
pub(crate) const MOST_BYTES: usize = 16 << 20;
/// In a larger file only the first syntax error is reported, because each mark can make one or two
/// of them, of two hundred bytes.
const MOST_MARKS_FOR_ALL_SYNTAX_ERRORS: usize = 500_000;
const BOM: &[u8] = b"\xef\xbb\xbf";
