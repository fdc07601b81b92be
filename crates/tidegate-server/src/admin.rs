//! The admin API: state and edits of a running daemon.
//!
//! All of it is under `/admin/v1/`, in one table: [`handle`] serves the admin listener and the
//! local socket alike. An edit is in force at once, and in the audit log with its actor.

use std::sync::Arc;
use tidegate::{Edit, edit::Overlay};

use serde_json::{Value, json};
use tidegate::policy::Scope;
use tidegate_listen::Permit;
use tidegate_proto::percent;

use crate::access::Principal;
use crate::daemon::{Daemon, SharedDaemon};
pub(crate) use payload::{Payload, RawPayload};
pub(crate) use response::{AdminError, AdminResponse};

mod edits;
mod estimate;
mod events;
pub(crate) mod listener;
pub(crate) mod overview;
mod payload;
mod policy;
mod preview;
mod requests;
mod response;
mod session;
mod state;
mod usage;

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminClient<'a> {
    pub(crate) principal: &'a Principal,
    /// The author of changes, for the audit log.
    pub(crate) actor: &'a str,
    /// The permit of its connection, where bodies are large.
    pub(crate) permit: Option<&'a Permit>,
}

/// A request to the admin API.
#[derive(Debug)]
pub(crate) struct AdminRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// The part after the `?`.
    pub(crate) query: &'a str,
    pub(crate) payload: RawPayload,
}

/// An action of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminAction {
    Status,
    Policy,
    Rules,
    Overrides,
    Bans,
    Audit,
    Top,
    Usage,
    Traffic(TrafficAction),
    ResetKey,
    CloseRound,
    Edit(PolicyEdit),
}

/// A look at requests: recent ones, or such as may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficAction {
    /// What the keys of a request have used.
    KeyUsage,
    Explain,
    Denials,
    History,
    Preview,
}

/// An edit of the policy or of the overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyEdit {
    PutPolicy,
    PatchRule,
    PutOverride,
    DropOverride,
    Ban,
    Unban,
    DropAll,
}

/// A method of a path: the scope it needs, and its action.
pub(crate) type AdminMethod = (&'static str, Scope, AdminAction);

/// Every path with its methods.
const ROUTES: [(&str, &[AdminMethod]); 15] = [
    ("status", &[("GET", Scope::Inspect, AdminAction::Status)]),
    (
        "policy",
        &[
            ("GET", Scope::Inspect, AdminAction::Policy),
            ("PUT", Scope::Admin, AdminAction::Edit(PolicyEdit::PutPolicy)),
        ],
    ),
    ("overlay", &[("DELETE", Scope::Admin, AdminAction::Edit(PolicyEdit::DropAll))]),
    ("rules", &[("GET", Scope::Inspect, AdminAction::Rules)]),
    (
        "overrides",
        &[
            ("GET", Scope::Inspect, AdminAction::Overrides),
            ("PUT", Scope::Admin, AdminAction::Edit(PolicyEdit::PutOverride)),
            ("DELETE", Scope::Admin, AdminAction::Edit(PolicyEdit::DropOverride)),
        ],
    ),
    (
        "bans",
        &[
            ("GET", Scope::Inspect, AdminAction::Bans),
            ("POST", Scope::Admin, AdminAction::Edit(PolicyEdit::Ban)),
            ("DELETE", Scope::Admin, AdminAction::Edit(PolicyEdit::Unban)),
        ],
    ),
    ("keys/reset", &[("POST", Scope::Admin, AdminAction::ResetKey)]),
    ("rounds/close", &[("POST", Scope::Admin, AdminAction::CloseRound)]),
    ("audit", &[("GET", Scope::Inspect, AdminAction::Audit)]),
    ("top", &[("GET", Scope::Inspect, AdminAction::Top)]),
    (
        "usage",
        &[
            ("GET", Scope::Inspect, AdminAction::Usage),
            ("POST", Scope::Inspect, AdminAction::Traffic(TrafficAction::KeyUsage)),
        ],
    ),
    ("explain", &[("POST", Scope::Inspect, AdminAction::Traffic(TrafficAction::Explain))]),
    ("denials", &[("GET", Scope::Inspect, AdminAction::Traffic(TrafficAction::Denials))]),
    ("history", &[("GET", Scope::Inspect, AdminAction::Traffic(TrafficAction::History))]),
    ("preview", &[("POST", Scope::Inspect, AdminAction::Traffic(TrafficAction::Preview))]),
];

/// The methods of a rule's path, which names the rule.
const RULE: &[AdminMethod] = &[("PATCH", Scope::Admin, AdminAction::Edit(PolicyEdit::PatchRule))];

/// Every path below `/admin/v1/` with its methods.
#[cfg(test)]
pub(crate) fn routes() -> impl Iterator<Item = (&'static str, &'static [AdminMethod])> {
    ROUTES.into_iter().chain([("rules/{domain}/{name}", RULE)])
}

/// Runs a request, if the client has the scope for it, in all domains.
pub(crate) async fn handle(
    daemon: &SharedDaemon,
    client: AdminClient<'_>,
    request: AdminRequest<'_>,
) -> AdminResponse {
    match try_handle(daemon, client, request).await {
        Ok(body) => AdminResponse { status: 200, body, denial: None },
        Err(error) => error.into(),
    }
}

async fn try_handle(
    daemon: &SharedDaemon,
    client: AdminClient<'_>,
    request: AdminRequest<'_>,
) -> Result<Value, AdminError> {
    let AdminRequest { method, path, query, payload } = request;
    let path = path.strip_prefix("/admin/v1/").ok_or_else(AdminError::not_found)?;
    let rule = rule_in(path);
    let known = ROUTES.iter().find(|(known, _)| *known == path).map(|(_, methods)| *methods);
    let methods = known.or(rule.as_ref().map(|_| RULE)).ok_or_else(AdminError::not_found)?;
    let Some((_, needed, act)) = methods.iter().find(|(known, ..)| *known == method) else {
        let allowed: Vec<_> = methods.iter().map(|(known, ..)| *known).collect();
        return Err(AdminError::method(&allowed));
    };
    client.principal.may_everywhere(*needed)?;
    let _turn = match act {
        AdminAction::Traffic(TrafficAction::Preview) => {
            let _queued = client.permit.map(|permit| permit.wait(payload.len()));
            Some(preview::turn().await?)
        }
        _ => None,
    };
    let payload = match act.needs_table() {
        true => payload.decode_table().await?,
        // What the others parse, they parse on a thread that may block.
        false => payload.decode().await?,
    };
    let done = act.run(daemon, client.actor, rule, query, payload).await?;
    // An edit that cannot be stored is in force all the same; the client has to know.
    if *needed == Scope::Admin && daemon.engine.sync().await.is_err() {
        return Err(AdminError::outage());
    }
    Ok(done)
}

impl AdminAction {
    /// Whether its body is a table.
    const fn needs_table(self) -> bool {
        match self {
            Self::ResetKey | Self::CloseRound => true,
            Self::Traffic(look) => matches!(look, TrafficAction::KeyUsage | TrafficAction::Explain),
            _ => false,
        }
    }

    async fn run(
        self,
        daemon: &SharedDaemon,
        actor: &str,
        rule: Option<RuleName>,
        query: &str,
        payload: Payload,
    ) -> Result<Value, AdminError> {
        match self {
            AdminAction::Status => Ok(state::status(daemon)),
            AdminAction::Policy => Ok(policy::show(daemon)),
            AdminAction::Rules => Ok(policy::rules(daemon)),
            AdminAction::Overrides => Ok(edits::listed(daemon, "override", "overrides")),
            AdminAction::Bans => Ok(edits::listed(daemon, "ban", "bans")),
            AdminAction::Audit => state::audit(daemon, query),
            AdminAction::Top => state::top(daemon, query),
            AdminAction::Usage => usage::list(daemon, query).await,
            AdminAction::Traffic(look) => look.run(daemon, query, payload).await,
            AdminAction::ResetKey => state::reset(daemon, actor, payload).await,
            AdminAction::CloseRound => state::close_round(daemon, actor, payload).await,
            AdminAction::Edit(edit) => {
                let (daemon, actor) = (Arc::clone(daemon), actor.to_owned());
                // An edit waits for the disk, so it must not block a worker of the runtime.
                let made = tokio::task::spawn_blocking(move || {
                    edit.make(&daemon, &actor, &rule.unwrap_or_default(), payload)
                });
                made.await.unwrap_or_else(|_| Err(AdminError::outage()))
            }
        }
    }
}

impl TrafficAction {
    async fn run(
        self,
        daemon: &SharedDaemon,
        query: &str,
        payload: Payload,
    ) -> Result<Value, AdminError> {
        match self {
            TrafficAction::KeyUsage => requests::usage(daemon, payload).await,
            TrafficAction::Explain => requests::explain(daemon, payload).await,
            TrafficAction::Denials => requests::denials(daemon, query),
            TrafficAction::History => Ok(daemon.traffic.history.to_json()),
            TrafficAction::Preview => preview::preview(daemon, payload).await,
        }
    }
}

impl PolicyEdit {
    /// Applies the edit. Waits for the disk.
    fn make(
        self,
        daemon: &Daemon,
        actor: &str,
        rule: &RuleName,
        payload: Payload,
    ) -> Result<Value, AdminError> {
        match self {
            PolicyEdit::PutPolicy => policy::apply(daemon, actor, payload),
            PolicyEdit::PatchRule => policy::patch(daemon, actor, rule, payload),
            PolicyEdit::PutOverride => edits::put_override(daemon, actor, payload),
            PolicyEdit::DropOverride => edits::remove_override(daemon, actor, payload),
            PolicyEdit::Ban => edits::ban(daemon, actor, payload),
            PolicyEdit::Unban => edits::unban(daemon, actor, payload),
            PolicyEdit::DropAll => Ok(
                json!({ "changes": daemon.engine.edit(actor, Edit::overlay(Overlay::default())).block()?.len() }),
            ),
        }
    }
}

/// A rule's domain, and its name there.
#[derive(Debug, Default, PartialEq, Eq)]
struct RuleName {
    domain: String,
    name: String,
}

/// The domain and the name in `rules/{domain}/{name}`.
fn rule_in(path: &str) -> Option<RuleName> {
    let (domain, name) = path.strip_prefix("rules/")?.split_once('/')?;
    let is_one = |part: &str| !part.is_empty() && !part.contains('/');
    if !is_one(domain) || !is_one(name) {
        return None;
    }
    Some(RuleName { domain: plain(domain)?, name: plain(name)? })
}

/// The text of a part of a path, in which `%41` is `A`.
fn plain(part: &str) -> Option<String> {
    String::from_utf8(percent::decoded(part)?).ok()
}

#[cfg(test)]
mod tests {
    use tidegate::policy::Scope;

    use super::{AdminAction, ROUTES, RuleName, plain, rule_in};

    #[test]
    fn the_scope_inspect_may_change_nothing() {
        for (path, methods) in ROUTES {
            for (method, scope, action) in methods {
                let only_looks = *method == "GET" || matches!(action, AdminAction::Traffic(_));
                let needed = if only_looks { Scope::Inspect } else { Scope::Admin };
                assert_eq!(*scope, needed, "{method} {path}");
            }
        }
    }

    #[test]
    fn a_path_names_a_rule() {
        let rule = |domain: &str, name: &str| {
            Some(RuleName { domain: domain.to_owned(), name: name.to_owned() })
        };
        assert_eq!(rule_in("rules/api/search"), rule("api", "search"));
        assert_eq!(rule_in("rules/a%2Fb/%C3%A9%25"), rule("a/b", "é%"));
        for wrong in
            ["rules/api", "rules//x", "rules/x/", "rules/a/b/c", "rules/a/%f", "rules/a/%ff"]
        {
            assert_eq!(rule_in(wrong), None, "{wrong}");
        }
        assert_eq!(plain("%+1"), None);
    }
}
