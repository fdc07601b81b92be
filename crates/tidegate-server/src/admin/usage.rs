//! The keys that have used most of their limits, as far as their names are kept.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tidegate::durable::{KeyNames, KeyNamesBound};
use tidegate::policy::RuleId;
use tidegate::{
    CheckError,
    report::{KeyName, RuleUsage},
};
use tokio::sync::Semaphore;

use super::{AdminError, plain};
use crate::body::usage::{RuleUsageBody, ShareNumber};
use crate::daemon::{Daemon, SharedDaemon};

/// The parameters of a list.
#[derive(Debug, Default, PartialEq, Eq)]
struct UsageQuery {
    domain: Option<String>,
    rule: Option<String>,
    over: Option<ShareNumber>,
    limit: Option<usize>,
    after: Option<Position>,
}

/// The position of a key in the list: by share, and among equal shares by a hash of its name.
type Position = (Reverse<u64>, u64);

/// A key of the list.
struct ListedKey {
    position: Position,
    usage: RuleUsage,
    source: &'static str,
}

/// `GET usage`
pub(super) async fn list(daemon: &SharedDaemon, query: &str) -> Result<Value, AdminError> {
    let query = UsageQuery::parse(query)?;
    let _one_at_a_time = ONE_LIST.acquire().await.map_err(|_| AdminError::outage())?;
    // What is not written yet has names, too. Without the disk they are missing.
    let is_synced = daemon.engine.sync().await.is_ok();
    let on_disk = names_on_disk(daemon, &query).await;
    let (mut listed, mut known) = (Vec::new(), HashSet::new());
    let busiest = daemon.metrics.top.names();
    let overridden = daemon.engine.overridden_keys(MOST_OVERRIDES);
    let mut gaps = Vec::new();
    if daemon.engine.file_store().is_some() && !(is_synced && on_disk.is_complete) {
        gaps.push("the ledger has more names than were read");
    }
    if overridden.len() == MOST_OVERRIDES {
        gaps.push("there are more overrides than were read");
    }
    let sources =
        [("override", overridden), ("ledger", on_disk.names), ("busiest", busiest)].into_iter();
    for (source, name) in sources.flat_map(|(it, names)| names.into_iter().map(move |n| (it, n))) {
        if !query.has(name.rule()) || !known.insert(name.clone()) {
            continue;
        }
        let usage = match daemon.engine.usage_of_key(&name).await {
            Ok(usage) => usage,
            Err(error @ CheckError::Outage(_)) => return Err(unavailable(&error)),
            // The rule does not accept such a key any more.
            Err(_) => None,
        };
        listed.extend(usage.and_then(|usage| ListedKey::new(daemon, usage, source)));
    }
    listed.retain(|it| query.over.is_none_or(|over| it.position.0.0 >= over.0));
    listed.sort_unstable_by_key(|it| it.position);
    let start = query.after.map_or(0, |after| listed.partition_point(|it| it.position <= after));
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    let page = &listed[start..listed.len().min(start + limit)];
    let has_more = start + page.len() < listed.len();
    let cursor = page.last().filter(|_| has_more).map(|it| cursor_of(it.position));
    let note = missing_keys(daemon, &query, &gaps);
    Ok(json!({
        "keys": page.iter().map(|it| it.to_json(daemon)).collect::<Vec<_>>(),
        "cursor": cursor,
        "complete": note.is_none(),
        "note": note,
    }))
}

/// The names that the ledger has, of keys that are in use.
async fn names_on_disk(daemon: &SharedDaemon, query: &UsageQuery) -> KeyNames {
    let (daemon, domain, rule) = (Arc::clone(daemon), query.domain.clone(), query.rule.clone());
    let wanted = UsageQuery { domain, rule, ..UsageQuery::default() };
    // It reads files, so it must not block a worker of the runtime.
    let reading = tokio::task::spawn_blocking(move || {
        let bound = KeyNamesBound { names: MOST_NAMES, bytes: MOST_LOG_BYTES };
        let names = daemon.engine.file_store()?.key_names(bound, |rule| wanted.has(rule));
        names.ok()
    });
    reading.await.ok().flatten().unwrap_or_default()
}

/// Which keys may be missing; `None` if none are.
fn missing_keys(daemon: &Daemon, query: &UsageQuery, gaps: &[&str]) -> Option<String> {
    let mut notes: Vec<String> = gaps.iter().map(|&gap| gap.into()).collect();
    let rules = daemon.engine.rules_without_names();
    let unnamed: Vec<RuleId> = rules.into_iter().filter(|it| query.has(it)).collect();
    if !unnamed.is_empty() {
        let shown = unnamed.iter().take(SHOWN_RULES);
        let shown: Vec<_> = shown.map(|it| it.to_string().escape_debug().to_string()).collect();
        let more = unnamed.len().saturating_sub(SHOWN_RULES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!(
            "names of keys are kept by durable rules of a file store, by overrides, and for the \
             busiest keys; these rules keep no others: {}{more}",
            shown.join(", ")
        ));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

impl ListedKey {
    /// `None` for a key without a limit.
    fn new(daemon: &Daemon, usage: RuleUsage, source: &'static str) -> Option<Self> {
        let share_ppm = usage.share_ppm()?;
        let name = KeyName::new(usage.rule.clone(), usage.key.clone());
        let mut hasher = DefaultHasher::new();
        daemon.metrics.top.printable(&name).hash(&mut hasher);
        Some(Self { position: (Reverse(share_ppm), hasher.finish()), usage, source })
    }

    fn to_json(&self, daemon: &Daemon) -> Value {
        let name = KeyName::new(self.usage.rule.clone(), self.usage.key.clone());
        let printable = daemon.metrics.top.printable(&name);
        let key: Map<_, _> =
            printable.key.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        let mut fields = Map::new();
        fields.insert("domain".into(), json!(self.usage.rule.domain()));
        if let Ok(Value::Object(usage)) = serde_json::to_value(RuleUsageBody::new(&self.usage)) {
            fields.extend(usage);
        }
        fields.insert("key".into(), key.into());
        fields.insert("source".into(), json!(self.source));
        fields.into()
    }
}

impl UsageQuery {
    fn parse(query: &str) -> Result<Self, AdminError> {
        let mut parsed = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let unfit = |what: &str| {
                AdminError::unfit(format!("{}: {value:?} is not {what}", name.escape_debug()))
            };
            let value = plain(value).ok_or_else(|| unfit("text in percent encoding"))?;
            if value.is_empty() && PARAMETERS.contains(&name) {
                continue;
            }
            match name {
                "domain" => parsed.domain = Some(value),
                "rule" => parsed.rule = Some(value),
                "over" => {
                    let over = ShareNumber::parse(&value);
                    parsed.over = Some(over.ok_or_else(|| unfit("a share such as 0.8"))?);
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MOST_LIMIT).contains(limit));
                    let limit = limit.ok_or_else(|| unfit("a number from 1 to 1000"))?;
                    parsed.limit = Some(limit);
                }
                "cursor" => {
                    let after = position_of(&value).ok_or_else(|| unfit("a cursor of a list"))?;
                    parsed.after = Some(after);
                }
                _ => {
                    let known = PARAMETERS.join(", ");
                    let detail = format!("unknown parameter {pair:?}; use {known}");
                    return Err(AdminError::unfit(detail));
                }
            }
        }
        Ok(parsed)
    }

    fn has(&self, rule: &RuleId) -> bool {
        self.domain.as_deref().is_none_or(|domain| domain == rule.domain())
            && self.rule.as_deref().is_none_or(|name| name == rule.name())
    }
}

fn cursor_of((Reverse(share_ppm), hash): Position) -> String {
    format!("{share_ppm}-{hash:016x}")
}

fn position_of(cursor: &str) -> Option<Position> {
    let (share_ppm, hash) = cursor.split_once('-')?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_plain(share_ppm) || !is_plain(hash) {
        return None;
    }
    Some((Reverse(share_ppm.parse().ok()?), u64::from_str_radix(hash, 16).ok()?))
}

fn unavailable(error: &CheckError) -> AdminError {
    AdminError::new(503, "Service Unavailable", error.to_string())
}

/// A list reads the log; one at a time is enough.
static ONE_LIST: Semaphore = Semaphore::const_new(1);

const PARAMETERS: [&str; 5] = ["domain", "rule", "over", "limit", "cursor"];
const DEFAULT_LIMIT: usize = 100;
const MOST_LIMIT: usize = 1_000;
/// How many keys with overrides are looked at.
const MOST_OVERRIDES: usize = 1_000;
/// How many names of the ledger are looked at.
const MOST_NAMES: usize = 10_000;
/// After how many bytes no other segment of the log is read.
const MOST_LOG_BYTES: u64 = 64 << 20;
/// How many rules a note names.
const SHOWN_RULES: usize = 10;

#[cfg(test)]
mod tests {
    use super::{Reverse, ShareNumber, UsageQuery, cursor_of, position_of};

    #[test]
    fn a_query_is_read_strictly() {
        let parsed = UsageQuery::parse("domain=a%26b&rule=r&over=0.8&limit=7&cursor=").unwrap();
        assert_eq!((parsed.domain.as_deref(), parsed.rule.as_deref()), (Some("a&b"), Some("r")));
        assert_eq!(
            (parsed.over, parsed.limit, parsed.after),
            (Some(ShareNumber(800_000)), Some(7), None)
        );
        for wrong in [
            "limit=0",
            "limit=1001",
            "limit=x",
            "over=80%25",
            "over=-1",
            "cursor=x",
            "user=ada",
            "domain=%f",
        ] {
            assert!(UsageQuery::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cursor_is_the_position_of_a_key() {
        for position in [(Reverse(0), 0), (Reverse(2_700_000), u64::MAX)] {
            assert_eq!(position_of(&cursor_of(position)), Some(position));
        }
        for wrong in ["", "1", "1-", "-1", "1-+f", "x-0"] {
            assert_eq!(position_of(wrong), None, "{wrong}");
        }
    }
}
