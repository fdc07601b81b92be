//! What an edit changed in a rule: the fields that differ, as in a policy file.

use std::collections::HashSet;

use tidegate_policy::internal::override_table;
use tidegate_policy::policy::Rule;
use toml::de::{DeTable, DeValue};

/// The fields of two versions of a rule that differ, one in each line: `window.max = 3`.
pub(crate) fn between(before: &Rule, after: &Rule) -> (String, String) {
    let (old, new) = (fields(before), fields(after));
    let (mut earlier, mut later) = (missing_in(&old, &new), missing_in(&new, &old));
    let overrides = |rule: &Rule| -> Vec<String> {
        let table = |it| format!("override = {}", override_table(rule, it));
        rule.overrides().iter().map(table).collect()
    };
    let (old, new) = (overrides(before), overrides(after));
    earlier.extend(missing_in(&old, &new));
    later.extend(missing_in(&new, &old));
    if earlier.is_empty() && later.is_empty() {
        // The same overrides in another order.
        (earlier, later) = (old, new);
    }
    (lines(earlier), lines(later))
}

/// The differences in one line: `window.max 3 → 30`.
pub(super) fn describe(before: &str, after: &str) -> String {
    let split = |text: &'_ str| -> Option<Vec<(String, String)>> {
        let pair = |line: &str| line.split_once(" = ").map(|(name, it)| (name.into(), it.into()));
        text.lines().map(pair).collect()
    };
    // Logs of earlier versions have sentences.
    let (Some(old), Some(mut new)) = (split(before), split(after)) else {
        return format!("{before} → {after}");
    };
    let mut parts = Vec::new();
    for (name, value) in old {
        match new.iter().position(|(known, _)| *known == name) {
            Some(at) => parts.push(format!("{name} {value} → {}", new.remove(at).1)),
            None => parts.push(format!("{name} {value} removed")),
        }
    }
    parts.extend(new.into_iter().map(|(name, value)| format!("{name} {value} added")));
    parts.join(", ")
}

/// The fields of a rule but its overrides, with their tables in front: `window.max = 3`.
fn fields(rule: &Rule) -> Vec<String> {
    let text = rule.clone().with_overrides(Vec::new()).to_toml();
    let text = text.strip_prefix("[[rule]]\n").unwrap_or(&text);
    let mut fields = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        add_fields("", (table.get_ref(), text), &mut fields);
    }
    fields
}

fn add_fields(prefix: &str, (table, text): (&DeTable<'_>, &str), fields: &mut Vec<String>) {
    for (name, value) in table {
        let name = format!("{prefix}{}", name.get_ref().escape_debug());
        match value.get_ref() {
            DeValue::Table(inner) => add_fields(&format!("{name}."), (inner, text), fields),
            _ => {
                let value = text.get(value.span()).unwrap_or_default().replace('\n', " ");
                fields.push(format!("{name} = {value}"));
            }
        }
    }
}

fn missing_in(lines: &[String], others: &[String]) -> Vec<String> {
    let others: HashSet<&String> = others.iter().collect();
    lines.iter().filter(|line| !others.contains(line)).cloned().collect()
}

/// The lines as one text, of a bounded size.
fn lines(mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    if more > 0 {
        lines.push(format!("more = {more}"));
    }
    lines.join("\n")
}

/// The most lines of a description.
const MOST_LINES: usize = 8;

#[cfg(test)]
mod tests;
