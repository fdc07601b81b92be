//! Edits over a policy, as they are kept: rules, overrides and bans.

use toml::de::DeValue;

use super::diagnostic_sink::DiagnosticSink;
use super::limits::LimitDraft;
use super::reader::{TableReader, kind_of};
use super::rule::{self, EmptyPatterns, build, read_conditions, read_override_key, read_until};
use super::{BoundedText, TableSpan, located, read_toml, readable, render, tables};
use crate::policy::diagnostic::{Origin, PolicyErrors, Source};
use crate::policy::fields::{ALGORITHMS, BAN, OVERLAY, OVERLAY_OVERRIDE, RULE, Section};
use crate::policy::{Condition, Grant, Override, Rule, check};

/// What a text says about edits, in its order.
#[derive(Debug, Default)]
pub(crate) struct OverlayEdits {
    pub(crate) rules: Vec<Rule>,
    /// Domain and name of a rule, and an override for it.
    pub(crate) overrides: Vec<(Box<str>, Box<str>, Override)>,
    pub(crate) bans: Vec<BanEntry>,
}

/// Somebody who is refused.
#[derive(Debug)]
pub(crate) struct BanEntry {
    pub(crate) domain: Box<str>,
    pub(crate) who: Vec<Condition>,
    pub(crate) until_ns: Option<u64>,
    pub(crate) reason: Option<Box<str>>,
}

/// The edits that a text says, or everything that is wrong with it.
pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<OverlayEdits, PolicyErrors> {
    let BoundedText { text, skipped, shape } = readable(file, bytes)?;
    let mut report = DiagnosticSink::default();
    let table = read_toml(text, &shape, &mut report);
    let mut all = TableReader::new(&mut report, table.get_ref(), 0..0, &OVERLAY);
    let (rules, overrides, bans) =
        (tables(&mut all, "rule"), tables(&mut all, "override"), tables(&mut all, "ban"));
    let edits = OverlayEdits {
        rules: each(&mut report, &rules, &RULE, rule::read),
        overrides: each(&mut report, &overrides, &OVERLAY_OVERRIDE, read_override),
        bans: each(&mut report, &bans, &BAN, read_ban),
    };
    for finding in check::check(&edits.rules) {
        // Edits without a rule are fine.
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
    places: &[TableSpan<'_, '_>],
    section: &'static Section,
    read: impl Fn(&mut TableReader<'_, '_, '_>) -> T,
) -> Vec<T> {
    let reader = |place: &TableSpan<'_, '_>| {
        read(&mut TableReader::new(report, place.table, place.span.clone(), section))
    };
    places.iter().map(reader).collect()
}

fn read_override(table: &mut TableReader<'_, '_, '_>) -> (Box<str>, Box<str>, Override) {
    let domain = table.text("domain").unwrap_or_default().into();
    let rule = table.text("rule").unwrap_or_default().into();
    let key = read_override_key(table);
    if key.is_empty() && table.value("key").is_some() {
        let span = table.span_of("key");
        table.report.error(span, "the override does not say for which keys").hint =
            Some("name attributes of the rule's key: `key = { ip = \"192.0.2.7\" }`".into());
    }
    let until_ns = read_until(table);
    // As with a rule, only good for finding out what else is wrong.
    let grant = read_grant(table).unwrap_or(Grant::Unlimited);
    (domain, rule, Override { key, grant, until_ns })
}

/// No limit, or a limit in full, as a rule says it.
fn read_grant(table: &mut TableReader<'_, '_, '_>) -> Option<Grant> {
    let limits: Vec<_> =
        ALGORITHMS.iter().copied().filter(|name| table.value(name).is_some()).collect();
    let is_unlimited = table.boolean("unlimited");
    if is_unlimited == Some(false) {
        let span = table.span_of("unlimited");
        table.report.error(span, "`unlimited = false` says nothing").hint =
            Some("leave it out, and give a limit".into());
        return None;
    }
    match (is_unlimited.is_some(), &*limits) {
        (true, []) => Some(Grant::Unlimited),
        (false, [algorithm]) => {
            let draft = LimitDraft::of_rule(table, algorithm)?;
            build(table, algorithm, &draft).map(Grant::Limit)
        }
        (false, []) if table.value("unlimited").is_some() => None,
        (false, []) => {
            let problem = table.report.error(table.span(), "the override changes nothing");
            problem.hint = Some(format!(
                "give it `unlimited = true`, or the kind of limit that its rule has: `{}`",
                ALGORITHMS.join("`, `")
            ));
            problem.origin = Origin::Absence;
            None
        }
        (_, [.., last]) => {
            let message = "the override has two limits, or is unlimited and has one";
            table.report.error(table.span_of(last), message).hint =
                Some("leave out one of them".into());
            None
        }
    }
}

/// A ban. It can be for what never happens, an empty domain or an attribute that can be nothing.
fn read_ban(table: &mut TableReader<'_, '_, '_>) -> BanEntry {
    BanEntry {
        domain: table.any_text("domain").unwrap_or_default().into(),
        who: read_ban_conditions(table),
        until_ns: read_until(table),
        reason: table.any_text("reason").map(Into::into),
    }
}

/// One table of conditions, or a list of them where an attribute has to meet more than one.
fn read_ban_conditions(table: &mut TableReader<'_, '_, '_>) -> Vec<Condition> {
    let Some(value) = table.value("who") else { return Vec::new() };
    let one = std::slice::from_ref(value);
    let tables = match value.get_ref() {
        DeValue::Array(tables) => tables.as_ref(),
        _ => one,
    };
    let mut who = Vec::new();
    for value in tables {
        match value.get_ref() {
            DeValue::Table(_) => {
                who.extend(read_conditions(table, "who", value, EmptyPatterns::Fine))
            }
            other => {
                let message = format!("`who` must be a table, not {}", kind_of(other));
                table.report.error(value.span(), message).hint =
                    Some("write `who = { ip = \"192.0.2.7\" }`; everybody is `who = {}`".into());
            }
        }
    }
    if value.get_ref().as_array().is_some_and(|tables| tables.is_empty()) {
        table.report.error(value.span(), "`who` says nothing").hint =
            Some("everybody is `who = {}`".into());
    }
    who
}
