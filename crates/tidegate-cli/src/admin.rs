//! `tidegate admin`: sends requests to a running daemon and prints the responses.

use std::io;

use serde_json::{Map, Value, json};
use tidegate::policy::Rule;
use tidegate_proto::percent;

use crate::args::{AdminArgs, AdminCommand, Attribute, Format, KeyArgs, TrafficCommand};
use crate::daemon_client::{DaemonClient, DaemonRequest};
use crate::format;
use crate::input;
use crate::io::{Exit, Io};

mod text;

pub(crate) fn run(args: &AdminArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let request = match daemon_request(&args.command, io) {
        Ok(request) => request,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Error);
        }
    };
    let reply = DaemonClient::connect(&args.daemon, io.stderr);
    let reply = match reply.and_then(|mut daemon| daemon.admin(&request)) {
        Ok(reply) => reply,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::Error);
        }
    };
    if let Some(why) = &reply.error {
        writeln!(io.stderr, "error: {}", lines(why))?;
    }
    if let Some(hint) = &reply.hint {
        writeln!(io.stderr, "  = hint: {hint}")?;
    }
    let is_ok = reply.error.is_none();
    match (args.format, is_ok) {
        (Format::Json, _) if !reply.body.is_null() => writeln!(io.stdout, "{}", reply.body)?,
        (Format::Text, true) => text::print(&args.command, &reply.body, io)?,
        _ => {}
    }
    Ok(if is_ok { Exit::Success } else { Exit::Failure })
}

/// The request of a command, or an error message.
fn daemon_request(command: &AdminCommand, io: &mut Io<'_>) -> Result<DaemonRequest, String> {
    Ok(match command {
        AdminCommand::Status => get("status"),
        AdminCommand::Policy { apply: Some(path), .. } => {
            let read = input::read(path, io.stdin).map_err(|why| why.to_string())?;
            let text = String::from_utf8(read.bytes)
                .map_err(|_| format!("error: {} is not UTF-8", format::visible(&read.name)))?;
            with("PUT", "policy", text.into())
        }
        AdminCommand::Policy { drop_edits: true, .. } => with("DELETE", "overlay", Value::Null),
        AdminCommand::Policy { .. } => get("policy"),
        AdminCommand::Rules => get("rules"),
        AdminCommand::Traffic(command) => traffic_request(command),
        AdminCommand::Change { rule, changes, preview: true, domain } => {
            preview_request(&domain.domain, rule, changes)?
        }
        AdminCommand::Change { rule, changes, domain, .. } => {
            with("PATCH", &rule_path(&domain.domain, rule), changes.join("\n").into())
        }
        AdminCommand::Override { rule: None, .. } => get("overrides"),
        AdminCommand::Override {
            rule: Some(rule),
            key,
            numbers,
            unlimited,
            until,
            drop,
            now,
            domain,
        } => {
            let mut body = table(&numbers.join("\n"))?;
            body.insert("domain".into(), json!(domain.domain));
            body.insert("rule".into(), json!(rule));
            body.insert("key".into(), pairs(key));
            if *unlimited {
                body.insert("unlimited".into(), json!(true));
            }
            if *now {
                body.insert("effective".into(), json!("now"));
            }
            body.extend(until.map(|until| ("until".into(), json!(until.to_string()))));
            with(if *drop { "DELETE" } else { "PUT" }, "overrides", body.into())
        }
        AdminCommand::Ban { target, .. } if target.patterns.is_empty() => get("bans"),
        AdminCommand::Ban { target, length, until, reason } => {
            let mut body = ban(target);
            let until = until.map(|until| until.to_string());
            for (name, value) in [("for", length), ("until", &until), ("reason", reason)] {
                if let Some(value) = value {
                    body[name] = json!(value);
                }
            }
            with("POST", "bans", body)
        }
        AdminCommand::Unban { target } => with("DELETE", "bans", ban(target)),
        AdminCommand::Reset { all: true, domain, .. } => {
            let mut body = json!({ "all": true });
            if let Some(domain) = domain {
                body["domain"] = json!(domain);
            }
            with("POST", "keys/reset", body)
        }
        AdminCommand::Reset { attributes, domain, .. } => {
            let domain = domain.as_deref().unwrap_or(Rule::DEFAULT_DOMAIN);
            let body = json!({ "domain": domain, "attributes": pairs(attributes) });
            with("POST", "keys/reset", body)
        }
        AdminCommand::Round { domain } => with("POST", "rounds/close", json!({ "domain": domain })),
        AdminCommand::Audit { since } => get(&format!("audit?since={since}")),
        AdminCommand::Top { count } => get(&format!("top?count={count}")),
    })
}

fn rule_path(domain: &str, rule: &str) -> String {
    format!("rules/{}/{}", escaped(domain), escaped(rule))
}

/// The request for a preview of changed fields, or an error message.
fn preview_request(domain: &str, rule: &str, changes: &[String]) -> Result<DaemonRequest, String> {
    let change = table(&changes.join("\n"))?;
    let body = json!({ "domain": domain, "rule": rule, "change": change });
    Ok(with("POST", "preview", body))
}

/// The request of a command that looks at requests.
fn traffic_request(command: &TrafficCommand) -> DaemonRequest {
    match command {
        TrafficCommand::Explain { attributes, cost, domain } => {
            let attributes = pairs(attributes);
            let domain = &domain.domain;
            let body = json!({ "domain": domain, "attributes": attributes, "cost": cost });
            with("POST", "explain", body)
        }
        TrafficCommand::Denials { id, domain, rule, text, limit } => {
            let filters = [("decision_id", id), ("domain", domain), ("rule", rule), ("text", text)];
            let filters = filters.into_iter().filter_map(|(name, value)| {
                Some(format!("{name}={}&", escaped(value.as_deref()?)))
            });
            get(&format!("denials?{}limit={limit}", filters.collect::<String>()))
        }
    }
}

fn get(path: &str) -> DaemonRequest {
    with("GET", path, Value::Null)
}

fn with(method: &'static str, path: &str, body: Value) -> DaemonRequest {
    DaemonRequest { method, path: path.into(), body }
}

/// The fields that identify a ban.
fn ban(target: &KeyArgs) -> Value {
    json!({ "domain": target.domain.domain, "match": pairs(&target.patterns) })
}

/// Names and values; a repeated name has a list of values.
pub(crate) fn pairs(attributes: &[Attribute]) -> Value {
    let mut pairs = Map::new();
    for Attribute { name, value } in attributes {
        match pairs.get_mut(name) {
            None => drop(pairs.insert(name.clone(), json!(value))),
            Some(Value::Array(values)) => values.push(json!(value)),
            Some(one) => *one = json!([one.clone(), value]),
        }
    }
    pairs.into()
}

/// Parses a table in TOML.
fn table(text: &str) -> Result<Map<String, Value>, String> {
    toml::from_str(text).map_err(|error| {
        format!("error: `{}` is not TOML: {}", format::visible(text), error.message())
    })
}

/// A path segment, percent-encoded.
pub(crate) fn escaped(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    percent::encoded(part, is_plain)
}

/// Lines of text with control characters replaced.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(format::visible).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Attribute, escaped, pairs};

    #[test]
    fn path_segments_are_percent_encoded() {
        assert_eq!(escaped("a/b é%"), "a%2Fb%20%C3%A9%25");
    }

    #[test]
    fn repeated_name_has_a_list_of_values() {
        let pair = |name: &str, value: &str| Attribute { name: name.into(), value: value.into() };
        let pairs = pairs(&[pair("ip", "a"), pair("user", "x"), pair("ip", "b"), pair("ip", "c")]);
        assert_eq!(pairs.to_string(), r#"{"ip":["a","b","c"],"user":"x"}"#);
    }
}
