//! `TG.*`: checks by the policy.

use std::ops::Range;

use tidegate::policy::Scope;
use tidegate::{CheckError, Report, Request, SettleError, hold::HoldId};
use tidegate_proto::resp::{Arguments, Replies, integer, parse};

use super::commands::{CommandKind, find};
use super::encode::encode;
use super::session::{Session, reply_denied};
use crate::body::explanation::explained;
use crate::body::usage::UsageBody;
use crate::body::{CommitBody, DecisionBody, DecisionId, ReservationBody};
use crate::daemon::Daemon;
use crate::listener::Listener;
use tidegate_listen::BudgetKind;

/// A request to the policy; its attributes are a range of a shared list.
struct PolicyQuery<'a> {
    domain: &'a str,
    attributes: Range<usize>,
    cost: u64,
    idempotency_key: Option<&'a str>,
}

type QueryAttributes<'a> = Vec<(&'a str, &'a str)>;

/// Handles the `TG.CHECK` in `arguments` and all that follow it as one batch; returns how many
/// bytes of the input they were.
pub(super) async fn check(
    session: &Session,
    input: &[u8],
    first_bytes: usize,
    arguments: &mut Arguments,
    replies: &mut Replies<'_>,
) -> usize {
    let Session { daemon, permit, principal, .. } = session;
    let (mut queries, mut attributes) = (Vec::new(), QueryAttributes::new());
    let (mut used, mut bytes, mut error) = (0, first_bytes, None);
    loop {
        let rest = &input[used..];
        let words = (1..arguments.len()).filter_map(|index| arguments.in_array(rest, index));
        used += bytes;
        match PolicyQuery::parse(CommandKind::Check, words, &mut attributes) {
            Ok(query) => queries.push(query),
            Err(message) => {
                error = Some(message);
                break;
            }
        }
        match next_check(&input[used..], arguments) {
            Some(found) if queries.len() < daemon.settings.bounds.batch => bytes = found,
            _ => break,
        }
    }
    let admitted: Vec<_> = queries
        .iter()
        .map(|it| {
            principal.charge(1)?;
            principal.request(Scope::Check, it.request(&attributes))
        })
        .collect();
    let requests: Vec<Request<'_>> = admitted.iter().flatten().copied().collect();
    let since = daemon.now();
    let responses = daemon.engine.check_many(&requests);
    let responses_bytes = size_of_val(&*responses) + responses.len() * Report::BODY_BYTES;
    let mut responses = responses.into_iter().zip(&requests);
    for admitted in &admitted {
        if let Err(denial) = admitted {
            reply_denied(daemon, session.peer, denial, replies);
            continue;
        }
        let Some((response, request)) = responses.next() else { break };
        // What waits for the store: these replies and decisions.
        permit.hold(BudgetKind::Unsent, replies.capacity() + responses_bytes);
        match response.await {
            Ok(report) => {
                let id = daemon.observe(Listener::Resp, request, &report);
                encode(&DecisionBody::new(&report, id), replies);
            }
            Err(error) => reply_error(&error, replies),
        }
    }
    drop(responses);
    daemon.observe_durations(Listener::Resp, since, requests.len() as u64);
    if let Some(message) = error {
        reply_invalid(daemon, &message, replies);
    }
    used
}

/// The length of the next command, if it is complete and a `TG.CHECK`.
fn next_check(input: &[u8], arguments: &mut Arguments) -> Option<usize> {
    let bytes = parse(input, arguments).ok()??;
    let command = find(arguments.in_array(input, 0)?)?;
    (command.verb == CommandKind::Check && command.accepts(arguments.len())).then_some(bytes)
}

/// Handles any other of them. The arguments are those after the command's name.
pub(super) async fn handle(
    session: &Session,
    verb: CommandKind,
    words: &[&[u8]],
    replies: &mut Replies<'_>,
) {
    let Session { daemon, peer, principal, .. } = session;
    if let Err(denial) = principal.charge(1) {
        return reply_denied(daemon, *peer, &denial, replies);
    }
    if let CommandKind::Commit | CommandKind::Cancel = verb {
        return settle(session, verb, words, replies).await;
    }
    let mut attributes = QueryAttributes::new();
    let query = match PolicyQuery::parse(verb, words.iter().copied(), &mut attributes) {
        Ok(query) => query,
        Err(message) => return reply_invalid(daemon, &message, replies),
    };
    let scope = match verb {
        CommandKind::Reserve => Scope::Settle,
        _ => Scope::Read,
    };
    let request = match principal.request(scope, query.request(&attributes)) {
        Ok(request) => request,
        Err(denial) => return reply_denied(daemon, *peer, &denial, replies),
    };
    match verb {
        CommandKind::Reserve => match daemon.engine.hold(&request).await {
            Ok(report) => {
                let id = daemon.observe(Listener::Resp, &request, &report);
                encode(&ReservationBody::new(&report, id, daemon.latest()), replies);
            }
            Err(error) => reply_error(&error, replies),
        },
        CommandKind::Explain => match daemon.engine.explain(&request).await {
            Ok(explanation) => {
                encode(&explained(&explanation, daemon.engine.clock().wall()), replies);
            }
            Err(error) => reply_error(&error, replies),
        },
        CommandKind::Usage => match daemon.engine.usage(&request).await {
            Ok(usage) => encode(&UsageBody::new(&usage), replies),
            Err(error) => reply_error(&error, replies),
        },
        _ => match daemon.engine.peek(&request).await {
            Ok(report) => encode(&DecisionBody::new(&report, DecisionId::next()), replies),
            Err(error) => reply_error(&error, replies),
        },
    }
}

/// `TG.COMMIT reservation [actual]`, `TG.CANCEL reservation`.
async fn settle(session: &Session, verb: CommandKind, words: &[&[u8]], replies: &mut Replies<'_>) {
    let Session { daemon, peer, principal, .. } = session;
    let SettleArgs { id, actual } = match SettleArgs::parse(words) {
        Ok(args) => args,
        Err(message) => return reply_invalid(daemon, &message, replies),
    };
    if let Err(denial) = principal.hold(Scope::Settle, id) {
        return reply_denied(daemon, *peer, &denial, replies);
    }
    let settled = match verb {
        CommandKind::Commit => daemon.engine.commit(id, actual).await.map(CommitBody::from),
        _ => {
            let cancelled = daemon.engine.cancel(id, None).await;
            cancelled.map(|charged| CommitBody { charged, ..CommitBody::default() })
        }
    };
    match settled {
        Ok(body) => encode(&body, replies),
        Err(error) => {
            let code = match error {
                SettleError::Outage(_) => "UNAVAILABLE",
                SettleError::Committed { .. } | SettleError::Cancelled => "SETTLED",
                _ => "GONE",
            };
            replies.error(code, &error.to_string());
        }
    }
}

/// Replies with an error about an invalid request.
fn reply_invalid(daemon: &Daemon, message: &str, replies: &mut Replies<'_>) {
    daemon.metrics.listener(Listener::Resp).malformed.add(1);
    replies.error("ERR", message);
}

fn reply_error(error: &CheckError, replies: &mut Replies<'_>) {
    let code = if matches!(error, CheckError::Outage(_)) { "UNAVAILABLE" } else { "ERR" };
    replies.error(code, &error.to_string());
}

impl<'a> PolicyQuery<'a> {
    /// Parses `domain [ATTR name value]… [COST n] [IDEMPOTENCY key]`.
    fn parse(
        verb: CommandKind,
        mut words: impl Iterator<Item = &'a [u8]>,
        attributes: &mut QueryAttributes<'a>,
    ) -> Result<Self, String> {
        let start = attributes.len();
        let domain = text("the domain", words.next().unwrap_or_default())?;
        let (mut cost, mut idempotency_key) = (None, None);
        while let Some(option) = words.next() {
            let mut next = |what: &str| words.next().ok_or_else(|| format!("syntax error: {what}"));
            match option.to_ascii_uppercase().as_slice() {
                b"ATTR" => {
                    let name =
                        text("the name of an attribute", next("ATTR needs a name and a value")?)?;
                    let value =
                        text("the value of an attribute", next("ATTR needs a name and a value")?)?;
                    if attributes[start..].iter().any(|(known, _)| *known == name) {
                        return Err(format!("syntax error: attribute {name:?} appears twice"));
                    }
                    attributes.push((name, value));
                }
                b"COST" if verb != CommandKind::Usage => {
                    let amount = amount("COST", next("COST needs a number")?)?;
                    once("COST", cost.replace(amount).is_none())?;
                }
                b"IDEMPOTENCY" if matches!(verb, CommandKind::Check | CommandKind::Reserve) => {
                    let key = text("an idempotency key", next("IDEMPOTENCY needs a key")?)?;
                    if key.is_empty() {
                        return Err("syntax error: the idempotency key is empty".into());
                    }
                    once("IDEMPOTENCY", idempotency_key.replace(key).is_none())?;
                }
                _ => {
                    let shown = option[..option.len().min(64)].escape_ascii();
                    let expected = match verb {
                        CommandKind::Usage => "ATTR name value",
                        _ => {
                            "ATTR name value, COST n or IDEMPOTENCY key (of TG.CHECK and TG.RESERVE)"
                        }
                    };
                    return Err(format!("syntax error: expected {expected}, not '{shown}'"));
                }
            }
        }
        let cost = cost.unwrap_or(1);
        Ok(Self { domain, attributes: start..attributes.len(), cost, idempotency_key })
    }

    fn request(&self, attributes: &'a [(&'a str, &'a str)]) -> Request<'a> {
        let request =
            Request::new(self.domain, &attributes[self.attributes.clone()]).cost(self.cost);
        match self.idempotency_key {
            Some(key) => request.idempotency_key(key),
            None => request,
        }
    }
}

/// A reservation and its actual cost.
struct SettleArgs {
    id: HoldId,
    actual: Option<u64>,
}

impl SettleArgs {
    fn parse(words: &[&[u8]]) -> Result<Self, String> {
        let (id, actual) = match words {
            [id] => (id, None),
            [id, actual] => (id, Some(amount("actual", actual)?)),
            _ => return Err("syntax error: expected reservation [actual]".into()),
        };
        let id = text("a reservation", id)?.parse().map_err(|error| format!("{error}"))?;
        Ok(Self { id, actual })
    }
}

/// An argument as text. A policy matches text, and replacing invalid bytes could make different
/// values equal.
fn text<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str, String> {
    std::str::from_utf8(bytes).map_err(|_| format!("{what} must be UTF-8"))
}

/// Rejects an option that appears twice.
fn once(option: &str, is_first: bool) -> Result<(), String> {
    if is_first { Ok(()) } else { Err(format!("syntax error: {option} appears twice")) }
}

fn amount(name: &str, text: &[u8]) -> Result<u64, String> {
    let value = integer(text).ok_or_else(|| format!("{name} is not an integer or out of range"))?;
    u64::try_from(value).map_err(|_| format!("{name} must be at least 0"))
}
