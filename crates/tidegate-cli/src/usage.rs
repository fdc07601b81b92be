//! `tidegate usage`: what keys have used of their limits.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::Rule;

use crate::admin::{escaped, lines, pairs};
use crate::args::{Format, UsageArgs};
use crate::call_error::CallError;
use crate::daemon_client::{DaemonClient, DaemonReply, DaemonRequest};
use crate::format::{self, visible};
use crate::io::{Exit, Io};

pub(crate) fn run(args: &UsageArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let result =
        DaemonClient::connect(&args.daemon, io.stderr).and_then(|client| match &args.over {
            Some(over) => list(client, args, over),
            None => usage(client, args),
        });
    let DaemonReply { body, error, hint } = match result {
        Ok(response) => response,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Error);
        }
    };
    if let Some(why) = error {
        writeln!(io.stderr, "error: {}", lines(&why))?;
        if let Some(hint) = hint {
            writeln!(io.stderr, "  = hint: {}", lines(&hint))?;
        }
        return Ok(Exit::Failure);
    }
    let body = &body;
    match (args.format, &args.over) {
        (Format::Json, Some(_)) => writeln!(io.stdout, "{body}")?,
        (Format::Json, None) => writeln!(io.stdout, "{}", json!({ "rules": body["rules"] }))?,
        (Format::Text, Some(_)) => print_keys(body, io)?,
        (Format::Text, None) => print_rules(body, io)?,
    }
    Ok(Exit::Success)
}

/// Sends the request for the usage of some keys.
fn usage(mut client: DaemonClient, args: &UsageArgs) -> Result<DaemonReply, CallError> {
    let domain = args.domain.as_deref().unwrap_or(Rule::DEFAULT_DOMAIN);
    client.usage(domain, &pairs(&args.attributes))
}

/// Sends the request for the keys that have used most of their limits.
fn list(mut client: DaemonClient, args: &UsageArgs, over: &str) -> Result<DaemonReply, CallError> {
    let mut path = format!("usage?over={}&limit={}", escaped(over), args.limit);
    for (name, value) in [("domain", &args.domain), ("rule", &args.rule)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escaped(value)));
        }
    }
    client.admin(&DaemonRequest { method: "GET", path, body: Value::Null })
}

fn print_rules(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    let rules = body["rules"].as_array().map_or(&[][..], Vec::as_slice);
    if rules.is_empty() {
        return writeln!(io.stdout, "no rule has a key of these attributes");
    }
    for rule in rules {
        let name = visible(rule["rule"].as_str().unwrap_or("?"));
        writeln!(io.stdout, "{name}: {}", numbers(rule))?;
    }
    Ok(())
}

fn print_keys(body: &Value, io: &mut Io<'_>) -> io::Result<()> {
    let keys = body["keys"].as_array().map_or(&[][..], Vec::as_slice);
    for key in keys {
        let text = |name: &str| visible(key[name].as_str().unwrap_or("?"));
        let mut line = format!("{}/{}", text("domain"), text("rule"));
        for (name, value) in key["key"].as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| "(absent)".into(), visible);
            line.push_str(&format!(" {}={value}", visible(name)));
        }
        writeln!(io.stdout, "{line}: {} ({})", numbers(key), text("source"))?;
    }
    if keys.is_empty() {
        writeln!(io.stdout, "no key with a known name has used so much")?;
    }
    if body["cursor"].is_string() {
        writeln!(io.stderr, "note: there are more; raise --limit, or use the admin API's cursor")?;
    }
    match body["note"].as_str() {
        Some(note) => writeln!(io.stderr, "note: {}", visible(note)),
        None => Ok(()),
    }
}

/// The numbers of one limit on a line.
fn numbers(usage: &Value) -> String {
    let shadow = if usage["mode"] == "shadow" { ", in shadow mode" } else { "" };
    let Some(limit) = usage["limit"].as_u64() else { return format!("unlimited{shadow}") };
    let (used, held, remaining) = (&usage["used"], &usage["held"], &usage["remaining"]);
    let reset = match usage["reset_after_ms"].as_u64() {
        Some(ms) => format!("resets in {}", format::duration(Duration::from_millis(ms))),
        None => "resets at an unknown time".into(),
    };
    let share = &usage["share"];
    format!(
        "{used} used and {held} held of {limit}, share {share}; {remaining} remaining, {reset}{shadow}"
    )
}
