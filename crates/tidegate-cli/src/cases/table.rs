//! Reads one table of a test file field by field, and collects the problems.

use std::ops::Range;

use tidegate::policy::{Diagnostic, PolicyErrors, Severity};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::SourcePosition;
use crate::similar;

/// The problems found in a file.
pub(super) struct CaseProblems<'s> {
    file: &'s str,
    text: &'s str,
    /// Offsets of the lines.
    lines: Vec<usize>,
    found: Vec<CaseProblem>,
    errors: usize,
}

struct CaseProblem {
    severity: Severity,
    span: Range<usize>,
    message: String,
    hint: Option<String>,
}

impl<'s> CaseProblems<'s> {
    pub(super) fn new(file: &'s str, text: &'s str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Self { file, text, lines, found: Vec::new(), errors: 0 }
    }

    pub(super) fn error(&mut self, span: Range<usize>, message: &str, hint: Option<String>) {
        self.push(Severity::Error, span, message, hint);
    }

    pub(super) fn push(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: &str,
        hint: Option<String>,
    ) {
        self.errors += usize::from(severity == Severity::Error);
        self.found.push(CaseProblem { severity, span, message: message.into(), hint });
    }

    pub(super) const fn has_errors(&self) -> bool {
        self.errors > 0
    }

    pub(super) fn position(&self, span: Range<usize>) -> SourcePosition {
        let starts = |at: &usize| self.text.is_char_boundary(*at);
        let at = (0..=span.start).rev().find(starts).unwrap_or(0);
        let line = self.lines.partition_point(|start| *start <= at).saturating_sub(1);
        let column = self.text[self.lines[line]..at].chars().count() + 1;
        SourcePosition { line: line + 1, column }
    }

    /// The problems in the order of the file, and how many were left out. If there are errors, all
    /// warnings are left out: an error may have caused them.
    pub(super) fn finish(mut self) -> (Vec<Diagnostic>, usize) {
        if self.has_errors() {
            self.found.retain(|problem| problem.severity == Severity::Error);
        }
        self.found.sort_by_key(|problem| problem.span.start);
        let left_out = self.found.len().saturating_sub(PolicyErrors::MOST);
        self.found.truncate(PolicyErrors::MOST);
        let (file, text) = (self.file, self.text);
        let diagnostic = |problem: CaseProblem| {
            let CaseProblem { severity, span, message, hint } = problem;
            let mut diagnostic = Diagnostic::in_text(severity, file, text, span, &message);
            diagnostic.hint = hint;
            diagnostic
        };
        (self.found.into_iter().map(diagnostic).collect(), left_out)
    }
}

/// Reader of one table. A value that is missing, or invalid and reported, is `None`.
pub(super) struct CaseTable<'p, 's, 't> {
    table: &'t DeTable<'t>,
    span: Range<usize>,
    what: &'static str,
    problems: &'p mut CaseProblems<'s>,
}

impl<'p, 's, 't> CaseTable<'p, 's, 't> {
    pub(super) fn new(
        table: &'t DeTable<'t>,
        span: Range<usize>,
        what: &'static str,
        problems: &'p mut CaseProblems<'s>,
    ) -> Self {
        Self { table, span, what, problems }
    }

    pub(super) fn reject_unknown(&mut self, known: &[&str]) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let message = format!("unknown field `{name}` in {}", self.what);
                let hint = similar::hint(name, known.iter().copied(), "fields");
                self.problems.error(key.span(), &message, Some(hint));
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.get(name)
    }

    /// Reports an invalid value of a field.
    pub(super) fn invalid(&mut self, name: &str, message: &str, hint: Option<String>) {
        let span = self.get(name).map_or_else(|| self.span.clone(), Spanned::span);
        self.problems.error(span, message, hint);
    }

    /// Reports an error of the whole table.
    pub(super) fn invalid_table(&mut self, message: &str, hint: &str) {
        self.problems.error(self.span.clone(), message, Some(hint.into()));
    }

    /// A text that is not empty.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.get(name)?.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => return Some(text.to_string()),
            DeValue::String(_) => self.invalid(name, &format!("`{name}` is empty"), None),
            DeValue::Datetime(time) => return Some(time.to_string()),
            DeValue::Integer(number) => {
                let hint = format!("write it in quotes: \"{number}\"");
                self.invalid(name, &format!("`{name}` must be text"), Some(hint));
            }
            _ => self.invalid(name, &format!("`{name}` must be text"), None),
        }
        None
    }

    /// The text of a duration, or a word in place of one.
    pub(super) fn duration_text(&mut self, name: &str) -> Option<String> {
        if let DeValue::Integer(number) = self.get(name)?.get_ref() {
            let hint = format!("write it as text with a unit: \"{number}s\"");
            self.invalid(name, &format!("`{name}` has no unit"), Some(hint));
            return None;
        }
        self.text(name)
    }

    pub(super) fn boolean(&mut self, name: &str) -> Option<bool> {
        if let DeValue::Boolean(boolean) = self.get(name)?.get_ref() {
            return Some(*boolean);
        }
        self.invalid(name, &format!("`{name}` must be true or false"), None);
        None
    }

    pub(super) fn integer(&mut self, name: &str, least: u64) -> Option<u64> {
        let DeValue::Integer(integer) = self.get(name)?.get_ref() else {
            self.invalid(name, &format!("`{name}` must be a whole number"), None);
            return None;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        match number.map(u64::try_from) {
            Some(Ok(number)) if number >= least && i64::try_from(number).is_ok() => {
                return Some(number);
            }
            Some(Ok(number)) if number < least => {
                self.invalid(name, &format!("`{name}` must be at least {least}"), None);
            }
            Some(Err(_)) if number < Some(0) => {
                self.invalid(name, &format!("`{name}` must be at least {least}"), None);
            }
            _ => self.invalid(name, &format!("`{name}` is too large"), None),
        }
        None
    }

    /// Names and values; a value is text or a whole number.
    pub(super) fn attributes(&mut self, name: &str) -> Option<Vec<(String, String)>> {
        let DeValue::Table(table) = self.get(name)?.get_ref() else {
            let hint = "write `attributes = { ip = \"192.0.2.1\" }`";
            self.invalid(name, &format!("`{name}` must be a table"), Some(hint.into()));
            return None;
        };
        let mut attributes = Vec::new();
        for (key, value) in table.iter() {
            let text = match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                DeValue::Integer(integer) => {
                    let number = i128::from_str_radix(integer.as_str(), integer.radix());
                    number.ok().map(|number| number.to_string())
                }
                _ => None,
            };
            match text {
                Some(text) => attributes.push((key.get_ref().to_string(), text)),
                None => {
                    let message = "an attribute must be text or a whole number";
                    let is_one = !matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_));
                    let hint = is_one.then(|| "write it in quotes".into());
                    self.problems.error(value.span(), message, hint);
                }
            }
        }
        Some(attributes)
    }
}
