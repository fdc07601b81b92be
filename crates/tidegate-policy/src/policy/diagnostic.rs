//! Diagnostics of a policy file: where, what, and what to do about it.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::secrets::without_secrets;
use super::text::char_start;

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The policy can be used, but probably has a mistake.
    Warning,
    /// The policy cannot be used.
    Error,
}

/// One error or warning in a policy.
///
/// As text it has the position, the line, carets under the span, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The name of the file, as given to the parser.
    pub file: Arc<str>,
    /// The line, from 1; 0 where there is no file, because the rules were built in code.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The bytes of the file that it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Another position that it refers to.
    pub note: Option<String>,
    excerpt: Option<Excerpt>,
}

/// The excerpt of a line, and the position of the carets; both in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    marks_at: usize,
    marks: usize,
}

/// All errors and warnings of a policy, in the order of the file. At least one is an error.
#[derive(Clone, PartialEq, Eq)]
pub struct PolicyErrors {
    diagnostics: Vec<Diagnostic>,
    left_out: usize,
}

impl PolicyErrors {
    /// The maximum that is reported; the others are counted.
    pub const MOST: usize = 100;

    pub(crate) const fn new(diagnostics: Vec<Diagnostic>, left_out: usize) -> Self {
        Self { diagnostics, left_out }
    }

    /// The errors and warnings.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// How many more there are.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            diagnostic.fmt(f)?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\n")?;
        fmt::Display::fmt(self, f)
    }
}

impl Error for PolicyErrors {}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        }
        write!(f, "{}: {}", self.severity, self.message)?;
        let number = if self.line > 0 { self.line.to_string() } else { String::new() };
        let margin = number.len();
        if let Some(excerpt) = &self.excerpt {
            let Excerpt { text, marks_at, marks } = excerpt;
            write!(f, "\n{:margin$} |\n{number} | {text}", "")?;
            write!(f, "\n{:margin$} | {:marks_at$}{:^<marks$}", "", "", "")?;
        }
        for (label, text) in [("note", &self.note), ("hint", &self.hint)] {
            if let Some(text) = text {
                write!(f, "\n{:margin$} = {label}: {text}", "")?;
            }
        }
        Ok(())
    }
}

impl Diagnostic {
    /// A diagnostic about a part of a text, for other files that belong to a policy. The span is in
    /// bytes of the text.
    #[must_use]
    pub fn in_text(
        severity: Severity,
        file_name: &str,
        text: &str,
        span: Range<usize>,
        message: &str,
    ) -> Self {
        let span = span.start.min(text.len())..span.end.min(text.len());
        let problem = RawDiagnostic::new(severity, span, message.to_owned());
        Source::new(file_name, text, 0).diagnostic(problem)
    }
}

/// A diagnostic as it is found: in bytes of the text.
#[derive(Clone, Debug)]
pub(crate) struct RawDiagnostic {
    pub(crate) severity: Severity,
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) note: Option<RelatedSpan>,
    pub(crate) origin: Origin,
}

/// Another position that a diagnostic refers to.
#[derive(Clone, Debug)]
pub(crate) struct RelatedSpan {
    pub(crate) span: Range<usize>,
    pub(crate) text: &'static str,
}

/// How a diagnostic was found, which shows whether it may follow from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The text is not TOML.
    Syntax,
    /// The text is not TOML from here on.
    Unclosed,
    /// A value is wrong.
    Meaning,
    /// Something is missing. Where the text is not TOML it may just not have been parsed.
    Absence,
}

impl Origin {
    pub(crate) const fn is_syntax(self) -> bool {
        matches!(self, Self::Syntax | Self::Unclosed)
    }
}

impl RawDiagnostic {
    pub(crate) fn new(severity: Severity, span: Range<usize>, message: String) -> Self {
        let origin = Origin::Meaning;
        Self { severity, span, message, hint: None, note: None, origin }
    }
}

/// The text of a file and where its lines begin.
pub(crate) struct Source<'a> {
    file: Arc<str>,
    text: &'a str,
    line_starts: Vec<usize>,
    /// Bytes in front of the text that are not part of it.
    skipped: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn new(file: &str, text: &'a str, skipped: usize) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let line_starts = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { file: file.into(), text, line_starts, skipped }
    }

    /// The line of a byte, from 0.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at).saturating_sub(1)
    }

    pub(crate) fn diagnostic(&self, problem: RawDiagnostic) -> Diagnostic {
        let start = char_start(self.text, problem.span.start);
        let end = (problem.span.end..self.text.len()).find(|&at| self.text.is_char_boundary(at));
        let end = end.unwrap_or(self.text.len()).max(start);
        let (line, column) = self.line_and_column(start);
        let note = problem.note;
        let note = note.map(|it| format!("{} at {}", it.text, self.position(it.span.start)));
        Diagnostic {
            severity: problem.severity,
            file: Arc::clone(&self.file),
            line,
            column,
            span: start + self.skipped..end + self.skipped,
            message: clean(&problem.message),
            hint: problem.hint.as_deref().map(clean),
            note,
            excerpt: Some(self.excerpt(start, end)),
        }
    }

    /// The position of a byte, as `file:line:column`.
    pub(crate) fn position(&self, at: usize) -> String {
        let (line, column) = self.line_and_column(char_start(self.text, at));
        format!("{}:{line}:{column}", self.file)
    }

    /// Line and column of a byte, from 1.
    fn line_and_column(&self, at: usize) -> (usize, usize) {
        let line = self.line_of(at);
        (line + 1, self.text[self.line_starts[line]..at].chars().count() + 1)
    }

    /// The line around a position, cut to the width of a screen.
    fn excerpt(&self, start: usize, end: usize) -> Excerpt {
        const BEFORE: usize = 60;
        const WIDTH: usize = 100;
        let line_start = self.line_starts[self.line_of(start)];
        let line_end = self.line_starts.get(self.line_of(start) + 1).copied();
        let line_end = line_end.unwrap_or(self.text.len());
        let line = without_secrets(&self.text[line_start..line_end]);
        let (start, end) = (start - line_start, end.min(line_end) - line_start);
        let before: Vec<char> = line[..start].chars().rev().take(BEFORE).collect();
        let is_cut = before.iter().map(|c| c.len_utf8()).sum::<usize>() < start;
        let mut text: String = if is_cut { "…".into() } else { String::new() };
        text.extend(before.into_iter().rev().map(visible));
        let marks_at = text.chars().count();
        let room = WIDTH - marks_at;
        let mut after = line[start..].trim_end_matches(['\n', '\r']).chars();
        text.extend(after.by_ref().take(room).map(visible));
        if after.next().is_some() {
            text.push('…');
        }
        let marked = &line[start..end];
        let marks = marked.trim_end_matches(['\n', '\r']).chars().take(room).count().max(1);
        Excerpt { text, marks_at, marks }
    }
}

/// A diagnostic about rules that were built in code.
pub(crate) fn without_position(
    severity: Severity,
    message: String,
    hint: Option<String>,
) -> Diagnostic {
    Diagnostic {
        severity,
        file: "".into(),
        line: 0,
        column: 0,
        span: 0..0,
        message,
        hint,
        note: None,
        excerpt: None,
    }
}

/// A message, of which a part may have come from the file: bounded, and harmless on a terminal.
fn clean(message: &str) -> String {
    const LONGEST: usize = 600;
    let mut clean: String = message.chars().take(LONGEST).map(visible).collect();
    if message.chars().nth(LONGEST).is_some() {
        clean.push('…');
    }
    clean
}

/// One column for each character, and nothing that a terminal acts on.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() || is_invisible(c) => '\u{fffd}',
        c => c,
    }
}

/// Characters without width, and those that change the direction of the text around them.
pub(crate) const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
