//! Diagnostics as JSON and as GitHub annotations.

use serde_json::{Value, json};
use tidegate::policy::{Diagnostic, Severity};

use crate::input::ReadError;

/// A diagnostic as JSON. Without a position, line and column are null.
pub(crate) fn json(diagnostic: &Diagnostic) -> Value {
    let Diagnostic { severity, line, column, message, hint, note, .. } = diagnostic;
    let position = |number: usize| (*line > 0).then_some(number);
    json!({
        "severity": severity.to_string(),
        "line": position(*line),
        "column": position(*column),
        "message": message,
        "hint": hint,
        "note": note,
    })
}

/// The JSON diagnostic for an unreadable file.
pub(crate) fn unreadable_json(why: &ReadError) -> Value {
    json!({
        "severity": "error",
        "line": null,
        "column": null,
        "message": format!("cannot read the file: {}", why.message),
        "hint": why.hint,
        "note": null,
    })
}

/// The GitHub annotation for an unreadable file.
pub(crate) fn unreadable_github(why: &ReadError) -> String {
    let ReadError { name, message, hint } = why;
    let message = format!("cannot read the file: {message}");
    let (severity, hint) = (Severity::Error, hint.as_deref());
    Annotation { severity, file: name, position: None, message: &message, hint }.github()
}

/// An annotation at a line of a pull request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Annotation<'a> {
    pub(crate) severity: Severity,
    pub(crate) file: &'a str,
    /// Line and column, from 1.
    pub(crate) position: Option<(usize, usize)>,
    pub(crate) message: &'a str,
    pub(crate) hint: Option<&'a str>,
}

impl<'a> Annotation<'a> {
    pub(crate) fn of(diagnostic: &'a Diagnostic) -> Self {
        let Diagnostic { severity, file, line, column, message, hint, .. } = diagnostic;
        let position = (*line > 0).then_some((*line, *column));
        Self { severity: *severity, file, position, message, hint: hint.as_deref() }
    }

    /// The workflow command that creates the annotation.
    pub(crate) fn github(&self) -> String {
        let mut command = format!("::{} file={}", self.severity, property(self.file));
        if let Some((line, column)) = self.position {
            command += &format!(",line={line},col={column}");
        }
        let hint = self.hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        command + "::" + &data(&format!("{}{hint}", self.message))
    }
}

/// The message of a workflow command, escaped to one line.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command; unescaped `,` and `:` would end it.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests;
