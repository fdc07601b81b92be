//! Test files: requests and their expected decisions.

use std::ops::Range;
use std::time::Duration;

use tidegate::policy::{Diagnostic, Policy, PolicyErrors, Rule, Severity, readable};
use tidegate::{Timestamp, Wait};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::input::InputText;
use crate::rule_index::RuleIndex;
use crate::{format, similar};
use table::{CaseProblems, CaseTable};

mod table;

/// A test file.
#[derive(Debug)]
pub(crate) struct Cases {
    pub(crate) cases: Vec<Case>,
    /// Probable mistakes.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// The errors of a test file.
#[derive(Debug)]
pub(crate) struct CaseErrors {
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) left_out: usize,
}

/// A request and its expected decision.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: Option<String>,
    pub(crate) position: SourcePosition,
    pub(crate) at: Timestamp,
    pub(crate) domain: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) cost: u64,
    pub(crate) expected: Expected,
    pub(crate) repeat: u64,
    pub(crate) closes_round: bool,
}

/// Line and column in a file, from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The expected decision. `None` is not compared.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) verdict: ExpectedVerdict,
    pub(crate) rule: Option<String>,
    pub(crate) remaining: Option<u64>,
    pub(crate) wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedVerdict {
    Allow,
    Deny,
}

impl Cases {
    /// Parses a test file for a policy, and reports all errors at once.
    pub(crate) fn parse(input: &InputText, policy: &Policy) -> Result<Self, CaseErrors> {
        let text = readable(&input.name, &input.bytes).map_err(|errors| CaseErrors::of(&errors))?;
        let mut problems = CaseProblems::new(&input.name, text);
        let file = match DeTable::parse(text) {
            Ok(file) => file,
            Err(error) => {
                let span = error.span().unwrap_or(text.len()..text.len());
                problems.error(span, error.message(), None);
                DeTable::parse("").unwrap_or_else(|_| Spanned::new(0..0, DeTable::new()))
            }
        };
        let mut cases = Vec::new();
        if !problems.has_errors() {
            let mut reader = CaseReader {
                names: RuleIndex::new(policy),
                problems: &mut problems,
                start: START,
                last: None,
            };
            cases = reader.file(file.get_ref());
        }
        let has_errors = problems.has_errors();
        let (diagnostics, left_out) = problems.finish();
        match has_errors {
            true => Err(CaseErrors { diagnostics, left_out }),
            false => Ok(Self { cases, warnings: diagnostics }),
        }
    }
}

impl CaseErrors {
    fn of(errors: &PolicyErrors) -> Self {
        Self { diagnostics: errors.diagnostics().to_vec(), left_out: errors.left_out() }
    }
}

/// The reader of one file.
struct CaseReader<'r, 's> {
    names: RuleIndex<'r>,
    problems: &'r mut CaseProblems<'s>,
    /// The time that durations are relative to.
    start: Timestamp,
    /// The time of the previous case.
    last: Option<Timestamp>,
}

impl CaseReader<'_, '_> {
    fn file(&mut self, file: &DeTable<'_>) -> Vec<Case> {
        let mut table = CaseTable::new(file, 0..0, "the file", self.problems);
        table.reject_unknown(&["start", "case"]);
        let start = table.text("start").map(|text| time_of(&text));
        match start {
            Some(Ok(start)) => self.start = start,
            Some(Err(InvalidValue { message, hint })) => table.invalid("start", &message, hint),
            None => {}
        }
        let Some(value) = file.get("case") else {
            let hint = "add `[[case]]` with `expect = \"allow\"`";
            self.problems.error(0..0, "the file has no cases", Some(hint.into()));
            return Vec::new();
        };
        let DeValue::Array(array) = value.get_ref() else {
            let hint = Some("write `[[case]]`".into());
            self.problems.error(value.span(), "`case` must be a list of tables", hint);
            return Vec::new();
        };
        let mut cases = Vec::new();
        for value in array.iter() {
            match value.get_ref() {
                DeValue::Table(table) => cases.extend(self.case(table, value.span())),
                _ => self.problems.error(
                    value.span(),
                    "a case must be a table",
                    Some("write `[[case]]`".into()),
                ),
            }
        }
        cases
    }

    /// One case. All of its fields are read, so that all errors are reported.
    fn case(&mut self, table: &DeTable<'_>, span: Range<usize>) -> Option<Case> {
        let at = self.at(table, span.clone());
        let mut reader = CaseTable::new(table, span.clone(), "a case", self.problems);
        reader.reject_unknown(FIELDS);
        let name = reader.text("name");
        let domain = reader.text("domain");
        let attributes = reader.attributes("attributes");
        let cost = reader.integer("cost", 1);
        let repeat = reader.integer("repeat", 1);
        let closes_round = reader.boolean("close_round");
        let rule = reader.text("rule");
        let remaining = reader.integer("remaining", 0);
        let wait = reader.get("retry_after").and_then(|_| wait(&mut reader));
        let verdict = verdict(&mut reader);
        let domain = domain.unwrap_or_else(|| Rule::DEFAULT_DOMAIN.into());
        self.check_names(table, &domain, rule.as_deref());
        let verdict = verdict?;
        if let (ExpectedVerdict::Allow, Some(_), Some(value)) =
            (verdict, wait, table.get("retry_after"))
        {
            let message = "an allowed request has no `retry_after`";
            let hint = "remove it, or expect \"deny\"";
            self.problems.error(value.span(), message, Some(hint.into()));
        }
        let repeat = repeat.unwrap_or(1);
        if repeat > MOST_REPEATS {
            let message = format!("`repeat` must be at most {MOST_REPEATS}");
            self.problems.error(
                table.get("repeat").map_or(span.clone(), Spanned::span),
                &message,
                None,
            );
        }
        Some(Case {
            name,
            position: self.problems.position(span),
            at: at?,
            domain,
            attributes: attributes.unwrap_or_default(),
            cost: cost.unwrap_or(1),
            expected: Expected { verdict, rule, remaining, wait },
            repeat,
            closes_round: closes_round.unwrap_or(false),
        })
    }

    /// The time of a case.
    fn at(&mut self, table: &DeTable<'_>, span: Range<usize>) -> Option<Timestamp> {
        let last = self.last.unwrap_or(self.start);
        let mut reader = CaseTable::new(table, span, "a case", self.problems);
        let Some(value) = reader.get("at") else { return Some(last) };
        let at = match value.get_ref() {
            DeValue::Datetime(time) => time_of(&time.to_string()),
            _ => {
                let text = reader.text("at")?;
                if text.contains('T') || text.matches('-').count() > 1 {
                    time_of(&text)
                } else {
                    let since = format::duration_or_zero(&text);
                    since.map(|since| self.start.saturating_add(since)).map_err(|error| {
                        InvalidValue {
                            message: error.message().into(),
                            hint: error.hint().map(Into::into),
                        }
                    })
                }
            }
        };
        match at {
            Err(InvalidValue { message, hint }) => {
                self.problems.error(value.span(), &message, hint);
                None
            }
            Ok(at) if self.last.is_some_and(|last| at < last) => {
                let message =
                    format!("time runs backwards: the previous case is at {}", format::time(last));
                let hint = "cases run in order; move it up, or remove `at`";
                self.problems.error(value.span(), &message, Some(hint.into()));
                None
            }
            Ok(at) => {
                self.last = Some(at);
                Some(at)
            }
        }
    }

    /// Reports domains and rules that the policy does not have: probably typing mistakes.
    fn check_names(&mut self, table: &DeTable<'_>, domain: &str, rule: Option<&str>) {
        let span = |key: &str| table.get(key).map_or(0..0, Spanned::span);
        if let Some(hint) = self.names.unknown_domain_hint(domain) {
            let at = if table.contains_key("domain") { span("domain") } else { span("expect") };
            let message = format!("the policy has no rule in domain `{domain}`");
            self.problems.push(Severity::Warning, at, &message, Some(hint));
            return;
        }
        let Some(rule) = rule else { return };
        if let Some(hint) = self.names.unknown_rule_hint(domain, rule) {
            let message = format!("domain `{domain}` has no rule `{rule}`");
            self.problems.error(span("rule"), &message, Some(hint));
        }
    }
}

/// The error of a value, with a hint.
struct InvalidValue {
    message: String,
    hint: Option<String>,
}

fn time_of(text: &str) -> Result<Timestamp, InvalidValue> {
    match format::time_from_text(text) {
        Ok(time) => Ok(format::since_1970(time).unwrap_or(Timestamp::MAX)),
        Err(why) => Err(InvalidValue { message: why.message, hint: Some(why.hint.into()) }),
    }
}

fn verdict(reader: &mut CaseTable<'_, '_, '_>) -> Option<ExpectedVerdict> {
    if reader.get("expect").is_none() {
        let hint = "write `expect = \"allow\"` or `expect = \"deny\"`";
        reader.invalid_table("a case needs `expect`", hint);
        return None;
    }
    match &*reader.text("expect")? {
        "allow" => Some(ExpectedVerdict::Allow),
        "deny" => Some(ExpectedVerdict::Deny),
        other => {
            let hint = similar::hint(other, ["allow", "deny"], "possible values");
            reader.invalid("expect", &format!("`expect` cannot be `{other}`"), Some(hint));
            None
        }
    }
}

fn wait(reader: &mut CaseTable<'_, '_, '_>) -> Option<Wait> {
    let text = reader.duration_text("retry_after")?;
    match &*text {
        "never" => Some(Wait::Never),
        "unknown" => Some(Wait::Unknown),
        text => match format::duration_or_zero(text) {
            Ok(Duration::ZERO) => {
                let hint = "a denied request has a wait; did you mean to expect \"allow\"?";
                reader.invalid(
                    "retry_after",
                    "`retry_after` must be above zero",
                    Some(hint.into()),
                );
                None
            }
            Ok(wait) => Some(Wait::After(wait)),
            Err(error) => {
                reader.invalid("retry_after", error.message(), error.hint().map(Into::into));
                None
            }
        },
    }
}

/// The fields of a case.
const FIELDS: &[&str] = &[
    "name",
    "at",
    "domain",
    "attributes",
    "cost",
    "expect",
    "rule",
    "remaining",
    "retry_after",
    "repeat",
    "close_round",
];

/// 2026-01-01T00:00:00Z: a midnight, the first of a month and a year.
const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// With more, the command would seem to hang.
const MOST_REPEATS: u64 = 1_000_000;
