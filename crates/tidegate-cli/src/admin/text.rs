//! Prints responses of a daemon as text.

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::lines;
use crate::args::{AdminCommand, TrafficCommand};
use crate::format::{self, visible};
use crate::io::Io;

mod traffic;

pub(super) fn print(command: &AdminCommand, body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    match command {
        AdminCommand::Status => status(body, io),
        AdminCommand::Policy { apply: None, edits, drop_edits: false } => policy(body, *edits, io),
        AdminCommand::Rules => rules(body, io),
        AdminCommand::Override { rule: None, .. } => tables(body, "overrides", io),
        AdminCommand::Ban { target, .. } if target.patterns.is_empty() => tables(body, "bans", io),
        AdminCommand::Audit { .. } => audit(body, io),
        AdminCommand::Top { .. } => top(body, io),
        AdminCommand::Traffic(TrafficCommand::Explain { .. }) => traffic::explanation(body, io),
        AdminCommand::Traffic(TrafficCommand::Denials { id, .. }) => {
            traffic::denials(body, id.is_some(), io)
        }
        AdminCommand::Change { preview: true, .. } => traffic::preview(body, io),
        AdminCommand::Reset { all: true, .. } => {
            let keys = usize::try_from(body["keys"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
            writeln!(io.stdout, "state of {} reset", format::count(keys, "key"))
        }
        AdminCommand::Reset { .. } => writeln!(
            io.stdout,
            "{}",
            if body["reset"] == true { "state reset" } else { "no state to reset" }
        ),
        AdminCommand::Round { .. } => {
            writeln!(io.stdout, "round {} of {} is closed", body["rounds"], text(&body["domain"]))
        }
        AdminCommand::Policy { .. } => changed(body, "this policy is already in force", io),
        _ => changed(body, "already in force", io),
    }
}

/// Prints the effect of a change, or why there is none.
fn changed(body: &Value, unchanged: &str, io: &mut Io<'_>) -> io::Result<()> {
    let count = usize::try_from(body["changes"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    match count {
        0 => writeln!(io.stdout, "no change: {unchanged}")?,
        count => writeln!(io.stdout, "in force: {}", format::count(count, "change"))?,
    }
    if let Some(description) = body["description"].as_str() {
        writeln!(io.stdout, "{}", visible(description))?;
    }
    if body["starts_fresh"] == true {
        writeln!(io.stderr, "note: its key or kind of limit has changed, so it starts fresh")?;
    }
    for warning in list(&body["warnings"]) {
        let (line, message) = (&warning["line"], text(&warning["message"]));
        writeln!(io.stderr, "warning: line {line}: {message}")?;
    }
    let restart: Vec<_> = list(&body["needs_restart"]).iter().map(text).collect();
    if !restart.is_empty() {
        writeln!(io.stderr, "note: applies after a restart only: {}", restart.join(", "))?;
    }
    match body["until"].as_str() {
        Some(until) => writeln!(io.stderr, "note: in force until {until}"),
        None => Ok(()),
    }
}

fn status(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    let up = Duration::from_secs(body["uptime_ms"].as_u64().unwrap_or(0) / 1_000);
    writeln!(io.stdout, "version   {}, up {}", text(&body["version"]), format::duration(up))?;
    let (keys, max, bytes) = (&body["keys"], &body["max_keys"], &body["bytes"]);
    writeln!(io.stdout, "keys      {keys} of {max}, in {bytes} bytes")?;
    let (rules, shadow) = (&body["rules"], &body["shadow_rules"]);
    let edits = if body["edits"] == true { "with edits" } else { "no edits" };
    writeln!(io.stdout, "rules     {rules}, {shadow} of them in shadow mode; {edits}")?;
    if let Some(ppm @ ..1_000_000) = body["enforce_ppm"].as_u64() {
        let percent = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
        let percent = percent.trim_end_matches('0').trim_end_matches('.');
        writeln!(io.stdout, "          enforced for {percent} % of the keys only")?;
    }
    let reload = &body["reload"];
    let (ok, failed) = (&reload["ok"], &reload["failed"]);
    writeln!(io.stdout, "reloads   {ok} ok, {failed} failed")?;
    if let Some(error) = reload["error"].as_str() {
        writeln!(io.stdout, "          the previous policy is in force: {}", lines(error))?;
    } else if reload["replaced"] == true {
        writeln!(io.stdout, "          a policy applied by an admin is in force, not the file's")?;
    }
    let restart: Vec<_> = list(&reload["needs_restart"]).iter().map(text).collect();
    if !restart.is_empty() {
        writeln!(io.stdout, "          applies after a restart: {}", restart.join(", "))?;
    }
    store(&body["store"], io)?;
    for (listener, address) in body["listeners"].as_object().into_iter().flatten() {
        let address = address.as_str().map_or_else(|| "off".into(), visible);
        writeln!(io.stdout, "{:<9} {address}", visible(listener))?;
    }
    Ok(())
}

fn store(store: &Value, io: &mut Io<'_>) -> io::Result<()> {
    match store["folder"].as_str() {
        Some(folder) => writeln!(io.stdout, "store     {}", visible(folder))?,
        None => match store["server"].as_str() {
            Some(server) => writeln!(io.stdout, "store     {}", visible(server))?,
            None => writeln!(io.stdout, "store     {}", text(&store["kind"]))?,
        },
    }
    if store["available"] == Value::Bool(false) {
        writeln!(io.stdout, "          not available: on_error applies")?;
    }
    if let Some(failure) = store["failure"].as_str() {
        writeln!(io.stdout, "          unavailable: {}", visible(failure))?;
    }
    if let Some(lacking) = store["not_durable"].as_str() {
        writeln!(io.stdout, "          {}: on_error applies", visible(lacking))?;
    }
    if let Some(ms) = store["clock_step_ms"].as_i64() {
        let way = if ms < 0 { "back" } else { "forward" };
        let (secs, tenths) = (ms.unsigned_abs() / 1_000, ms.unsigned_abs() % 1_000 / 100);
        writeln!(io.stdout, "          its clock stepped {way} by {secs}.{tenths} s")?;
    }
    if let Some(keys) = store["database_keys"].as_u64() {
        writeln!(io.stdout, "          {keys} keys in its database")?;
    }
    if let (Some(replicas), Some(bytes), Some(seconds)) = (
        store["replicas"].as_u64(),
        store["replica_lag_bytes"].as_u64(),
        store["replica_lag_seconds"].as_u64(),
    ) {
        writeln!(
            io.stdout,
            "          {replicas} replicas, up to {bytes} bytes and {seconds} s behind"
        )?;
    }
    nodes(list(&store["nodes"]), io)
}

/// Prints the daemons that share a store, one per line.
fn nodes(nodes: &[Value], io: &mut Io<'_>) -> io::Result<()> {
    for (number, node) in nodes.iter().enumerate() {
        let label = if number == 0 { "nodes" } else { "" };
        let address = node["address"].as_str().map(|it| format!(" at {}", visible(it)));
        let seen = match (&node["self"], node["seen_ms_ago"].as_u64()) {
            (Value::Bool(true), _) => ", this one".to_owned(),
            (_, Some(ms)) => format!(", seen {}.{} s ago", ms / 1_000, ms % 1_000 / 100),
            _ => String::new(),
        };
        let (name, version) = (text(&node["name"]), text(&node["version"]));
        let address = address.unwrap_or_default();
        writeln!(io.stdout, "{label:<9} {name}{address}, version {version}{seen}")?;
    }
    Ok(())
}

fn policy(body: &Value, is_edits: bool, io: &mut Io<'_>) -> io::Result<()> {
    let overlay = body["overlay"].as_str().unwrap_or_default();
    if is_edits {
        return write!(io.stdout, "{overlay}");
    }
    write!(io.stdout, "{}", body["policy"].as_str().unwrap_or_default())?;
    match overlay {
        "" => Ok(()),
        _ => writeln!(io.stderr, "note: there are edits on top of it; print them with --edits"),
    }
}

fn rules(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    for rule in list(&body["rules"]) {
        let (domain, name) = (text(&rule["domain"]), text(&rule["name"]));
        let origin = match rule["origin"].as_str() {
            Some("policy") | None => String::new(),
            Some(origin) => format!(" ({})", visible(origin)),
        };
        let (allowed, denied) = (&rule["allowed"], &rule["denied"]);
        writeln!(io.stdout, "{domain}/{name}{origin}: {allowed} allowed, {denied} denied")?;
        writeln!(io.stdout, "    {}", text(&rule["description"]))?;
    }
    Ok(())
}

/// Prints the tables of a list, one per line.
fn tables(body: &Value, name: &str, io: &mut Io<'_>) -> io::Result<()> {
    let tables = list(&body[name]);
    for table in tables {
        let entries = table.as_object().into_iter().flatten();
        let entries: Vec<_> =
            entries.map(|(name, it)| format!("{name} = {}", inline(it))).collect();
        writeln!(io.stdout, "{}", visible(&entries.join(", ")))?;
    }
    if tables.is_empty() {
        writeln!(io.stderr, "no {name}")?;
    }
    Ok(())
}

fn audit(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    for it in list(&body["changes"]) {
        let (number, at, actor) = (&it["number"], text(&it["at"]), text(&it["actor"]));
        writeln!(io.stdout, "{number} {at} {actor}: {}", text(&it["description"]))?;
    }
    Ok(())
}

fn top(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    for (title, keys) in [("busiest", "busiest"), ("denied most", "most_denied")] {
        writeln!(io.stdout, "{title}:")?;
        for it in list(&body[keys]) {
            let (count, domain, rule) = (&it["count"], text(&it["domain"]), text(&it["rule"]));
            let key = list(&it["key"]).iter().map(|pair| match pair[1].as_str() {
                Some(value) => format!(" {}={value:?}", text(&pair[0])),
                None => format!(" {} is missing", text(&pair[0])),
            });
            writeln!(io.stdout, "  {count:>8} {domain}/{rule}{}", key.collect::<String>())?;
        }
    }
    Ok(())
}

/// A value in TOML, on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let entries = table.iter().map(|(name, value)| format!("{name} = {}", inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    visible(value.as_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests;
