//! What somebody who looks after the daemon can see and change, whatever way they came in.
//!
//! All of it is under `/admin/v1/`, in one table: [`answer`] serves the admin listener and the local
//! socket alike. What is changed is in force at once, and written down with who did it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::daemon::{Daemon, SharedDaemon};
pub(crate) use given::Given;
pub(crate) use problem::{Answer, Refusal};

mod edits;
mod given;
pub(crate) mod listener;
mod policy;
mod problem;
mod state;
mod token;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Look at everything but secrets.
    Read,
    /// Change everything.
    Full,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visitor<'a> {
    pub(crate) role: Role,
    /// What is written down as the author of changes.
    pub(crate) who: &'a str,
}

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// What stands behind the `?`.
    pub(crate) query: &'a str,
    pub(crate) given: Given,
}

/// One thing that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Status,
    Policy,
    Rules,
    Overrides,
    Bans,
    Audit,
    Top,
    ResetKey,
    CloseRound,
    Edit(Edit),
}

/// A change of the policy, or of the edits over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    PutPolicy,
    PatchRule,
    PutOverride,
    DropOverride,
    Ban,
    Unban,
    DropAll,
}

/// A method of a path: who may, and what happens.
type Method = (&'static str, Role, Act);

/// Every path with its methods.
const ROUTES: [(&str, &[Method]); 10] = [
    ("status", &[("GET", Role::Read, Act::Status)]),
    (
        "policy",
        &[("GET", Role::Read, Act::Policy), ("PUT", Role::Full, Act::Edit(Edit::PutPolicy))],
    ),
    ("overlay", &[("DELETE", Role::Full, Act::Edit(Edit::DropAll))]),
    ("rules", &[("GET", Role::Read, Act::Rules)]),
    (
        "overrides",
        &[
            ("GET", Role::Read, Act::Overrides),
            ("PUT", Role::Full, Act::Edit(Edit::PutOverride)),
            ("DELETE", Role::Full, Act::Edit(Edit::DropOverride)),
        ],
    ),
    (
        "bans",
        &[
            ("GET", Role::Read, Act::Bans),
            ("POST", Role::Full, Act::Edit(Edit::Ban)),
            ("DELETE", Role::Full, Act::Edit(Edit::Unban)),
        ],
    ),
    ("keys/reset", &[("POST", Role::Full, Act::ResetKey)]),
    ("rounds/close", &[("POST", Role::Full, Act::CloseRound)]),
    ("audit", &[("GET", Role::Read, Act::Audit)]),
    ("top", &[("GET", Role::Read, Act::Top)]),
];

/// What one rule's path takes; the path names it.
const RULE: &[Method] = &[("PATCH", Role::Full, Act::Edit(Edit::PatchRule))];

/// Does what is asked for, if the visitor may.
pub(crate) async fn answer(
    daemon: &SharedDaemon,
    visitor: &Visitor<'_>,
    asked: Asked<'_>,
) -> Answer {
    match done(daemon, visitor, asked).await {
        Ok(body) => Answer { status: 200, body },
        Err(refusal) => refusal.into(),
    }
}

async fn done(
    daemon: &SharedDaemon,
    visitor: &Visitor<'_>,
    asked: Asked<'_>,
) -> Result<Value, Refusal> {
    let Asked { method, path, query, given } = asked;
    let path = path.strip_prefix("/admin/v1/").ok_or_else(Refusal::not_found)?;
    let rule = rule_in(path);
    let known = ROUTES.iter().find(|(known, _)| *known == path).map(|(_, methods)| *methods);
    let methods = known.or(rule.as_ref().map(|_| RULE)).ok_or_else(Refusal::not_found)?;
    let Some((_, needed, act)) = methods.iter().find(|(known, ..)| *known == method) else {
        let allowed: Vec<_> = methods.iter().map(|(known, ..)| *known).collect();
        return Err(Refusal::method(&allowed));
    };
    if visitor.role < *needed {
        return Err(Refusal::forbidden());
    }
    let done = act.run(daemon, visitor.who, (rule, query, given)).await?;
    // An edit is in force even if it cannot be kept; whoever made it has to know.
    if *needed == Role::Full && daemon.engine.sync_any().await.is_err() {
        return Err(Refusal::outage());
    }
    Ok(done)
}

impl Act {
    async fn run(
        self,
        daemon: &SharedDaemon,
        who: &str,
        (rule, query, given): (Option<RuleName>, &str, Given),
    ) -> Result<Value, Refusal> {
        match self {
            Act::Status => Ok(state::status(daemon)),
            Act::Policy => Ok(policy::show(daemon)),
            Act::Rules => Ok(policy::rules(daemon)),
            Act::Overrides => Ok(edits::listed(daemon, "override", "overrides")),
            Act::Bans => Ok(edits::listed(daemon, "ban", "bans")),
            Act::Audit => state::audit(daemon, query),
            Act::Top => state::top(daemon, query),
            Act::ResetKey => state::reset(daemon, who, given).await,
            Act::CloseRound => state::close_round(daemon, who, given).await,
            Act::Edit(edit) => {
                let (daemon, who) = (Arc::clone(daemon), who.to_owned());
                // An edit waits for the disk, so it is made where nobody else has to.
                let made = tokio::task::spawn_blocking(move || {
                    edit.make(&daemon, &who, (rule.unwrap_or_default(), given))
                });
                made.await.unwrap_or_else(|_| Err(Refusal::outage()))
            }
        }
    }
}

impl Edit {
    /// Makes it, and waits until the disk has it.
    fn make(
        self,
        daemon: &Daemon,
        who: &str,
        ((domain, name), given): (RuleName, Given),
    ) -> Result<Value, Refusal> {
        match self {
            Edit::PutPolicy => policy::put(daemon, who, given),
            Edit::PatchRule => policy::patch(daemon, who, (&domain, &name), given),
            Edit::PutOverride => edits::put_override(daemon, who, given),
            Edit::DropOverride => edits::drop_override(daemon, who, given),
            Edit::Ban => edits::ban(daemon, who, given),
            Edit::Unban => edits::unban(daemon, who, given),
            Edit::DropAll => Ok(json!({ "changes": daemon.engine.drop_overlay(who).len() })),
        }
    }
}

/// A rule's domain, and its name there.
type RuleName = (String, String);

/// The domain and the name in `rules/{domain}/{name}`.
fn rule_in(path: &str) -> Option<RuleName> {
    let (domain, name) = path.strip_prefix("rules/")?.split_once('/')?;
    let is_one = |part: &str| !part.is_empty() && !part.contains('/');
    if is_one(domain) && is_one(name) { Some((plain(domain)?, plain(name)?)) } else { None }
}

/// The text of a part of a path, in which `%41` is `A`.
fn plain(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{ROUTES, Role, plain, rule_in};

    #[test]
    fn only_looking_is_free_for_those_who_may_look() {
        for (path, methods) in ROUTES {
            for (method, role, _) in methods {
                let is_look = *method == "GET";
                assert_eq!(*role, if is_look { Role::Read } else { Role::Full }, "{method} {path}");
            }
        }
        assert!(Role::Read < Role::Full);
    }

    #[test]
    fn a_path_names_a_rule() {
        let pair = |domain: &str, name: &str| Some((domain.to_owned(), name.to_owned()));
        assert_eq!(rule_in("rules/api/search"), pair("api", "search"));
        assert_eq!(rule_in("rules/a%2Fb/%C3%A9%25"), pair("a/b", "é%"));
        for wrong in
            ["rules/api", "rules//x", "rules/x/", "rules/a/b/c", "rules/a/%f", "rules/a/%ff"]
        {
            assert_eq!(rule_in(wrong), None, "{wrong}");
        }
        assert_eq!(plain("%+1"), None);
    }
}
