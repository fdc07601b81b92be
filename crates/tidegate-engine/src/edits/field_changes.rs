//! What an edit changed in a rule: the fields that differ, as in a policy file.

use tidegate_policy::policy::{FieldChange, Rule};

/// The fields of two versions of a rule that differ, one in each line: `window.max = 3`.
pub(crate) fn between(before: &Rule, after: &Rule) -> (String, String) {
    let changes = before.changed_fields(after);
    let of = |value: fn(&FieldChange) -> Option<&String>| {
        let line = |it: &FieldChange| value(it).map(|value| format!("{} = {value}", it.field));
        lines(changes.iter().filter_map(line).collect())
    };
    (of(|it| it.before.as_ref()), of(|it| it.after.as_ref()))
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
    let mut changes = Vec::new();
    for (name, value) in old {
        let at = new.iter().position(|(known, _)| *known == name);
        let later = at.map(|at| new.remove(at).1);
        changes.push(FieldChange::new(name, Some(value), later).to_string());
    }
    let added = new.into_iter().map(|(name, value)| FieldChange::new(name, None, Some(value)));
    changes.extend(added.map(|change| change.to_string()));
    changes.join(", ")
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
