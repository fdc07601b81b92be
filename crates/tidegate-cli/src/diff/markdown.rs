//! A difference as Markdown.

use std::io::{self, Write};

use tidegate::policy::RuleChange;

use super::Diff;
use super::effect::{Effect, KeyChange, change};
use super::text::STARTS_FRESH;
use crate::format::{self, thousands, visible};

impl Diff {
    pub(crate) fn write_markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "### Policy\n")?;
        if self.difference.is_empty() {
            writeln!(out, "The policies are the same.")?;
        }
        for rule in &self.difference.rules {
            let id = format!("{} in domain {}", code(rule.rule.name()), code(rule.rule.domain()));
            match &rule.change {
                RuleChange::Added(text) => writeln!(out, "- {id} added: {}", plain(text))?,
                RuleChange::Removed(text) => writeln!(out, "- {id} removed: {}", plain(text))?,
                RuleChange::Changed(fields) => {
                    writeln!(out, "- {id} changed")?;
                    for field in fields {
                        writeln!(out, "  - {}", code(&field.to_string()))?;
                    }
                    if rule.starts_fresh {
                        writeln!(out, "  - {STARTS_FRESH}")?;
                    }
                }
            }
        }
        for field in &self.difference.settings {
            writeln!(out, "- settings: {}", code(&field.to_string()))?;
        }
        match &self.effect {
            Some(effect) => write_effect(effect, self.top, out),
            None => Ok(()),
        }
    }
}

fn write_effect(effect: &Effect, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let Effect { old, new, .. } = effect;
    writeln!(out, "\n### Effect on {} logged requests\n", thousands(new.totals.requests))?;
    writeln!(out, "| | before → after |\n|---|---|")?;
    writeln!(out, "| denied | {} |", change(old.totals.denied, new.totals.denied))?;
    let shadow = change(old.totals.shadow_denied, new.totals.shadow_denied);
    writeln!(out, "| denied in shadow mode | {shadow} |")?;
    writeln!(out, "| keys denied | {} |", change(old.keys_denied, new.keys_denied))?;
    for kind in KeyChange::ALL {
        let count = effect.keys(kind).count();
        if count == 0 {
            continue;
        }
        writeln!(out, "\n**{}: {}**\n", kind.text(), format::count(count, "key"))?;
        writeln!(out, "| key | denied |\n|---|---|")?;
        for key in effect.keys(kind).take(top) {
            let denied = change(key.old_denied, key.new_denied);
            writeln!(out, "| {} | {denied} |", code(&key.text()))?;
        }
        if count > top {
            writeln!(out, "| and {} more | |", thousands((count - top) as u64))?;
        }
    }
    Ok(())
}

/// Text as code, whatever is in it: keys come from clients.
fn code(text: &str) -> String {
    let text = visible(text).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let is_at_edge = text.starts_with('`') || text.ends_with('`') || text.is_empty();
    let space = if is_at_edge { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Text without meaning in Markdown.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in visible(text).chars() {
        if matches!(c, '\\' | '*' | '_' | '<' | '>' | '[' | ']' | '|' | '#' | '&' | '!') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{code, plain};

    #[test]
    fn a_key_stays_code_whatever_it_has() {
        assert_eq!(code("ip=1"), "`ip=1`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code("a|b\n"), "`a\\|b\u{fffd}`");
        assert_eq!(plain("<img> *x*"), "\\<img\\> \\*x\\*");
    }
}
