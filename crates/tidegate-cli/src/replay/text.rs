//! The result of a replay as text.

use std::io::{self, Write};

use tidegate::policy::Mode;
use tidegate_replay::{DeniedKey, RuleCount, Totals};

use super::Replayed;
use super::json::time;
use crate::format::{thousands, visible};

impl Replayed<'_> {
    /// Writes all that people want to know first, first.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let counts = self.replay.counts();
        self.write_totals(&counts.totals(), out)?;
        write_rules(&counts.rules().collect::<Vec<_>>(), out)?;
        self.write_keys(&counts.top_denied(self.top), out)?;
        self.write_minutes(out)?;
        for (position, why) in self.replay.first_errors() {
            let input = visible(self.input_name(*position));
            writeln!(out, "\n{input}:{} cannot be decided: {}", position.line, visible(why))?;
        }
        self.write_denials(out)
    }

    fn write_totals(&self, totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
        let (counts, summary) = (self.replay.counts(), self.summary);
        let about = if counts.is_estimate() { "about " } else { "" };
        let mut row = |name: &str, value: String| writeln!(out, "{name:<15} {value}");
        row("requests", thousands(totals.requests))?;
        row("denied", share(totals.denied, totals.requests))?;
        if totals.shadow_denied > 0 || counts.rules().any(|rule| rule.mode == Mode::Shadow) {
            row("shadow denied", share(totals.shadow_denied, totals.requests))?;
        }
        let (keys, denied) = (counts.keys(), counts.keys_denied());
        row(
            "keys",
            format!("{about}{}, {about}{} of them denied", thousands(keys), thousands(denied)),
        )?;
        for (name, number) in [
            ("unmatched", totals.unmatched),
            ("undecided", totals.undecided),
            ("unreadable", summary.unreadable),
            ("late", summary.late),
        ] {
            if number > 0 {
                row(name, thousands(number))?;
            }
        }
        match totals.first_ns {
            Some(first_ns) => {
                row("from", time(first_ns))?;
                row("to", time(totals.last_ns))
            }
            None => Ok(()),
        }
    }

    fn write_keys(&self, top: &[DeniedKey], out: &mut dyn Write) -> io::Result<()> {
        if top.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nmost denied keys")?;
        for key in top {
            let requests = key.requests.map_or_else(|| "?".into(), thousands);
            let (name, rule) = (key_text(key), visible(key.rule.name()));
            let denied = thousands(key.denied);
            let shadow = if key.mode == Mode::Shadow { ", shadow" } else { "" };
            writeln!(out, "{denied:>12} of {requests:<10} {name}  ({rule}{shadow})")?;
        }
        Ok(())
    }

    fn write_minutes(&self, out: &mut dyn Write) -> io::Result<()> {
        let minutes = self.replay.counts().worst_minutes();
        if minutes.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nworst minutes")?;
        for minute in minutes.iter().take(MOST_MINUTES) {
            let bucket = minute.bucket;
            let start = time(minute.start_s.saturating_mul(1_000_000_000));
            let (denied, all) = (bucket.denied, bucket.denied + bucket.allowed);
            let shadow = match bucket.shadow_denied {
                0 => String::new(),
                shadow => format!(", {} in shadow mode", thousands(shadow)),
            };
            let (denied, all) = (thousands(denied), thousands(all));
            writeln!(out, "{denied:>12} of {all:<10} {start}{shadow}")?;
        }
        Ok(())
    }

    fn write_denials(&self, out: &mut dyn Write) -> io::Result<()> {
        let denials = self.replay.first_denials();
        if denials.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nfirst denials")?;
        for denial in denials {
            let input = visible(self.input_name(denial.position));
            writeln!(out, "\n{input}:{} at {}", denial.position.line, time(denial.time_ns))?;
            self.explained(denial, |explained| explained.write(&denial.explanation, out))?;
        }
        Ok(())
    }
}

fn write_rules(rules: &[RuleCount], out: &mut dyn Write) -> io::Result<()> {
    if rules.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nrules")?;
    for rule in rules {
        let name = visible(rule.rule.name());
        if rule.is_left_out {
            writeln!(
                out,
                "{:>12}               {name} (left out: it limits requests in flight)",
                "-"
            )?;
            continue;
        }
        let mode = if rule.mode == Mode::Shadow { " (shadow mode)" } else { "" };
        let (denied, keys) = (thousands(rule.denied), thousands(rule.keys_denied));
        let of = thousands(rule.keys);
        writeln!(out, "{denied:>12} denied, {keys} of {of} keys  {name}{mode}")?;
    }
    Ok(())
}

/// A number, and its share of a whole in percent.
fn share(part: u64, whole: u64) -> String {
    let (part_wide, whole_wide) = (u128::from(part), u128::from(whole));
    match (part_wide * 1_000 + whole_wide / 2).checked_div(whole_wide) {
        Some(per_mille) => {
            format!("{} ({}.{} %)", thousands(part), per_mille / 10, per_mille % 10)
        }
        None => thousands(part),
    }
}

/// The attributes of a key and their values, on one line.
pub(crate) fn key_text(key: &DeniedKey) -> String {
    if key.key.is_empty() {
        return "all requests".into();
    }
    let part = |(name, value): &(Box<str>, Option<Box<str>>)| match value {
        Some(value) => format!("{name}={value}"),
        None => format!("{name} is missing"),
    };
    visible(&key.key.iter().map(part).collect::<Vec<_>>().join(", "))
}

const MOST_MINUTES: usize = 5;
