use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use smallvec::SmallVec;
use tidegate::policy::Charging;
use tidegate::{
    CheckError, NotGranted, Report, Request, StoreEngine, Wait, hold::HoldId, report::RuleReport,
};

use super::hold::{RequestHold, Settlement};
use super::{NoSlot, PolicySettings, PolicyVerb};
use crate::denial::{Denial, headers_of};
use crate::gate::{Admitted, AfterResponse, Decider, GateDecision, GateResult};
use crate::{ActualCost, Admission, Attribute, AttributeError, Permit};

/// Decides about requests by a domain of an engine.
pub(super) struct EngineDecider {
    pub(super) engine: StoreEngine,
    pub(super) settings: Arc<PolicySettings>,
}

impl Decider for EngineDecider {
    fn decide(&self, parts: &mut Parts) -> GateDecision {
        let decision = if self.engine.is_immediate() && !self.settings.verb.may_wait() {
            self.decide_now(parts)
        } else {
            self.begin_decision(parts)
        };
        decision
            .unwrap_or_else(|error| GateDecision::Now(Err(Box::new(Denial::of_attribute(&error)))))
    }
}

impl EngineDecider {
    /// Begins the decision of an engine that has to wait for its store or a slot.
    fn begin_decision(&self, parts: &Parts) -> Result<GateDecision, AttributeError> {
        let (engine, settings) = (self.engine.clone(), &self.settings);
        let request = OwnedRequest::new(settings, parts)?;
        Ok(GateDecision::Later(match settings.verb {
            PolicyVerb::Acquire { max_wait } => {
                Box::pin(acquired(engine, request, max_wait, Arc::clone(settings)))
            }
            _ => Box::pin(decided(engine, request, Arc::clone(settings))),
        }))
    }

    fn decide_now(&self, parts: &mut Parts) -> Result<GateDecision, AttributeError> {
        let settings = &self.settings;
        let result = {
            let values = settings.values(parts)?;
            let pairs: SmallVec<[(&str, &str); INLINE]> =
                values.iter().map(|(name, value)| (*name, &**value)).collect();
            let key = settings.idempotency_key(parts)?;
            let cost = settings.cost(parts);
            let request = Request::new(&settings.domain, &pairs).cost(cost);
            let request = match &key {
                Some(key) => request.idempotency_key(key),
                None => request,
            };
            self.call(request, cost)
        };
        let request = || OwnedRequest::new(settings, parts).ok();
        let is_head = parts.method == Method::HEAD;
        let (gate_result, admission) =
            gate_result(&self.engine, settings, result, is_head, request);
        if gate_result.is_ok() {
            admission.insert_into(&mut parts.extensions);
        }
        Ok(GateDecision::Now(gate_result))
    }

    /// Calls an engine that decides at once.
    fn call(&self, request: Request<'_>, cost: u64) -> Result<Report, CheckError> {
        match self.settings.verb {
            PolicyVerb::Reserve(_) if cost > 0 => self.engine.hold(&request).block(),
            _ => self.engine.check(&request).block(),
        }
    }
}

/// The values of attributes, borrowed from a request where possible.
type Values<'a> = SmallVec<[(&'a str, Cow<'a, str>); INLINE]>;

impl PolicySettings {
    fn values<'a>(&'a self, parts: &'a Parts) -> Result<Values<'a>, AttributeError> {
        let value = |(name, source): &'a (Arc<str>, Arc<dyn Attribute>)| {
            let value = source.value(parts).transpose()?;
            Some(value.map(|value| (&**name, value)))
        };
        self.attributes.iter().filter_map(value).collect()
    }

    /// The denial of a report. A rule that needs what no request has is a mistake in the set-up.
    fn denial(&self, report: &Report) -> Denial {
        let denial = Denial::of_report(report, self.dialect);
        match report.missing_attribute() {
            Some(name) if !self.supplies(name) => denial.misconfigured(),
            _ => denial,
        }
    }

    fn cost(&self, parts: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }

    fn idempotency_key<'a>(
        &self,
        parts: &'a Parts,
    ) -> Result<Option<Cow<'a, str>>, AttributeError> {
        self.idempotency_key.as_ref().map_or(Ok(None), |key| key.value(parts))
    }
}

/// A request to the engine that outlives the head of the HTTP request.
struct OwnedRequest {
    domain: Arc<str>,
    values: Vec<(Box<str>, Box<str>)>,
    cost: u64,
    idempotency_key: Option<Box<str>>,
    is_head: bool,
}

impl OwnedRequest {
    fn new(settings: &PolicySettings, parts: &Parts) -> Result<Self, AttributeError> {
        let values = settings.values(parts)?.into_iter();
        Ok(Self {
            domain: Arc::clone(&settings.domain),
            values: values.map(|(name, value)| (name.into(), value.into())).collect(),
            cost: settings.cost(parts),
            idempotency_key: settings.idempotency_key(parts)?.map(Into::into),
            is_head: parts.method == Method::HEAD,
        })
    }

    fn pairs(&self) -> Vec<(&str, &str)> {
        self.values.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    fn request<'a>(&'a self, pairs: &'a [(&'a str, &'a str)]) -> Request<'a> {
        let request = Request::new(&self.domain, pairs).cost(self.cost);
        match &self.idempotency_key {
            Some(key) => request.idempotency_key(key),
            None => request,
        }
    }
}

/// A request whose usage postpaid rules book, should its reservation be gone when it is committed.
pub(super) struct LateBooking {
    request: OwnedRequest,
    /// Whether all rules that hold it are postpaid.
    is_whole: bool,
}

impl LateBooking {
    fn new(report: &Report, request: impl FnOnce() -> Option<OwnedRequest>) -> Option<Self> {
        let is_postpaid = |rule: RuleReport<'_>| rule.charging == Charging::Postpaid;
        let is_whole = report.rules().all(is_postpaid);
        let request = report.rules().any(is_postpaid).then(request).flatten()?;
        Some(Self { request, is_whole })
    }

    /// Books units, or what was reserved, and returns whether nothing is left uncharged.
    pub(super) async fn book(&self, engine: &StoreEngine, id: HoldId, units: Option<u64>) -> bool {
        let (pairs, name) = (self.request.pairs(), id.to_string());
        let request = Request::new(&self.request.domain, &pairs).idempotency_key(&name);
        let booked = engine.book(&request.cost(units.unwrap_or(self.request.cost))).await;
        self.is_whole && booked.is_ok_and(|report| !report.is_outage())
    }
}

/// The decision of a store that needs to wait.
async fn decided(
    engine: StoreEngine,
    owned: OwnedRequest,
    settings: Arc<PolicySettings>,
) -> (GateResult, Admission) {
    let pairs = owned.pairs();
    let request = owned.request(&pairs);
    let result = match settings.verb {
        PolicyVerb::Reserve(_) if owned.cost > 0 => engine.hold(&request).await,
        _ => engine.check(&request).await,
    };
    let is_head = owned.is_head;
    gate_result(&engine, &settings, result, is_head, move || Some(owned))
}

/// The result of a report, and the admission for the handler.
fn gate_result(
    engine: &StoreEngine,
    settings: &PolicySettings,
    result: Result<Report, CheckError>,
    is_head: bool,
    request: impl FnOnce() -> Option<OwnedRequest>,
) -> (GateResult, Admission) {
    let report = match result {
        Ok(report) => report,
        Err(error) => return denied(Denial::of_error(&error)),
    };
    if !report.is_allowed() {
        return denied(settings.denial(&report));
    }
    let mut admission = admission(&report);
    let headers = headers_of(&report, settings.dialect);
    let after = match (&settings.verb, report.hold().zip(report.details().expires())) {
        (PolicyVerb::Reserve(settle), Some((id, expires))) => {
            let actual_cost = ActualCost::new();
            admission.actual_cost = Some(actual_cost.clone());
            let settlement = Settlement {
                settle: Arc::clone(settle),
                reports: settings.unsettled.clone(),
                late: LateBooking::new(&report, request),
            };
            let engine = engine.clone();
            let hold = RequestHold::new(engine, id, expires, actual_cost, is_head, settlement);
            AfterResponse::Settle(Box::new(hold))
        }
        _ => AfterResponse::Nothing,
    };
    (Ok(Admitted { headers, after }), admission)
}

fn denied(denial: Denial) -> (GateResult, Admission) {
    (Err(Box::new(denial)), Admission::default())
}

fn admission(report: &Report) -> Admission {
    Admission {
        decision: report.decision().copied(),
        rule: report.rule().cloned(),
        ..Admission::default()
    }
}

/// Waits for a slot.
async fn acquired(
    engine: StoreEngine,
    owned: OwnedRequest,
    max_wait: Option<Duration>,
    settings: Arc<PolicySettings>,
) -> (GateResult, Admission) {
    let pairs = owned.pairs();
    let request = owned.request(&pairs);
    match engine.acquire(&request, max_wait).await {
        Ok(lease) => {
            let mut admission = admission(lease.report());
            let headers = headers_of(lease.report(), settings.dialect);
            let permit = Permit::new(lease);
            admission.permit = Some(permit.clone());
            (Ok(Admitted { headers, after: AfterResponse::Release(permit) }), admission)
        }
        Err(NotGranted::Denied(report)) => denied(settings.denial(&report)),
        Err(NotGranted::Invalid(error)) => denied(Denial::of_error(&error)),
        Err(error) => denied(match &settings.no_slot {
            Some(NoSlot { detail, retry_after }) => {
                let wait = Some(Wait::After(*retry_after));
                Denial { wait, ..Denial::no_slot(detail.clone()) }
            }
            None => Denial::no_slot(error.to_string()),
        }),
    }
}

/// The number of attributes that need no heap allocation.
const INLINE: usize = 6;
