//! Responses of the desk as text, one line each.

use std::fmt::Write;

use serde_json::Value;

use super::call::DeskRequest;

/// The text to print.
pub(super) fn text(request: &DeskRequest, response: &Value) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = match request {
        DeskRequest::Propose { .. } | DeskRequest::Act { .. } | DeskRequest::Vote { .. } => {
            proposal(&mut out, response)
        }
        DeskRequest::Round { .. } | DeskRequest::Window => window(&mut out, response),
        DeskRequest::Tally => tally(&mut out, response),
        DeskRequest::Proposals { .. } => each(&mut out, &response["proposals"], proposal),
        DeskRequest::Enrol { .. } => balance(&mut out, response),
        DeskRequest::Balances => each(&mut out, &response["balances"], balance),
        DeskRequest::Audit { .. } => each(&mut out, &response["events"], event),
    };
    out
}

fn each(
    out: &mut String,
    list: &Value,
    show: fn(&mut String, &Value) -> std::fmt::Result,
) -> std::fmt::Result {
    list.as_array().into_iter().flatten().try_for_each(|one| show(out, one))
}

fn proposal(out: &mut String, it: &Value) -> std::fmt::Result {
    let count = |vote: &str| {
        let votes = it["votes"].as_object().into_iter().flat_map(serde_json::Map::values);
        votes.filter(|cast| *cast == vote).count()
    };
    let summary = it["interpretation"]["summary"].as_str().or(it["text"].as_str());
    write!(
        out,
        "{}  {}  {}",
        display(&it["id"]),
        display(&it["status"]),
        display(&it["governor"])
    )?;
    write!(out, "  tier {}  {} yes {} no", display(&it["tier"]), count("yes"), count("no"))?;
    write!(out, "  {}", one_line(summary.unwrap_or_default()))?;
    match it["reason"].as_str() {
        Some(reason) => writeln!(out, " ({})", one_line(reason)),
        None => writeln!(out),
    }
}

fn window(out: &mut String, it: &Value) -> std::fmt::Result {
    let cap = display(&it["proposals_per_window"]);
    let (played, interval) = (display(&it["rounds"]["in_window"]), display(&it["interval"]));
    let due = if it["due"] == true { ", the tally is due" } else { "" };
    let number = display(&it["window"]);
    writeln!(out, "window {number}: {played} of {interval} rounds, {cap} proposals each{due}")
}

fn tally(out: &mut String, it: &Value) -> std::fmt::Result {
    for counted in it["proposals"].as_array().into_iter().flatten() {
        let outcome = if counted["passed"] == true { "passed" } else { "failed" };
        let (yes, no) = (display(&counted["yes"]), display(&counted["no"]));
        writeln!(out, "{}  {outcome}  {yes} yes {no} no", display(&counted["proposal"]))?;
    }
    write!(out, "window {} closed", display(&it["window"]))?;
    match it["proposals_per_window"].as_u64() {
        Some(cap) => writeln!(out, "; the cap is {cap} from the next window on"),
        None => writeln!(out),
    }
}

fn balance(out: &mut String, it: &Value) -> std::fmt::Result {
    let (left, cap) = (display(&it["proposals_left"]), display(&it["proposals_per_window"]));
    write!(out, "{}  {} tokens", display(&it["governor"]), display(&it["tokens"]))?;
    write!(out, "  {left} of {cap} proposals left")?;
    match it["cooldown_ms"].as_u64() {
        Some(wait_ms) if wait_ms > 0 => writeln!(out, "  in {} s", wait_ms.div_ceil(1_000)),
        _ => writeln!(out),
    }
}

fn event(out: &mut String, it: &Value) -> std::fmt::Result {
    write!(out, "{}  {}", display(&it["number"]), display(&it["event"]))?;
    if let Some(governor) = it["governor"].as_str() {
        write!(out, "  {}", one_line(governor))?;
    }
    if let Some(tokens) = it["tokens"].as_i64() {
        write!(out, "  {tokens:+}")?;
    }
    if let Some(reason) = it["reason"].as_str() {
        write!(out, "  {}", one_line(reason))?;
    }
    writeln!(out)
}

fn display(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), one_line)
}

/// Text from another user, escaped so that it cannot control the terminal.
fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}
