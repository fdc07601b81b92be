//! One table of the file, read field by field according to the table of fields.

use std::ops::Range;
use std::time::Duration;

use tidegate_core::Rate;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::diagnostic_sink::DiagnosticSink;
use crate::policy::diagnostic::Origin;
use crate::policy::fields::{Field, MOST, Presence, REMOVED, Section, ValueKind};
use crate::policy::text::{self, TextError, quoted};
use crate::policy::words::Words;

/// Reads one table. Absent values, and invalid ones that have been reported, are `None`.
pub(crate) struct TableReader<'r, 't> {
    pub(crate) report: &'r mut DiagnosticSink,
    table: &'t DeTable<'t>,
    span: Range<usize>,
    section: &'static Section,
    /// The numbers of the rule, where this is the table of its override.
    base: Option<BaseTable<'t>>,
}

/// The table with the numbers of a rule, which those of an override replace.
#[derive(Clone, Copy)]
pub(crate) struct BaseTable<'t> {
    table: &'t DeTable<'t>,
    section: &'static Section,
}

/// A value of the file and its span.
pub(crate) type SpannedValue<'t> = Spanned<DeValue<'t>>;

impl<'r, 't> TableReader<'r, 't> {
    /// Reports unknown fields and missing required ones at once.
    pub(crate) fn new(
        report: &'r mut DiagnosticSink,
        table: &'t DeTable<'t>,
        span: Range<usize>,
        section: &'static Section,
    ) -> Self {
        let mut reader = Self { report, table, span, section, base: None };
        reader.reject_unknown();
        for field in section.fields {
            if field.need == Presence::Required && !table.contains_key(field.name) {
                let message = format!("{} needs `{}`", section.name, field.name);
                reader.lacks(message, format!("`{}`: {}", field.name, field.about));
            }
        }
        reader
    }

    fn reject_unknown(&mut self) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if self.section.field(name).is_some() {
                continue;
            }
            let message = format!("unknown field {} in {}", quoted(name), self.section.name);
            let names = self.section.fields.iter().map(|field| field.name);
            let removed = REMOVED.iter().find(|(field, _)| *field == name);
            let hint = match (removed, similar(name, names.clone())) {
                (Some((_, instead)), _) => (*instead).to_owned(),
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => format!("the fields are {}", listed(names)),
            };
            self.report.error(key.span(), message).hint = Some(hint);
        }
    }

    /// The span of the table.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The span of a field's value, or else of the table.
    pub(crate) fn span_of(&self, name: &str) -> Range<usize> {
        self.table.get(name).map_or_else(|| self.span(), Spanned::span)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'t SpannedValue<'t>> {
        debug_assert!(self.section.field(name).is_some(), "{name} is in the table of fields");
        self.table.get(name).or_else(|| self.base?.table.get(name))
    }

    /// This table, whose numbers are those of a rule that overrides replace.
    pub(crate) const fn as_base(&self) -> BaseTable<'t> {
        BaseTable { table: self.table, section: self.section }
    }

    /// The same override, whose absent numbers are those of its rule.
    pub(crate) fn over(&mut self, rule: BaseTable<'t>) -> TableReader<'_, 't> {
        TableReader { base: Some(rule), ..self.of_rule() }
    }

    /// The table of the rule, which has what an override cannot change; this one, if it is none.
    pub(crate) fn of_rule(&mut self) -> TableReader<'_, 't> {
        let BaseTable { table, section } = self.base.unwrap_or(self.as_base());
        TableReader { span: self.span(), report: self.report, table, section, base: None }
    }

    /// The names of the fields that are present.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        self.table.keys().map(|key| &**key.get_ref())
    }

    /// A text that is not empty.
    pub(crate) fn text(&mut self, name: &str) -> Option<&'t str> {
        let value = self.value(name)?;
        self.text_in(name, value)
    }

    pub(crate) fn text_in(&mut self, name: &str, value: &'t SpannedValue<'t>) -> Option<&'t str> {
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(text),
            DeValue::String(_) => self.reject(value.span(), format!("`{name}` is empty")),
            other => self.wrong_kind(name, value.span(), "text", other),
        }
    }

    /// A text that may be empty.
    pub(crate) fn any_text(&mut self, name: &str) -> Option<&'t str> {
        let value = self.value(name)?;
        match value.get_ref() {
            DeValue::String(text) => Some(text),
            other => self.wrong_kind(name, value.span(), "text", other),
        }
    }

    /// A text, parsed by a function.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, TextError>,
    ) -> Option<T> {
        let text = self.text(name)?;
        self.or_report(name, parse(text))
    }

    pub(crate) fn duration(&mut self, name: &str) -> Option<Duration> {
        let value = self.value(name)?;
        if let DeValue::Integer(number) = value.get_ref() {
            let hint = format!("write it as text with a unit: \"{number}s\"");
            self.refuse(name, format!("`{name}` has no unit"), hint);
            return None;
        }
        self.parsed(name, text::duration)
    }

    pub(crate) fn rate(&mut self, name: &str) -> Option<Rate> {
        let value = self.value(name)?;
        if let DeValue::Integer(number) = value.get_ref() {
            let hint = format!("write it as text: \"{number}/s\", \"{number} per 15m\"");
            self.refuse(name, format!("`{name}` has no period"), hint);
            return None;
        }
        self.parsed(name, text::rate)
    }

    /// One of the words that the table of fields has for this field.
    pub(crate) fn choice(&mut self, name: &str) -> Option<&'static str> {
        let value = self.value(name)?;
        let words = match self.section.field(name).map(|field| &field.kind) {
            Some(
                ValueKind::Choice(words)
                | ValueKind::ChoiceOr(words, _)
                | ValueKind::IntegerOr { words, .. }
                | ValueKind::FractionOr(words),
            ) => *words,
            _ => &[],
        };
        let DeValue::String(text) = value.get_ref() else {
            return self.wrong_kind(name, value.span(), "text", value.get_ref());
        };
        let known = words.iter().find(|word| **word == *text);
        if known.is_none() {
            let hint = match similar(text, words.iter().copied()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("use one of {}", in_quotes(words)),
            };
            self.refuse(name, format!("`{name}` cannot be {}", quoted(text)), hint);
        }
        known.copied()
    }

    /// The value whose word it is.
    pub(crate) fn word<T: Words>(&mut self, name: &str) -> Option<T> {
        let word = self.choice(name)?;
        T::WORDS.iter().zip(T::VALUES).find(|(known, _)| **known == word).map(|(_, value)| *value)
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, name: &str) -> Vec<Box<str>> {
        let list = self.list(name).unwrap_or_default();
        list.iter().filter_map(|text| self.text_in(name, text).map(Into::into)).collect()
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        let value = self.value(name)?;
        match value.get_ref() {
            DeValue::Boolean(boolean) => Some(*boolean),
            other => self.wrong_kind(name, value.span(), "true or false", other),
        }
    }

    /// A whole number, in the range that the table of fields has for this field.
    pub(crate) fn integer(&mut self, name: &str) -> Option<u64> {
        let value = self.value(name)?;
        let (min, max) = match self.section.field(name) {
            Some(Field { kind: ValueKind::Integer { min, max }, .. }) => (*min, *max),
            Some(Field { kind: ValueKind::IntegerOr { min, .. }, .. }) => (*min, MOST),
            _ => (1, MOST),
        };
        self.integer_in(name, value, min..=max)
    }

    pub(crate) fn integer_in(
        &mut self,
        name: &str,
        value: &'t SpannedValue<'t>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let DeValue::Integer(integer) = value.get_ref() else {
            return self.wrong_kind(name, value.span(), "a whole number", value.get_ref());
        };
        let message = match whole(integer) {
            None => format!("{} is too large", quoted(name)),
            Some(number) if number < i128::from(*range.start()) => {
                let why = if number == 0 { " (zero does not mean unlimited)" } else { "" };
                format!("{} must be at least {}{why}", quoted(name), range.start())
            }
            Some(number) => match u64::try_from(number) {
                Ok(number) if number <= *range.end() => return Some(number),
                _ => format!("{} must be at most {}", quoted(name), range.end()),
            },
        };
        self.reject(value.span(), message)
    }

    /// The reader of a table inside this one.
    pub(crate) fn table(&mut self, name: &str) -> Option<TableReader<'_, 't>> {
        let value = self.value(name)?;
        let section = match self.section.field(name)?.kind {
            ValueKind::Table(section) | ValueKind::ChoiceOr(_, section) => section,
            _ => return None,
        };
        match value.get_ref() {
            DeValue::Table(table) => {
                Some(TableReader::new(self.report, table, value.span(), section))
            }
            other => self.wrong_kind(name, value.span(), "a table", other),
        }
    }

    /// The elements of a list.
    pub(crate) fn list(&mut self, name: &str) -> Option<&'t [SpannedValue<'t>]> {
        let value = self.value(name)?;
        match value.get_ref() {
            DeValue::Array(array) => Some(array),
            other => self.wrong_kind(name, value.span(), "a list", other),
        }
    }

    /// The value, or `None` and a report at its field.
    pub(crate) fn or_report<T>(&mut self, name: &str, result: Result<T, TextError>) -> Option<T> {
        let span = self.span_of(name);
        self.or_report_at(span, result)
    }

    pub(crate) fn or_report_at<T>(
        &mut self,
        span: Range<usize>,
        result: Result<T, TextError>,
    ) -> Option<T> {
        result.map_err(|error| self.report.error(span, error.message).hint = error.hint).ok()
    }

    /// Reports an error at a field, and what to write instead.
    pub(crate) fn refuse(
        &mut self,
        name: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let span = self.span_of(name);
        self.report.error(span, message).hint = Some(hint.into());
    }

    /// Reports that something is absent, which may follow from an error of syntax.
    pub(crate) fn lacks(&mut self, message: impl Into<String>, hint: String) {
        let problem = self.report.error(self.span.clone(), message);
        (problem.hint, problem.origin) = (Some(hint), Origin::Absence);
    }

    pub(crate) fn reject<T>(&mut self, span: Range<usize>, message: String) -> Option<T> {
        self.report.error(span, message);
        None
    }

    pub(crate) fn wrong_kind<T>(
        &mut self,
        name: &str,
        span: Range<usize>,
        wanted: &str,
        found: &DeValue<'_>,
    ) -> Option<T> {
        let message = format!("{} must be {wanted}, not {}", quoted(name), kind_of(found));
        let problem = self.report.error(span, message);
        if let DeValue::String(text) = found
            && wanted == "a whole number"
            && !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
        {
            problem.hint = Some("write it without quotes".into());
        }
        None
    }
}

/// The value of an integer; `None` if it is beyond 128 bits.
pub(crate) fn whole(integer: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The kind of a value, for a message.
pub(crate) const fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The name that was probably meant.
fn similar<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const LONGEST: usize = 32;
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_lowercase().replace('-', "_");
    known
        .map(|known| (strsim::damerau_levenshtein(&name, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4 && *distance < known.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Words in quotes, for a hint.
fn in_quotes(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}
