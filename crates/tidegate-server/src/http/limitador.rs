//! Limitador's HTTP API: checks, and the list of limits.
//!
//! Responses are those of Limitador: `null` with 200, a text with 429, and 500 for what cannot be
//! decided. A namespace that the policy does not have is not limited, unless `unmatched` denies.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use http::StatusCode;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tidegate::policy::{Condition, KeyPart, Limit, Pattern, Policy, Rule, Scope};
use tidegate::{CheckError, Report, Request};
use tidegate_proto::headers::Dialect;
use tidegate_proto::json::Object;

use super::BufferedRequest;
use super::forward::percent_decoded;
use super::problem::RequestProblem;
use super::response::{self, HttpResponse};
use crate::access::AccessDenial;

/// A request body of Limitador. Unknown fields are ignored, as Limitador does.
#[derive(Debug, Deserialize)]
struct LimitadorRequest<'b> {
    #[serde(borrow)]
    namespace: Cow<'b, str>,
    #[serde(borrow)]
    values: BTreeMap<Cow<'b, str>, Cow<'b, str>>,
    delta: u64,
    #[serde(borrow, default)]
    response_headers: Option<Cow<'b, str>>,
}

/// `POST /check`: decides without a charge.
pub(super) async fn check(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let fields = LimitadorRequest::read(&call.body)?;
    let pairs = fields.pairs();
    let report =
        call.daemon.engine.peek(&fields.request(call, &pairs)?).await.map_err(undecided)?;
    fields.respond(&report)
}

/// `POST /check_and_report`: charges all limits, or denies and charges none.
pub(super) async fn check_and_report(
    call: &BufferedRequest<'_>,
) -> Result<HttpResponse, RequestProblem> {
    let fields = LimitadorRequest::read(&call.body)?;
    let pairs = fields.pairs();
    let request = fields.request(call, &pairs)?;
    let report = call.daemon.engine.check(&request).await.map_err(undecided)?;
    call.observe(&request, &report);
    fields.respond(&report)
}

/// `POST /report`: charges, and denies nothing.
///
/// A cost beyond a limit is charged up to it: a reservation of 1, which fits if anything does, is
/// committed with the real cost.
pub(super) async fn report(call: &BufferedRequest<'_>) -> Result<HttpResponse, RequestProblem> {
    let BufferedRequest { daemon, .. } = call;
    let fields = LimitadorRequest::read(&call.body)?;
    let pairs = fields.pairs();
    let request = fields.request(call, &pairs)?;
    if fields.delta == 0 {
        return Ok(nothing(StatusCode::OK));
    }
    let report = daemon.engine.reserve(&request.cost(1)).await.map_err(undecided)?;
    if let Some(id) = report.hold() {
        let charged = daemon.engine.commit(id, Some(fields.delta)).await;
        charged.map_err(|error| internal(error.to_string()))?;
    } else if report.is_outage() {
        return Err(internal("the store is unavailable".into()));
    }
    Ok(nothing(StatusCode::OK))
}

impl<'b> LimitadorRequest<'b> {
    fn read(body: &'b [u8]) -> Result<Self, RequestProblem> {
        let Object::<Self>(fields) = serde_json::from_slice(body)
            .map_err(|error| RequestProblem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        if fields.values.len() > MOST_VALUES {
            let detail = format!("more than {MOST_VALUES} values");
            return Err(RequestProblem::new(StatusCode::BAD_REQUEST, detail).at("/values"));
        }
        Ok(fields)
    }

    fn pairs(&self) -> SmallVec<[(&str, &str); 8]> {
        self.values.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    fn request<'a>(
        &'a self,
        call: &BufferedRequest<'_>,
        pairs: &'a [(&'a str, &'a str)],
    ) -> Result<Request<'a>, AccessDenial> {
        call.request(Scope::Check, Request::new(&self.namespace, pairs).cost(self.delta))
    }

    fn respond(&self, report: &Report) -> Result<HttpResponse, RequestProblem> {
        let mut response = if report.is_allowed() {
            nothing(StatusCode::OK)
        } else if response::is_denied_by_outage(report) {
            return Err(internal("the store is unavailable".into()));
        } else {
            response::text(StatusCode::TOO_MANY_REQUESTS, "Too many requests")
        };
        let wanted = self.response_headers.as_deref();
        let is_wanted = wanted.is_some_and(|it| DRAFT_03.contains(&it));
        let dialect = if is_wanted { Dialect::Envoy03 } else { Dialect::None };
        response::put_limits(response.headers_mut(), report, dialect);
        Ok(response)
    }
}

/// A limit in the JSON form of Limitador.
#[derive(Debug, Serialize)]
struct LimitadorLimit<'p> {
    id: Option<&'p str>,
    namespace: &'p str,
    max_value: u64,
    seconds: u64,
    name: Option<&'p str>,
    conditions: Vec<String>,
    variables: Vec<String>,
}

/// `GET /limits/{namespace}`: the rules that Limitador can express.
pub(super) fn limits(call: &BufferedRequest<'_>) -> Result<HttpResponse, AccessDenial> {
    let namespace = percent_decoded(call.id);
    let namespace = String::from_utf8_lossy(&namespace);
    call.principal.may_in(Scope::Read, &namespace)?;
    let policy = call.daemon.engine.policy();
    let mut groups: Vec<Vec<&Rule>> = Vec::new();
    let mut indexes: HashMap<&str, usize> = HashMap::new();
    for rule in of(&policy, &namespace) {
        let next = groups.len();
        let index = rule.group().map_or(next, |name| *indexes.entry(name).or_insert(next));
        if index == next {
            groups.push(Vec::new());
        }
        groups[index].push(rule);
    }
    let limits: Vec<_> = groups.iter().filter_map(|group| LimitadorLimit::of(group)).collect();
    Ok(response::json(StatusCode::OK, &limits))
}

impl<'p> LimitadorLimit<'p> {
    /// The limit of a rule, or of the last rule of a group, whose other rules exclude requests.
    /// `None` if Limitador cannot express it.
    fn of(group: &[&'p Rule]) -> Option<Self> {
        let (rule, before) = group.split_last()?;
        let Limit::Window(window) = rule.limit() else { return None };
        let mut conditions = Vec::new();
        if rule.group().is_some() {
            let (first, excluded) = before.split_first()?;
            if !first.excludes_later_descriptors() {
                return None;
            }
            let excluded = excluded.iter().flat_map(|it| it.conditions());
            conditions = excluded.map(negated_cel).collect::<Option<_>>()?;
        }
        for condition in rule.conditions() {
            conditions.extend(cel_text(condition)?);
        }
        let variable = |part: &KeyPart| match part {
            KeyPart::Text(name) => Some(entry(name)),
            KeyPart::Address { .. } => None,
        };
        // A cost above the window's maximum is always denied.
        let price = rule.cost().map_or(Some(1), |table| table.cost(""))?;
        Some(Self {
            id: None,
            namespace: rule.domain(),
            max_value: if price > window.max() { 0 } else { window.max() },
            seconds: window.per().as_secs(),
            name: Some(rule.name()),
            conditions,
            variables: rule.key().parts().iter().map(variable).collect::<Option<_>>()?,
        })
    }
}

/// A condition in CEL; `Some(None)` if it only demands that the entry exists.
fn cel_text(condition: &Condition) -> Option<Option<String>> {
    let entry = entry(condition.attribute());
    Some(match condition.any_of() {
        [Pattern::Equals(text)] => Some(format!("{entry} == {}", quoted(text))),
        [Pattern::Glob(glob)] if &**glob == "*" => None,
        [Pattern::Range(first, last)] => Some(match (*first, *last) {
            (first, last) if first == last => format!("int({entry}) == {first}"),
            (i64::MIN, last) => format!("int({entry}) <= {last}"),
            (first, i64::MAX) => format!("int({entry}) >= {first}"),
            (first, last) => format!("int({entry}) >= {first} && int({entry}) <= {last}"),
        }),
        _ => return None,
    })
}

fn negated_cel(condition: &Condition) -> Option<String> {
    let entry = entry(condition.attribute());
    match condition.any_of() {
        [Pattern::Equals(text)] => Some(format!("{entry} != {}", quoted(text))),
        [Pattern::Range(first, last)] if first == last => Some(format!("int({entry}) != {first}")),
        _ => None,
    }
}

fn entry(name: &str) -> String {
    format!("descriptors[0][{}]", quoted(name))
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') { '"' } else { '\'' };
    format!("{quote}{text}{quote}")
}

fn of<'p>(policy: &'p Policy, namespace: &str) -> impl Iterator<Item = &'p Rule> {
    policy.rules().iter().filter(move |rule| rule.domain() == namespace)
}

/// Limitador's empty body, `null`.
fn nothing(status: StatusCode) -> HttpResponse {
    response::json(status, &())
}

fn undecided(error: CheckError) -> RequestProblem {
    internal(error.to_string())
}

fn internal(detail: String) -> RequestProblem {
    RequestProblem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

/// `GET /status`: the daemon runs.
pub(super) fn status() -> HttpResponse {
    nothing(StatusCode::OK)
}

/// The names of the third draft of rate-limit headers: in requests, and in Limitador's options.
const DRAFT_03: [&str; 2] = ["DraftVersion03", "DRAFT_VERSION_03"];
/// The most values of a request.
const MOST_VALUES: usize = 64;
