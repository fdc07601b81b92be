//! A difference as text.

use std::io::{self, Write};

use tidegate::policy::{RuleChange, RuleDifference};

use super::Diff;
use super::effect::{Effect, KeyChange, change};
use crate::format::{self, thousands, visible};

impl Diff {
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.difference.is_empty() {
            writeln!(out, "the policies are the same")?;
        }
        for rule in &self.difference.rules {
            write_rule(rule, out)?;
        }
        if !self.difference.settings.is_empty() {
            writeln!(out, "settings changed")?;
            for field in &self.difference.settings {
                writeln!(out, "  {}", visible(&field.to_string()))?;
            }
        }
        match &self.effect {
            Some(effect) => write_effect(effect, self.top, out),
            None => Ok(()),
        }
    }
}

fn write_rule(rule: &RuleDifference, out: &mut dyn Write) -> io::Result<()> {
    let id = visible(&rule.rule.to_string());
    match &rule.change {
        RuleChange::Added(description) => {
            writeln!(out, "rule {id} added\n  {}", visible(description))
        }
        RuleChange::Removed(description) => {
            writeln!(out, "rule {id} removed\n  {}", visible(description))
        }
        RuleChange::Changed(fields) => {
            writeln!(out, "rule {id} changed")?;
            for field in fields {
                writeln!(out, "  {}", visible(&field.to_string()))?;
            }
            if rule.starts_fresh { writeln!(out, "  {STARTS_FRESH}") } else { Ok(()) }
        }
    }
}

fn write_effect(effect: &Effect, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let Effect { old, new, .. } = effect;
    writeln!(out)?;
    let mut row = |name: &str, value: String| writeln!(out, "{name:<15} {value}");
    row("requests", thousands(new.totals.requests))?;
    row("denied", change(old.totals.denied, new.totals.denied))?;
    if old.totals.shadow_denied + new.totals.shadow_denied > 0 {
        row("shadow denied", change(old.totals.shadow_denied, new.totals.shadow_denied))?;
    }
    row("keys denied", change(old.keys_denied, new.keys_denied))?;
    for kind in KeyChange::ALL {
        let count = effect.keys(kind).count();
        if count == 0 {
            continue;
        }
        writeln!(out, "\n{}: {}", kind.text(), format::count(count, "key"))?;
        for key in effect.keys(kind).take(top) {
            let denied = change(key.old_denied, key.new_denied);
            writeln!(out, "  {}  {denied}", key.text())?;
        }
        if count > top {
            writeln!(out, "  and {} more; --top lists more", thousands((count - top) as u64))?;
        }
    }
    if effect.is_estimate {
        writeln!(
            out,
            "\nnote: there were too many keys to count all; --max-keys raises the bound"
        )?;
    }
    Ok(())
}

/// What follows from another key or another algorithm.
pub(super) const STARTS_FRESH: &str =
    "its keys start fresh: the key or the algorithm changed, so what was consumed is forgotten";
