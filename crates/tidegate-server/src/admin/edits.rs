//! Overrides and bans: edits over the policy, which stay until they are removed.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::{Attributes, Condition, KeyPart, NamedAttributes, Rule, duration_from_text};
use tidegate::{Edit, edit::Overlay};
use tidegate_proto::times::time_text;

use super::AdminError;
use super::payload::{Payload, TomlTable, as_json, in_list, rule_of, table_of};
use super::policy::{find, without_overrides};
use crate::daemon::Daemon;

/// Whether an edit of an override takes effect now, or when edits of its rule do: the field `effective`
/// of a request.
fn is_now(table: &mut TomlTable) -> Result<bool, AdminError> {
    match table.remove("effective").as_ref().map(Value::as_str) {
        None | Some(Some("next")) => Ok(false),
        Some(Some("now")) => Ok(true),
        Some(_) => Err(AdminError::unfit("`effective` must be \"now\" or \"next\"")),
    }
}

/// The edits of one kind, in the form in which a client can send them again.
pub(super) fn listed(daemon: &Daemon, kind: &str, name: &str) -> Value {
    let edits: toml::Table = toml::from_str(&daemon.engine.overlay().to_toml()).unwrap_or_default();
    let tables = edits.into_iter().find(|(known, _)| known == kind);
    let tables = tables.map_or(Value::Array(Vec::new()), |(_, tables)| as_json(tables));
    json!({ name: tables, "version": daemon.audit.last() })
}

/// Sets an override. The table is one of the rule's `override` list, with the `domain` and the name
/// of the `rule`, and when it takes effect.
pub(super) fn put_override(
    daemon: &Daemon,
    actor: &str,
    payload: Payload,
) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let (domain, name) = (domain(&mut table)?, text(&mut table, "rule")?);
    let is_now = is_now(&mut table)?;
    let rule = find(daemon, &domain, &name)?;
    if let Some(Value::Object(key)) = table.get_mut("key") {
        name_positions(&rule, key);
    }
    let mut rule = without_overrides(table_of(&rule));
    rule.insert("override".into(), Value::Array(vec![Value::Object(table)]));
    let overridden = rule_of(rule)?;
    let Some(payload) = overridden.overrides().first() else {
        return Err(AdminError::unfit("the body has no override"));
    };
    check_paths(daemon, payload.key())?;
    let edit = Edit::set_override(overridden.id(), payload.clone());
    let edit = if is_now { edit.now() } else { edit };
    let changes = daemon.engine.edit(actor, edit).block()?;
    Ok(json!({ "changes": changes.len(), "version": daemon.audit.last() }))
}

/// Removes an override.
pub(super) fn remove_override(
    daemon: &Daemon,
    actor: &str,
    payload: Payload,
) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let (domain, name) = (domain(&mut table)?, text(&mut table, "rule")?);
    let is_now = is_now(&mut table)?;
    let mut key = table.remove("key").unwrap_or_default();
    nothing_else(&table)?;
    let rule = find(daemon, &domain, &name)?;
    if let Value::Object(key) = &mut key {
        name_positions(&rule, key);
    }
    let wanted = json!({ "domain": domain, "rule": name, "key": key, "unlimited": true });
    let overlay = overlay_of("override", wanted)?;
    let Some((rule, wanted)) = overlay.overrides().next() else {
        return Err(AdminError::unfit("`key` is missing: the keys of the override"));
    };
    let now = daemon.engine.overlay();
    if !now.overrides().any(|(of_rule, set)| (of_rule, set.key()) == (rule, wanted.key())) {
        let detail = "no such override; `GET /admin/v1/overrides` lists them. Overrides in the policy \
                      are changed there";
        return Err(AdminError::new(404, "Not Found", detail));
    }
    let edit = Edit::remove_override(rule, wanted.key());
    let edit = if is_now { edit.now() } else { edit };
    let changes = daemon.engine.edit(actor, edit).block()?;
    Ok(json!({ "changes": changes.len(), "version": daemon.audit.last() }))
}

/// Adds a ban: `until` a time, `for` a duration, or for good.
pub(super) fn ban(daemon: &Daemon, actor: &str, payload: Payload) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let domain = domain(&mut table)?;
    if let Some(length) = table.remove("for") {
        let length = length.as_str().map(duration_from_text);
        let length: Duration = match length {
            Some(Ok(length)) => length,
            Some(Err(error)) => {
                return Err(AdminError::unfit(format!("`for`: {}", error.message())));
            }
            None => return Err(AdminError::unfit("`for` must be a duration, such as \"1h30m\"")),
        };
        let until = daemon.engine.clock().wall().saturating_add(length);
        if table.insert("until".into(), time_text(until).into()).is_some() {
            return Err(AdminError::unfit(
                "`for` and `until` exclude each other; send one of them",
            ));
        }
    }
    table.insert("domain".into(), domain.into());
    let overlay = overlay_of("ban", Value::Object(table))?;
    let [ban] = overlay.bans() else { return Err(AdminError::unfit("the body has no ban")) };
    check_paths(daemon, ban.conditions())?;
    let description = ban.to_string();
    let changes = daemon.engine.edit(actor, Edit::ban(ban.clone())).block()?;
    Ok(json!({
        "changes": changes.len(), "description": description, "version": daemon.audit.last(),
    }))
}

/// Removes a ban.
pub(super) fn unban(daemon: &Daemon, actor: &str, payload: Payload) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let domain = domain(&mut table)?;
    let banned = table.remove("match").unwrap_or_default();
    nothing_else(&table)?;
    let overlay = overlay_of("ban", json!({ "domain": domain, "match": banned }))?;
    let [wanted] = overlay.bans() else { return Err(AdminError::unfit("the body has no ban")) };
    let changes = daemon.engine.edit(actor, Edit::unban(&domain, wanted.conditions())).block()?;
    if changes.is_empty() {
        let detail = "no such ban; `GET /admin/v1/bans` lists them";
        return Err(AdminError::new(404, "Not Found", detail));
    }
    Ok(json!({ "changes": changes.len(), "version": daemon.audit.last() }))
}

/// Renames the attributes of an override of an imported rule, which finds entries by their position:
/// `user` becomes `1.user`. A name that has several positions stays, and is rejected.
fn name_positions(rule: &Rule, key: &mut TomlTable) {
    let parts = rule.key().parts();
    let is_of_rule = |name: &str| parts.iter().any(|part| part.attribute() == name);
    let position_of = |name: &str| {
        let mut named = parts.iter().map(KeyPart::attribute).filter(|attribute| {
            let (position, key) = attribute.split_once('.').unwrap_or_default();
            key == name && position.parse::<usize>().is_ok()
        });
        named.next().filter(|_| named.next().is_none())
    };
    let names: Vec<_> = key.keys().filter(|name| !is_of_rule(name)).cloned().collect();
    for name in names {
        if let Some(position) = position_of(&name)
            && let Some(value) = key.remove(&name)
        {
            key.insert(position.into(), value);
        }
    }
}

/// Rejects paths that no request has.
fn check_paths(daemon: &Daemon, conditions: &[Condition]) -> Result<(), AdminError> {
    let slashes = daemon.settings.policy.settings().encoded_slash();
    match conditions.iter().find_map(|condition| condition.path_problem(slashes)) {
        None => Ok(()),
        Some(problem) => Err(AdminError::unfit(problem)),
    }
}

fn overlay_of(kind: &str, table: Value) -> Result<Overlay, AdminError> {
    let table = match table {
        Value::Object(table) => table.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => TomlTable::new(),
    };
    Ok(Overlay::from_toml(&in_list(kind, table)?)?)
}

/// The domain of a table, or the default one.
pub(super) fn domain(table: &mut TomlTable) -> Result<String, AdminError> {
    if table.contains_key("domain") {
        text(table, "domain")
    } else {
        Ok(Rule::DEFAULT_DOMAIN.into())
    }
}

/// The attributes of a request, which may be absent.
pub(super) fn attributes(table: &mut TomlTable) -> Result<Vec<(String, String)>, AdminError> {
    let named = match table.remove("attributes") {
        None => TomlTable::new(),
        Some(Value::Object(attributes)) => attributes,
        Some(_) => return Err(AdminError::unfit("`attributes` is not a table")),
    };
    let attribute = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) if !number.is_f64() => Ok((name, number.to_string())),
        _ => {
            let detail = format!("attribute {name:?} is neither text nor a whole number");
            Err(AdminError::unfit(detail))
        }
    };
    named.into_iter().map(attribute).collect()
}

/// The attributes of a request. If all are named by positions, as in lists of keys (`1.plan`), they are those;
/// beside others such a name is text, because it may be what a client sent.
pub(super) fn named(attributes: &[(String, String)]) -> NamedAttributes<'_> {
    let named = attributes.iter().map(|(name, value)| (&**name, &**value));
    match attributes.iter().any(|(name, _)| Attributes::is_name(name)) {
        true => NamedAttributes::as_given(named),
        false => NamedAttributes::new(named),
    }
}

/// A required text of a table.
pub(super) fn text(table: &mut TomlTable, name: &str) -> Result<String, AdminError> {
    match table.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(AdminError::unfit(format!("`{name}` is not text"))),
        None => Err(AdminError::unfit(format!("`{name}` is missing"))),
    }
}

/// Rejects fields that are left in a table.
pub(super) fn nothing_else(table: &TomlTable) -> Result<(), AdminError> {
    match table.keys().next() {
        None => Ok(()),
        Some(name) => Err(AdminError::unfit(format!("unknown field `{name}`"))),
    }
}
