//! The values of a rule's fields.

use toml::de::{DeTable, DeValue};

use super::reader::{BaseTable, SpannedValue, TableReader, whole};
use crate::policy::fields::MOST;
use crate::policy::limit::Algorithm;
use crate::policy::rule_fields::OVERRIDE;
use crate::policy::text::{TextError, quoted};
use crate::policy::{
    Charging, Condition, CostTable, Grant, Key, OnError, Override, Pattern, Share, key,
};

pub(in crate::policy) fn charging(table: &mut TableReader<'_, '_>) -> Charging {
    let is_postpaid = table.boolean("postpaid").unwrap_or(false);
    let charges_refused = table.boolean("charge_refused").unwrap_or(false);
    if is_postpaid && charges_refused {
        let message = "a postpaid rule charges denied requests";
        table.refuse("charge_refused", message, "remove `charge_refused`");
    }
    match (is_postpaid, charges_refused) {
        (true, _) => Charging::Postpaid,
        (false, true) => Charging::Refused,
        (false, false) => Charging::Allowed,
    }
}

pub(in crate::policy) fn on_error(table: &mut TableReader<'_, '_>) -> Option<OnError> {
    match table.value("on_error")?.get_ref() {
        DeValue::Table(_) => read_share(&mut table.table("on_error")?, "local").map(OnError::Local),
        DeValue::String(_) => match table.choice("on_error")? {
            "allow" => Some(OnError::Allow),
            _ => Some(OnError::Deny),
        },
        other => {
            let wanted = "\"allow\", \"deny\" or { local = 0.25 }";
            table.wrong_kind("on_error", table.span_of("on_error"), wanted, other)
        }
    }
}

/// A share of the limit.
fn read_share(table: &mut TableReader<'_, '_>, name: &str) -> Option<Share> {
    let value = table.value(name)?;
    let text = match value.get_ref() {
        DeValue::Float(float) => float.as_str(),
        DeValue::Integer(integer) => integer.as_str(),
        other => return table.wrong_kind(name, value.span(), "a fraction", other),
    };
    table.or_report(name, Share::parse(text))
}

/// The one algorithm of the rule.
pub(in crate::policy) fn algorithm(table: &mut TableReader<'_, '_>) -> Option<&'static Algorithm> {
    match Algorithm::all_in(table)[..] {
        [algorithm] => Some(algorithm),
        [] => {
            let hint = format!("give it one of `{}`", Algorithm::names());
            table.lacks("the rule has no limit", hint);
            None
        }
        [first, second, ..] => {
            let (first, second) = (first.field.name, second.field.name);
            let message = format!("the rule has two limits, `{first}` and `{second}`");
            let hint = "write a second rule; a request is allowed if both allow it";
            table.refuse(second, message, hint);
            None
        }
    }
}

pub(in crate::policy) fn key(table: &mut TableReader<'_, '_>) -> Key {
    let mut key = Key::default();
    if let Some(value) = table.value("key")
        && let DeValue::String(text) = value.get_ref()
    {
        let hint = format!("write `key = [\"{}\"]`", quoted(text).trim_matches('`'));
        table.refuse("key", "`key` must be a list, not text", hint);
        return key;
    }
    for value in table.list("key").unwrap_or_default() {
        if let Some(text) = table.text_in("key", value) {
            let added = key.add(text);
            table.or_report_at(value.span(), added);
        }
    }
    key
}

/// Whether an attribute may have no pattern at all, so that no value matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EmptyPatterns {
    Refused,
    Fine,
}

/// Attributes and their patterns, in the order in which they are written.
pub(super) fn read_conditions<'t>(
    table: &mut TableReader<'_, 't>,
    name: &str,
    value: &'t SpannedValue<'t>,
    nothing: EmptyPatterns,
) -> Vec<Condition> {
    let DeValue::Table(attributes) = value.get_ref() else {
        let _: Option<()> = table.wrong_kind(name, value.span(), "a table", value.get_ref());
        return Vec::new();
    };
    let mut conditions = Vec::new();
    for (attribute, patterns) in in_file_order(attributes) {
        table.or_report_at(attribute.span(), key::attribute_name(attribute.get_ref()));
        let any_of = match patterns.get_ref() {
            DeValue::Array(list) => {
                if list.is_empty() && nothing == EmptyPatterns::Refused {
                    let message = format!("{} has no patterns", quoted(attribute.get_ref()));
                    table.report.error(patterns.span(), message).hint =
                        Some("remove the attribute, or list its values".into());
                }
                list.iter().filter_map(|pattern| read_pattern(table, pattern)).collect()
            }
            _ => read_pattern(table, patterns).into_iter().collect(),
        };
        conditions.push(Condition { attribute: attribute.get_ref().as_ref().into(), any_of });
    }
    conditions
}

fn read_pattern<'t>(
    table: &mut TableReader<'_, 't>,
    value: &'t SpannedValue<'t>,
) -> Option<Pattern> {
    match value.get_ref() {
        DeValue::String(text) => table.or_report_at(value.span(), Pattern::read(text)),
        DeValue::Integer(integer) => match whole(integer) {
            Some(number) => Some(Pattern::Equals(number.to_string().into())),
            None => table.reject(value.span(), "the number is too large".into()),
        },
        other => table.wrong_kind("a pattern", value.span(), "text or a whole number", other),
    }
}

pub(in crate::policy) fn cost(table: &mut TableReader<'_, '_>) -> Option<CostTable> {
    let value = table.value("cost")?;
    let rows = match value.get_ref() {
        DeValue::Integer(_) => return table.integer("cost").map(CostTable::fixed),
        DeValue::Table(rows) => rows,
        other => return table.wrong_kind("cost", value.span(), "a number or a table", other),
    };
    let by = match rows.get("by").map(|by| (by, by.get_ref())) {
        Some((_, DeValue::String(by))) if !by.is_empty() => by,
        Some((by, DeValue::String(_))) => return table.reject(by.span(), "`by` is empty".into()),
        Some((by, other)) => return table.wrong_kind("by", by.span(), "text", other),
        None => {
            let hint = "write `cost = { by = \"tier\", \"1..=4\" = 1, \"5..\" = 2 }`";
            table.refuse("cost", "a cost table needs `by`", hint);
            return None;
        }
    };
    let mut costs = CostTable::by(by);
    for (pattern, cost) in in_file_order(rows).into_iter().filter(|(key, _)| key.get_ref() != "by")
    {
        let pattern_read = table.or_report_at(pattern.span(), Pattern::read(pattern.get_ref()));
        let cost = table.integer_in(pattern.get_ref(), cost, 1..=MOST);
        if let (Some(pattern), Some(cost)) = (pattern_read, cost) {
            costs = costs.row(pattern, cost);
        }
    }
    Some(costs)
}

/// The entries of a table in the order in which they are written.
fn in_file_order<'t>(
    table: &'t DeTable<'t>,
) -> Vec<(&'t toml::Spanned<toml::de::DeString<'t>>, &'t SpannedValue<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

pub(in crate::policy) fn overrides(
    table: &mut TableReader<'_, '_>,
    algorithm: &Algorithm,
    charging: Charging,
) -> Vec<Override> {
    // They have been read before, so this reports nothing twice.
    let Some(own) = algorithm.numbers_in(table).map(|it| it.as_base()) else { return Vec::new() };
    let list = table.list("override").unwrap_or_default();
    let mut overrides = Vec::new();
    for value in list {
        let DeValue::Table(inner) = value.get_ref() else {
            let _: Option<()> =
                table.wrong_kind("override", value.span(), "a table", value.get_ref());
            continue;
        };
        let mut reader = TableReader::new(table.report, inner, value.span(), &OVERRIDE);
        let grant = read_grant(&mut reader, algorithm, own, charging);
        let key = conditions(&mut reader, "key");
        let until_ns = read_until(&mut reader);
        overrides.push(Override {
            key,
            // As with a rule, only to find more errors.
            grant: grant.unwrap_or(Grant::Unlimited),
            until_ns,
        });
    }
    overrides
}

/// The conditions in a field.
pub(in crate::policy) fn conditions(table: &mut TableReader<'_, '_>, name: &str) -> Vec<Condition> {
    let value = table.value(name);
    let read = |value| read_conditions(table, name, value, EmptyPatterns::Refused);
    value.map(read).unwrap_or_default()
}

/// The limit is the rule's with the numbers of the override in place of its own.
fn read_grant<'t>(
    table: &mut TableReader<'_, 't>,
    algorithm: &Algorithm,
    rule: BaseTable<'t>,
    charging: Charging,
) -> Option<Grant> {
    let errors_before = table.report.errors();
    let (name_of_rule, own) = (algorithm.field.name, algorithm.overridable);
    let mut has_numbers = false;
    for name in table.keys() {
        if own.contains(&name) {
            has_numbers = true;
        } else if !["key", "unlimited", "until"].contains(&name) && OVERRIDE.field(name).is_some() {
            let message = format!("an override of `{name_of_rule}` cannot set `{name}`");
            table.refuse(name, message, format!("it can set `{}`", own.join("`, `")));
        }
    }
    let is_unlimited = table.boolean("unlimited");
    if is_unlimited == Some(false) {
        let message = "`unlimited = false` has no effect";
        table.refuse("unlimited", message, "remove it, and give numbers");
    }
    if is_unlimited == Some(true) && has_numbers {
        let message = "the override is unlimited and has numbers";
        table.refuse("unlimited", message, "remove one of them");
    }
    if is_unlimited.is_none() && !has_numbers {
        let hint = format!("give it `unlimited = true`, or `{}`", own.join("`, `"));
        table.lacks("the override changes nothing", hint);
    }
    if is_unlimited == Some(true) {
        return Some(Grant::Unlimited);
    }
    let limit = algorithm.read(&mut table.over(rule), charging, errors_before)?;
    limit.ok().map(Grant::Limit)
}

/// A time in nanoseconds since 1970.
pub(super) fn read_until(table: &mut TableReader<'_, '_>) -> Option<u64> {
    let value = table.value("until")?;
    let text = match value.get_ref() {
        DeValue::Datetime(time) => time.to_string(),
        DeValue::String(text) => text.to_string(),
        other => return table.wrong_kind("until", value.span(), "a time", other),
    };
    let time = text.parse::<jiff::Timestamp>();
    let ns = time.ok().and_then(|time| u64::try_from(time.as_nanosecond()).ok());
    let problem = || {
        TextError::new(format!("{} is not an RFC 3339 time", quoted(&text)))
            .hint("write \"2027-01-01T00:00:00Z\" or \"2027-01-01T02:00:00+02:00\"")
    };
    table.or_report("until", ns.ok_or_else(problem))
}
