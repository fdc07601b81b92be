//! Prints explanations, denials and previews of a daemon as text.

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::{list, text};
use crate::format::{self, visible};
use crate::io::Io;

/// Prints how a request would be decided, and the part of every rule in it.
pub(super) fn explanation(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    let rule = body["rule"].as_str().map(visible);
    match (body["allowed"] == true, rule) {
        (true, Some(rule)) => writeln!(io.stdout, "allowed; lowest remaining: rule `{rule}`")?,
        (true, None) => writeln!(io.stdout, "allowed; no rule limits it")?,
        (false, _) => writeln!(io.stdout, "denied: {}", text(&body["reason"]))?,
    }
    match body["next_allowed"].as_str() {
        Some(time) => writeln!(io.stdout, "next allowed: {}", visible(time))?,
        None => writeln!(io.stdout, "next allowed: {}", text(&body["retry"]))?,
    }
    let rules = list(&body["rules"]);
    if !rules.is_empty() {
        writeln!(io.stdout, "\nrules of domain `{}`:", text(&body["domain"]))?;
    }
    for it in rules {
        let name = text(&it["rule"]);
        if it["applies"] != true {
            writeln!(io.stdout, "  {name}: {}", text(&it["why"]))?;
            continue;
        }
        let key = key(&it["key"]);
        let key = if key.is_empty() { "all requests".into() } else { key };
        let (remaining, limit) = (&it["remaining"], &it["limit"]);
        let verdict = match (it["allowed"] == true, it["mode"] == "shadow") {
            (true, _) => "would allow it".into(),
            (false, false) => format!("would deny it; {}", wait(it)),
            (false, true) => format!("would deny it, but is in shadow mode; {}", wait(it)),
        };
        writeln!(io.stdout, "  {name}: {key}; {remaining} of {limit} left; {verdict}")?;
    }
    Ok(())
}

/// Prints denials, and the part of every rule in them if only one is looked for.
pub(super) fn denials(body: &Value, is_one: bool, io: &mut Io<'_>) -> io::Result<()> {
    let denials = list(&body["denials"]);
    for it in denials {
        let (time, id) = (text(&it["time"]), text(&it["decision_id"]));
        let rule = it["rule"].as_str().map_or_else(|| "-".into(), visible);
        let domain = text(&it["domain"]);
        writeln!(io.stdout, "{time} {id} {domain}/{rule} {}", key(&it["attributes"]))?;
        writeln!(io.stdout, "    {}", text(&it["reason"]))?;
        if !is_one {
            continue;
        }
        for rule in list(&it["rules"]) {
            let (name, mode) = (text(&rule["rule"]), text(&rule["mode"]));
            let (remaining, limit) = (&rule["remaining"], &rule["limit"]);
            let verdict = match rule["allowed"] == true {
                true => "allowed it".into(),
                false => format!("denied it; {}", wait(rule)),
            };
            writeln!(io.stdout, "    {name} ({mode}): {remaining} of {limit} left; {verdict}")?;
        }
    }
    if denials.is_empty() {
        writeln!(io.stderr, "no such denial is kept")?;
    }
    let kept = usize::try_from(body["kept"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let kept = format::count(kept, "denial");
    match body["oldest"].as_str() {
        Some(oldest) => writeln!(io.stderr, "note: {kept} kept, since {}", visible(oldest))?,
        None => writeln!(io.stderr, "note: {kept} kept")?,
    }
    match body["not_kept"].as_u64() {
        None | Some(0) => Ok(()),
        Some(count) => {
            let count = format::thousands(count);
            writeln!(io.stderr, "note: {count} were left out, as there were too many at once")
        }
    }
}

/// Prints what an edit would change, and what it would have changed.
pub(super) fn preview(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    let lines = list(&body["lines"]);
    if lines.is_empty() {
        writeln!(io.stdout, "no change")?;
    }
    for line in lines {
        writeln!(io.stdout, "{}", text(line))?;
    }
    for rule in list(&body["rules"]) {
        if rule["starts_fresh"] == true {
            writeln!(io.stdout, "its key or kind of limit would change, so it would start fresh")?;
        }
        let estimate = &rule["estimate"];
        if let Some(why) = rule["why_not"].as_str() {
            writeln!(io.stdout, "no estimate: {}", visible(why))?;
            continue;
        }
        let number = |name: &str| format::thousands(estimate[name].as_u64().unwrap_or(0));
        let about = match estimate["is_exact"] == true {
            true => "",
            false => "about ",
        };
        let (since, until) = (text(&estimate["since"]), text(&estimate["until"]));
        let (requests, keys) = (number("requests"), number("keys"));
        writeln!(
            io.stdout,
            "\nfrom {since} to {until}: {about}{requests} requests of {keys} keys"
        )?;
        if estimate["is_exact"] != true {
            let sampled = number("sampled_keys");
            writeln!(io.stdout, "an estimate, from {sampled} of the keys")?;
        }
        let (before, after) = (number("denied_before"), number("denied_after"));
        writeln!(io.stdout, "denied          {about}{before} → {after}")?;
        let (newly, no_longer) = (number("newly_denied"), number("no_longer_denied"));
        let (keys_newly, keys_no_longer) =
            (number("keys_newly_denied"), number("keys_no_longer_denied"));
        writeln!(io.stdout, "newly denied    {about}{newly}, of {keys_newly} keys")?;
        writeln!(io.stdout, "no longer       {about}{no_longer}, of {keys_no_longer} keys")?;
        for it in list(&estimate["top"]) {
            let (before, after) = (&it["denied_before"], &it["denied_after"]);
            let requests = &it["requests"];
            let key = key(&it["key"]);
            writeln!(io.stdout, "  {key}  {before} → {after} of {requests}")?;
        }
    }
    Ok(())
}

/// Attributes and their values.
fn key(key: &Value) -> String {
    let pairs = key.as_object().into_iter().flatten().map(|(name, value)| match value.as_str() {
        Some(value) => format!("{}={value:?}", visible(name)),
        None => format!("{} is missing", visible(name)),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// How long to wait, by the fields of a rule.
fn wait(rule: &Value) -> String {
    match (rule["retry_after_ms"].as_u64(), rule["retry"].as_str()) {
        (Some(ms), _) => format!("retry in {}", format::duration(Duration::from_millis(ms))),
        (None, Some("never")) => "no wait helps".into(),
        (None, _) => "the wait is unknown".into(),
    }
}
