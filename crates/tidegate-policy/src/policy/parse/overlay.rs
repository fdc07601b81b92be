//! Parses stored edits over a policy: rules, overrides and bans.

use toml::de::DeValue;

use super::diagnostic_sink::DiagnosticSink;
use super::reader::{TableReader, kind_of};
use super::rule::{EmptyPatterns, conditions, read_conditions, read_until};
use super::{BoundedText, TableSpan, located, read_toml, readable, render, tables};
use crate::policy::diagnostic::{PolicyErrors, Source};
use crate::policy::fields::{BAN, OVERLAY, Section};
use crate::policy::limit::Algorithm;
use crate::policy::rule_fields::{self, OVERLAY_OVERRIDE, RULE};
use crate::policy::{Charging, Condition, Grant, Override, Rule, RuleId, check};

/// The edits in a text, in its order.
#[derive(Debug, Default)]
pub struct OverlayEdits {
    /// Rules in place of those of the file.
    pub rules: Vec<Rule>,
    /// Overrides, each with its rule.
    pub overrides: Vec<(RuleId, Override)>,
    /// Bans.
    pub bans: Vec<BanEntry>,
}

/// A ban as it is written.
#[derive(Debug)]
pub struct BanEntry {
    /// The domain it is for.
    pub domain: Box<str>,
    /// The keys it is for.
    pub conditions: Vec<Condition>,
    /// When it ends, since 1970 in UTC.
    pub until_ns: Option<u64>,
    /// What a response says about it.
    pub reason: Option<Box<str>>,
}

/// The edits in a text, or all errors in it.
pub fn parse(file: &str, bytes: &[u8]) -> Result<OverlayEdits, PolicyErrors> {
    let BoundedText { text, skipped, shape } = readable(file, bytes)?;
    let mut report = DiagnosticSink::default();
    let table = read_toml(text, &shape, &mut report);
    let mut all = TableReader::new(&mut report, table.get_ref(), 0..0, &OVERLAY);
    let (rules, overrides, bans) =
        (tables(&mut all, "rule"), tables(&mut all, "override"), tables(&mut all, "ban"));
    let edits = OverlayEdits {
        rules: each(&mut report, &rules, &RULE, rule_fields::read),
        overrides: each(&mut report, &overrides, &OVERLAY_OVERRIDE, read_override),
        bans: each(&mut report, &bans, &BAN, read_ban),
    };
    for finding in check::check(&edits.rules) {
        // An overlay needs no rule.
        if finding.rule.is_some() {
            report.push(located(finding, &rules));
        }
    }
    if report.has_errors() {
        let (diagnostics, left_out) = render(&Source::new(file, text, skipped), report);
        return Err(PolicyErrors::new(diagnostics, left_out));
    }
    Ok(edits)
}

fn each<T>(
    report: &mut DiagnosticSink,
    spans: &[TableSpan<'_>],
    section: &'static Section,
    read: impl Fn(&mut TableReader<'_, '_>) -> T,
) -> Vec<T> {
    let reader = |it: &TableSpan<'_>| {
        read(&mut TableReader::new(report, it.table, it.span.clone(), section))
    };
    spans.iter().map(reader).collect()
}

fn read_override(table: &mut TableReader<'_, '_>) -> (RuleId, Override) {
    let domain = table.text("domain").unwrap_or_default().into();
    let rule = RuleId { domain, name: table.text("rule").unwrap_or_default().into() };
    let key = conditions(table, "key");
    if key.is_empty() && table.value("key").is_some() {
        let hint = "name attributes of the rule's key: `key = { ip = \"192.0.2.7\" }`";
        table.refuse("key", "the override does not say for which keys", hint);
    }
    let until_ns = read_until(table);
    // As with a rule, a stand-in, so that further errors are found.
    let grant = read_grant(table).unwrap_or(Grant::Unlimited);
    (rule, Override { key, grant, until_ns })
}

/// No limit, or a limit in full, written as in a rule.
fn read_grant(table: &mut TableReader<'_, '_>) -> Option<Grant> {
    let limits = Algorithm::all_in(table);
    let is_unlimited = table.boolean("unlimited");
    if is_unlimited == Some(false) {
        let message = "`unlimited = false` has no effect";
        table.refuse("unlimited", message, "remove it, and add a limit");
        return None;
    }
    match (is_unlimited.is_some(), &*limits) {
        (true, []) => Some(Grant::Unlimited),
        (false, [algorithm]) => algorithm.read_in(table, Charging::Allowed)?.ok().map(Grant::Limit),
        (false, []) if table.value("unlimited").is_some() => None,
        (false, []) => {
            let hint = "add `unlimited = true`, or a limit of the kind that its rule has";
            table
                .lacks("the override changes nothing", format!("{hint}: `{}`", Algorithm::names()));
            None
        }
        (_, [.., last]) => {
            let message = "the override has two limits, or is unlimited and has one";
            table.refuse(last.field.name, message, "remove one of them");
            None
        }
    }
}

/// A ban. It may be one that never applies: an empty domain, or an attribute with no value.
fn read_ban(table: &mut TableReader<'_, '_>) -> BanEntry {
    BanEntry {
        domain: table.any_text("domain").unwrap_or_default().into(),
        conditions: read_ban_conditions(table),
        until_ns: read_until(table),
        reason: table.any_text("reason").map(Into::into),
    }
}

/// One table of conditions, or a list of them where an attribute has more than one condition.
fn read_ban_conditions(table: &mut TableReader<'_, '_>) -> Vec<Condition> {
    let Some(value) = table.value("match") else { return Vec::new() };
    let one = std::slice::from_ref(value);
    let tables = match value.get_ref() {
        DeValue::Array(tables) => tables.as_ref(),
        _ => one,
    };
    let mut conditions = Vec::new();
    for value in tables {
        match value.get_ref() {
            DeValue::Table(_) => {
                conditions.extend(read_conditions(table, "match", value, EmptyPatterns::Fine))
            }
            other => {
                let message = format!("`match` must be a table, not {}", kind_of(other));
                table.report.error(value.span(), message).hint = Some(
                    "write `match = { ip = \"192.0.2.7\" }`; `match = {}` is every request".into(),
                );
            }
        }
    }
    if value.get_ref().as_array().is_some_and(|tables| tables.is_empty()) {
        table.refuse("match", "`match` is empty", "`match = {}` is every request");
    }
    conditions
}
