//! Measures the daemon each second: for the history, and for open pages of the dashboard.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate::policy::RuleId;
use tidegate_listen::ShutdownSignal;
use tokio::time::MissedTickBehavior;

use super::state;
use crate::daemon::{Daemon, Readiness, SharedDaemon};
use crate::listener::Listener;
use crate::telemetry::{Reading, resident_bytes};
use crate::traffic::{Point, RULE_STEPS, RuleCounts, STEP_MS};

/// Measures each second until the daemon stops.
pub(crate) async fn measure(daemon: SharedDaemon, mut shutdown: ShutdownSignal) {
    let mut ticks = tokio::time::interval(Duration::from_millis(STEP_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once.
    ticks.tick().await;
    let mut before = Totals::of(&daemon);
    let mut rules_before: Option<RuleTotals> = None;
    for step in 1_u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.wanted() => return,
        }
        let totals = Totals::of(&daemon);
        let point = totals.since(&before, &daemon);
        before = totals;
        let is_rule_step = step % RULE_STEPS == 0;
        let is_followed = daemon.traffic.feed.is_followed();
        let mut rules = None;
        if is_rule_step || is_followed {
            let tallies = daemon.engine.tallies();
            if is_rule_step {
                daemon.traffic.history.push_rules(point.time_ms, &tallies);
                daemon.traffic.sample.tidy(daemon.engine.clock().now());
            }
            let totals = RuleTotals::new(step, RuleCounts::by_rule(&tallies));
            // Without the counts of a second ago there is nothing to compare with.
            rules =
                rules_before.take().filter(|it| it.step + 1 == step).map(|it| totals.since(&it));
            rules_before = Some(totals);
        }
        daemon.traffic.history.push(point.clone());
        if is_followed {
            let readiness = daemon.readiness(&shutdown);
            let overview = overview(&daemon, &readiness, &point, rules.unwrap_or_default());
            daemon.traffic.feed.publish(event("overview", &overview));
        }
    }
}

/// What was counted since the start.
struct Totals {
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
    unmatched: u64,
    durations: Reading,
}

impl Totals {
    fn of(daemon: &Daemon) -> Self {
        let metrics = &daemon.metrics;
        let durations = |listener| metrics.listener(listener).durations.read();
        let others = [Listener::Grpc, Listener::Resp, Listener::Unix];
        let all = others
            .into_iter()
            .fold(durations(Listener::Http), |all, listener| all.plus(&durations(listener)));
        Self {
            allowed: metrics.decisions.allowed.get(),
            denied: metrics.decisions.denied.get(),
            shadow_denied: metrics.decisions.shadow_denied.get(),
            unmatched: metrics.unmatched.total(),
            durations: all,
        }
    }

    fn since(&self, before: &Self, daemon: &Daemon) -> Point {
        let durations = self.durations.clone().since(&before.durations);
        let us = |share| {
            let quantile = durations.quantile(share)?;
            u64::try_from(quantile.as_micros()).ok()
        };
        Point {
            time_ms: daemon.wall().as_nanos() / 1_000_000,
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow_denied: self.shadow_denied.saturating_sub(before.shadow_denied),
            unmatched: self.unmatched.saturating_sub(before.unmatched),
            p50_us: us(500),
            p99_us: us(990),
            keys: daemon.engine.len() as u64,
            bytes: daemon.engine.bytes() as u64,
        }
    }
}

/// What every rule has decided since the start, at a step.
struct RuleTotals {
    step: u64,
    counts: HashMap<RuleId, RuleCounts>,
}

impl RuleTotals {
    fn new(step: u64, counts: HashMap<&RuleId, RuleCounts>) -> Self {
        let counts = counts.into_iter().map(|(rule, counts)| (rule.clone(), counts)).collect();
        Self { step, counts }
    }

    /// What rules have decided since, of those that have decided anything.
    fn since(&self, before: &Self) -> Vec<(RuleId, RuleCounts)> {
        let since = |(rule, counts): (&RuleId, &RuleCounts)| {
            let earlier = before.counts.get(rule).copied().unwrap_or_default();
            let counts = counts.since(earlier);
            (counts != RuleCounts::default()).then(|| (rule.clone(), counts))
        };
        let mut since: Vec<_> = self.counts.iter().filter_map(since).collect();
        since.sort_unstable_by_key(|(_, counts)| {
            let RuleCounts { allowed, denied, shadow_denied } = *counts;
            std::cmp::Reverse(allowed.saturating_add(denied).saturating_add(shadow_denied))
        });
        since.truncate(MOST_RULES);
        since
    }
}

/// The content of an event.
fn overview(
    daemon: &Daemon,
    readiness: &Readiness,
    point: &Point,
    rules: Vec<(RuleId, RuleCounts)>,
) -> Value {
    let problems = [&readiness.store, &readiness.policy, &readiness.tokens, &readiness.tls];
    let mut problems: Vec<String> = problems.into_iter().flatten().cloned().collect();
    let restart = readiness.needs_restart.iter();
    problems.extend(restart.map(|setting| format!("`{setting}` changes with a restart")));
    let open = |listener: &Listener| {
        (listener.name().to_owned(), json!(daemon.connections.of(*listener).open_connections()))
    };
    let mut store = state::store(daemon);
    let nodes = store.as_object_mut().and_then(|store| store.remove("nodes"));
    let rules = rules.into_iter().map(|(rule, counts)| {
        json!({
            "domain": rule.domain(), "name": rule.name(), "allowed": counts.allowed,
            "denied": counts.denied, "shadow_denied": counts.shadow_denied,
        })
    });
    json!({
        "time_ms": point.time_ms,
        "step_ms": STEP_MS,
        "allowed": point.allowed,
        "denied": point.denied,
        "shadow_denied": point.shadow_denied,
        "unmatched": point.unmatched,
        "p50_us": point.p50_us,
        "p99_us": point.p99_us,
        "keys": point.keys,
        "max_keys": daemon.engine.policy().settings().max_keys(),
        "bytes": point.bytes,
        "resident_bytes": resident_bytes(),
        "connections": Listener::ALL.iter().map(open).collect::<Map<_, _>>(),
        "store": store,
        "nodes": nodes,
        "degraded": readiness.degraded,
        "problems": problems,
        "changes": daemon.audit.last(),
        "rules": rules.collect::<Vec<_>>(),
    })
}

/// A server-sent event.
fn event(name: &str, content: &Value) -> Bytes {
    // JSON has no line breaks.
    format!("event: {name}\ndata: {content}\n\n").into()
}

/// How many rules an event names: those that decided most.
const MOST_RULES: usize = 500;
