//! Status, audit log and busiest keys; resets of keys and ends of rounds.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::policy::{Mode, Policy};
use tidegate::redis::{ClockStep, Node, Redis};
use tidegate::{CheckError, Request};
use tidegate_proto::times::time_text;

use super::AdminError;
use super::edits::{attributes, domain, named, nothing_else, text};
use super::payload::{Payload, TomlTable};
use crate::audit::{AuditAction, AuditEntry};
use crate::daemon::Daemon;
use crate::listener::Listener;

/// The status of a store that several daemons share.
fn shared_store(redis: &Redis, policy: &Policy) -> Value {
    let facts = redis.server();
    let server = facts.as_ref().map(ToString::to_string);
    let replicas = facts.as_ref().map(|it| it.replicas);
    let lag = facts.as_ref().filter(|it| it.replicas > 0).map(|it| it.lag);
    let lacking = redis.check_durability(policy).err().map(|it| it.to_string());
    let counters: serde_json::Map<_, _> =
        redis.stats().named().map(|(name, _, value)| (name.to_owned(), json!(value))).collect();
    let uncertainty_us = u64::try_from(redis.clock().uncertainty().as_micros()).unwrap_or(u64::MAX);
    json!({
        "kind": "redis", "server": server, "available": redis.is_available(),
        "clock_uncertainty_us": uncertainty_us,
        "clock_step_ms": redis.clock().last_step().map(step_ms), "counters": counters,
        "failure": redis.failure(), "not_durable": lacking,
        "replicas": replicas, "replica_lag_bytes": lag.map(|it| it.bytes),
        "replica_lag_seconds": lag.map(|it| it.seconds),
        "database_keys": facts.and_then(|it| it.keys),
        "nodes": nodes(redis),
    })
}

/// A step of the store's clock, in milliseconds; negative if it went back.
fn step_ms(step: ClockStep) -> i64 {
    let ms = |by: Duration| i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    match step {
        ClockStep::Forward(by) => ms(by),
        ClockStep::Back(by) => -ms(by),
    }
}

/// The status of the store.
pub(super) fn store(daemon: &Daemon) -> Value {
    let engine = &daemon.engine;
    match (engine.file_store(), &daemon.settings.redis) {
        (None, Some(redis)) => shared_store(redis, &engine.policy()),
        (None, None) => json!({ "kind": "memory" }),
        (Some(store), _) => json!({
            "kind": "file", "folder": daemon.settings.store_folder,
            "failure": store.failure().map(|error| error.to_string()),
        }),
    }
}

/// The daemons that share a store, this one first; null if they are not known.
pub(crate) fn nodes(redis: &Redis) -> Value {
    let node = |node: Node| {
        let seen_ms_ago = u64::try_from(node.seen_ago.as_millis()).unwrap_or(u64::MAX);
        json!({
            "name": node.name, "version": node.version, "address": node.address,
            "seen_ms_ago": seen_ms_ago, "self": node.is_self,
        })
    };
    redis.nodes().map(|nodes| nodes.into_iter().map(node).collect()).unwrap_or_default()
}

/// The status of the daemon.
pub(super) fn status(daemon: &Daemon) -> Value {
    let engine = &daemon.engine;
    let up_ms = u64::try_from(daemon.uptime().as_millis()).unwrap_or(u64::MAX);
    let listeners: serde_json::Map<_, _> = Listener::ALL
        .iter()
        .map(|listener| (listener.name().to_owned(), json!(daemon.settings.address(*listener))))
        .collect();
    let access = &daemon.access;
    let tokens = access.tokens().map(|count| {
        let reloads = access.status.reloads().to_json();
        json!({ "count": count, "reloads": reloads })
    });
    let policy = engine.policy();
    let listed = || policy.rules().iter().filter(|it| !it.is_placeholder());
    let shadowed = listed().filter(|it| it.mode() == Mode::Shadow).count();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "time": time_text(engine.clock().wall()),
        "uptime_ms": up_ms,
        "keys": engine.len(),
        "bytes": engine.bytes(),
        "max_keys": policy.settings().max_keys(),
        "rules": listed().count(),
        "shadow_rules": shadowed,
        "enforce_ppm": policy.settings().enforce_ppm(),
        "edits": !engine.overlay().is_empty(),
        "reload": daemon.reload.status().to_json(),
        "tokens": tokens,
        "store": store(daemon),
        "listeners": listeners,
        "changes": daemon.audit.last(),
    })
}

/// The changes after a number, oldest first.
pub(super) fn audit(daemon: &Daemon, query: &str) -> Result<Value, AdminError> {
    let since = number_in(query, "since")?.unwrap_or(0);
    let changes: Vec<_> = daemon.audit.since(since).iter().map(AuditEntry::to_json).collect();
    Ok(json!({ "changes": changes, "version": daemon.audit.last() }))
}

/// The busiest keys, and the most denied ones.
pub(super) fn top(daemon: &Daemon, query: &str) -> Result<Value, AdminError> {
    let count = number_in(query, "count")?.unwrap_or(TOP_COUNT).min(TOP_COUNT_MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let keys = daemon.metrics.top.read(count, daemon.now());
    Ok(serde_json::to_value(keys).unwrap_or_default())
}

/// The number in a query, which may have no other parameter.
fn number_in(query: &str, wanted: &str) -> Result<Option<u64>, AdminError> {
    let mut found = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((name, number)) if name == wanted => {
                let wrong = |_| AdminError::unfit(format!("{wanted}: {number:?} is not a number"));
                found = Some(number.parse().map_err(wrong)?);
            }
            _ => {
                let detail = format!("unknown parameter {pair:?}; use `{wanted}=N`");
                return Err(AdminError::unfit(detail));
            }
        }
    }
    Ok(found)
}

/// Drops the states of a request's keys.
pub(super) async fn reset(
    daemon: &Daemon,
    actor: &str,
    payload: Payload,
) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    match table.remove("all") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => return reset_all(daemon, actor, table).await,
        Some(_) => return Err(AdminError::unfit("`all` is neither true nor false")),
    }
    let domain = domain(&mut table)?;
    let attributes = attributes(&mut table)?;
    nothing_else(&table)?;
    let named = named(&attributes);
    let note = format!("reset by {actor}");
    let forgotten = daemon
        .engine
        .forget(&Request::with_attributes(&domain, named.attributes()).note(&note))
        .await;
    let was_there = forgotten.map_err(|error| match error {
        CheckError::Outage(_) => AdminError::outage(),
        other => AdminError::unfit(other.to_string()),
    })?;
    let key = attributes.iter().map(|(name, value)| format!("{name} = {value:?}"));
    let key = key.collect::<Vec<_>>().join(", ");
    daemon.audit.add(
        daemon.engine.clock().wall(),
        actor,
        AuditAction::Reset { domain: domain.into(), key },
    );
    Ok(json!({ "reset": was_there, "version": daemon.audit.last() }))
}

/// Drops the states of all keys, of one domain or of all.
async fn reset_all(
    daemon: &Daemon,
    actor: &str,
    mut table: TomlTable,
) -> Result<Value, AdminError> {
    let domain = match table.contains_key("domain") {
        true => Some(text(&mut table, "domain")?),
        false => None,
    };
    if table.contains_key("attributes") {
        return Err(AdminError::unfit("`all` and `attributes` exclude each other"));
    }
    nothing_else(&table)?;
    let note = format!("reset by {actor}");
    let forgotten = match &domain {
        Some(domain) => {
            known_domain(daemon, domain)?;
            daemon.engine.forget_domain(domain, &note).await
        }
        None => daemon.engine.forget_all(&note).await,
    };
    let keys = forgotten.map_err(|_| AdminError::outage())?;
    let act = AuditAction::ResetAll { domain: domain.map(Into::into), keys };
    daemon.audit.add(daemon.engine.clock().wall(), actor, act);
    Ok(json!({ "reset": keys > 0, "keys": keys, "version": daemon.audit.last() }))
}

/// An error for a domain without rules.
fn known_domain(daemon: &Daemon, domain: &str) -> Result<(), AdminError> {
    if daemon.engine.policy().rules().iter().any(|rule| rule.domain() == domain) {
        return Ok(());
    }
    Err(AdminError::new(404, "Not Found", format!("no rule is in domain {domain:?}")))
}

/// Closes the round of a domain.
pub(super) async fn close_round(
    daemon: &Daemon,
    actor: &str,
    payload: Payload,
) -> Result<Value, AdminError> {
    let mut table = payload.table()?;
    let domain = text(&mut table, "domain")?;
    nothing_else(&table)?;
    known_domain(daemon, &domain)?;
    let note = format!("closed by {actor}");
    let closed = daemon.engine.close_round(&domain, &note).await;
    let rounds = closed.map_err(|_| AdminError::outage())?;
    let act = AuditAction::Round { domain: domain.clone().into(), closed: rounds };
    daemon.audit.add(daemon.engine.clock().wall(), actor, act);
    Ok(json!({ "domain": domain, "rounds": rounds, "version": daemon.audit.last() }))
}

/// The default and the largest number of keys.
const TOP_COUNT: u64 = 10;
const TOP_COUNT_MAX: u64 = 512;
