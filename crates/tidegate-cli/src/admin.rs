//! `tidegate admin`: what a running daemon is asked for, and how its answers are told.

use std::io;

use serde_json::{Map, Value, json};

use crate::args::{AdminArgs, AdminCommand, Attribute, Format};
use crate::format;
use crate::input;
use crate::io::{Exit, Io};
use crate::socket::SocketClient;

mod text;

/// A request to a daemon.
struct DaemonRequest {
    method: &'static str,
    path: String,
    body: Value,
}

pub(crate) fn run(args: &AdminArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let request = match daemon_request(&args.command, io) {
        Ok(request) => request,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::NoAnswer);
        }
    };
    let DaemonRequest { method, path, body } = request;
    let result =
        SocketClient::connect(&args.socket).and_then(|mut it| it.admin(method, &path, &body));
    let response = match result {
        Ok(response) => response,
        Err(why) => {
            writeln!(io.stderr, "{why}")?;
            return Ok(Exit::NoAnswer);
        }
    };
    let is_ok = response["ok"] == true;
    if !is_ok {
        let why = response["error"].as_str().unwrap_or("the daemon does not say why");
        writeln!(io.stderr, "error: {}", lines(why))?;
    }
    match (args.format, is_ok) {
        (Format::Json, _) if !response["body"].is_null() => {
            writeln!(io.stdout, "{}", response["body"])?;
        }
        (Format::Text, true) => text::print(&args.command, &response["body"], io)?,
        _ => {}
    }
    Ok(if is_ok { Exit::Yes } else { Exit::No })
}

/// What a command asks for, or why it cannot.
fn daemon_request(command: &AdminCommand, io: &mut Io<'_>) -> Result<DaemonRequest, String> {
    let get = |path: &str| DaemonRequest { method: "GET", path: path.into(), body: Value::Null };
    let with = |method, path: &str, body| DaemonRequest { method, path: path.into(), body };
    Ok(match command {
        AdminCommand::Status => get("status"),
        AdminCommand::Policy { put: Some(path), .. } => {
            let read = input::read(path, io.stdin).map_err(|why| why.to_string())?;
            let text = String::from_utf8(read.bytes)
                .map_err(|_| format!("error: {} is not UTF-8", format::visible(&read.name)))?;
            with("PUT", "policy", text.into())
        }
        AdminCommand::Policy { drop_edits: true, .. } => with("DELETE", "overlay", Value::Null),
        AdminCommand::Policy { .. } => get("policy"),
        AdminCommand::Rules => get("rules"),
        AdminCommand::Change { rule, changes, domain } => {
            let path = format!("rules/{}/{}", escaped(&domain.domain), escaped(rule));
            with("PATCH", &path, changes.join("\n").into())
        }
        AdminCommand::Override { rule: None, .. } => get("overrides"),
        AdminCommand::Override {
            rule: Some(rule),
            key,
            numbers,
            unlimited,
            until,
            drop,
            domain,
        } => {
            let mut body = table(&numbers.join("\n"))?;
            body.insert("domain".into(), json!(domain.domain));
            body.insert("rule".into(), json!(rule));
            body.insert("key".into(), pairs(key));
            if *unlimited {
                body.insert("unlimited".into(), json!(true));
            }
            body.extend(until.map(|until| ("until".into(), json!(until.to_string()))));
            with(if *drop { "DELETE" } else { "PUT" }, "overrides", body.into())
        }
        AdminCommand::Ban { who, .. } if who.who.is_empty() => get("bans"),
        AdminCommand::Ban { who, length, until, reason } => {
            let mut body = json!({ "domain": who.domain.domain, "who": pairs(&who.who) });
            let until = until.map(|until| until.to_string());
            for (name, value) in [("for", length), ("until", &until), ("reason", reason)] {
                if let Some(value) = value {
                    body[name] = json!(value);
                }
            }
            with("POST", "bans", body)
        }
        AdminCommand::Unban { who } => {
            with("DELETE", "bans", json!({ "domain": who.domain.domain, "who": pairs(&who.who) }))
        }
        AdminCommand::Reset { attributes, domain } => with(
            "POST",
            "keys/reset",
            json!({ "domain": domain.domain, "attributes": pairs(attributes) }),
        ),
        AdminCommand::Round { domain } => with("POST", "rounds/close", json!({ "domain": domain })),
        AdminCommand::Audit { since } => get(&format!("audit?since={since}")),
        AdminCommand::Top { count } => get(&format!("top?count={count}")),
    })
}

/// Names and values; a name that is given twice has a list of values.
fn pairs(attributes: &[Attribute]) -> Value {
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

/// The table that a text in TOML is.
fn table(text: &str) -> Result<Map<String, Value>, String> {
    toml::from_str(text).map_err(|error| {
        format!("error: `{}` is not TOML: {}", format::visible(text), error.message())
    })
}

/// A part of a path, in which nothing means anything but itself.
fn escaped(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    part.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

/// Several lines without anything that a terminal acts on.
fn lines(text: &str) -> String {
    text.lines().map(format::visible).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Attribute, escaped, pairs};

    #[test]
    fn paths_are_escaped() {
        assert_eq!(escaped("a/b é%"), "a%2Fb%20%C3%A9%25");
    }

    #[test]
    fn a_name_that_is_given_twice_has_two_values() {
        let pair = |name: &str, value: &str| Attribute { name: name.into(), value: value.into() };
        let pairs = pairs(&[pair("ip", "a"), pair("user", "x"), pair("ip", "b"), pair("ip", "c")]);
        assert_eq!(pairs.to_string(), r#"{"ip":["a","b","c"],"user":"x"}"#);
    }
}
