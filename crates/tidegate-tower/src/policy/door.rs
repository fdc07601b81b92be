use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use smallvec::SmallVec;
use tidegate::{CheckError, Clock, Engine, Report, Request, Store, WaitError};
use tidegate_proto::headers::Dialect;

use super::reserved::Hold;
use super::{Settings, Verb};
use crate::gate::{After, Door, Passage, Ruled, Ruling};
use crate::refusal::{Refusal, headers_of};
use crate::{Admission, Attribute, Bill, Place};

/// A domain of an engine that decides about requests.
pub(super) struct EngineDoor<S, C> {
    pub(super) engine: Engine<S, C>,
    pub(super) settings: Arc<Settings>,
}

impl<S: Store, C: Clock + Send + Sync + 'static> Door for EngineDoor<S, C> {
    fn rule(&self, parts: &mut Parts) -> Ruled {
        let settings = &self.settings;
        if let Verb::Acquire { patience } = settings.verb {
            let asked = Asked::new(settings, parts);
            let acquired = acquired(self.engine.clone(), asked, patience, settings.dialect);
            return Ruled::Later(Box::pin(acquired));
        }
        if !self.engine.answers_at_once() {
            let asked = Asked::new(settings, parts);
            let decided = decided_later(self.engine.clone(), asked, Arc::clone(settings));
            return Ruled::Later(Box::pin(decided));
        }
        let answer = {
            let values = settings.values(parts);
            let pairs: SmallVec<[(&str, &str); INLINE]> =
                values.iter().map(|(name, value)| (*name, &**value)).collect();
            let key = settings.idempotency_key(parts);
            let cost = settings.cost(parts);
            let request = Request::new(&settings.domain, &pairs).cost(cost);
            let request = match &key {
                Some(key) => request.idempotency_key(key),
                None => request,
            };
            self.ask(request, cost)
        };
        let is_head = parts.method == Method::HEAD;
        let (ruling, admission) = ruling(&self.engine, settings, answer, is_head);
        if ruling.is_ok() {
            admission.show(&mut parts.extensions);
        }
        Ruled::Now(ruling)
    }
}

impl<S: Store, C: Clock + Send + Sync + 'static> EngineDoor<S, C> {
    /// Asks an engine that answers at once.
    fn ask(&self, request: Request<'_>, cost: u64) -> Result<Report, CheckError> {
        match self.settings.verb {
            Verb::Reserve(_) if cost > 0 => self.engine.reserve(&request).wait(),
            _ => self.engine.check(&request).wait(),
        }
    }
}

/// The values of attributes, borrowed from a request where they can be.
type Values<'a> = SmallVec<[(&'a str, Cow<'a, str>); INLINE]>;

impl Settings {
    fn values<'a>(&'a self, parts: &'a Parts) -> Values<'a> {
        let value = |(name, source): &'a (Arc<str>, Arc<dyn Attribute>)| {
            source.value(parts).map(|value| (&**name, value))
        };
        self.attributes.iter().filter_map(value).collect()
    }

    fn cost(&self, parts: &Parts) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(parts))
    }

    fn idempotency_key<'a>(&self, parts: &'a Parts) -> Option<Cow<'a, str>> {
        self.idempotency_key.as_ref().and_then(|key| key.value(parts))
    }
}

/// What was asked, for longer than the head of the request is there.
struct Asked {
    domain: Arc<str>,
    values: Vec<(Box<str>, Box<str>)>,
    cost: u64,
    idempotency_key: Option<Box<str>>,
    is_head: bool,
}

impl Asked {
    fn new(settings: &Settings, parts: &Parts) -> Self {
        let values = settings.values(parts).into_iter();
        Self {
            domain: Arc::clone(&settings.domain),
            values: values.map(|(name, value)| (name.into(), value.into())).collect(),
            cost: settings.cost(parts),
            idempotency_key: settings.idempotency_key(parts).map(Into::into),
            is_head: parts.method == Method::HEAD,
        }
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

/// A ruling by a store that takes its time.
async fn decided_later<S: Store, C: Clock + Send + Sync + 'static>(
    engine: Engine<S, C>,
    asked: Asked,
    settings: Arc<Settings>,
) -> (Ruling, Admission) {
    let pairs = asked.pairs();
    let request = asked.request(&pairs);
    let answer = match settings.verb {
        Verb::Reserve(_) if asked.cost > 0 => engine.reserve(&request).await,
        _ => engine.check(&request).await,
    };
    ruling(&engine, &settings, answer, asked.is_head)
}

/// What a report means, with what the handler may know of it.
fn ruling<S: Store, C: Clock + Send + Sync + 'static>(
    engine: &Engine<S, C>,
    settings: &Settings,
    answer: Result<Report, CheckError>,
    is_head: bool,
) -> (Ruling, Admission) {
    let report = match answer {
        Ok(report) => report,
        Err(error) => return refused(Refusal::of_error(&error)),
    };
    if !report.is_allowed() {
        return refused(Refusal::of_report(&report, settings.dialect));
    }
    let mut admission = admission(&report);
    let headers = headers_of(&report, settings.dialect);
    let after = match (&settings.verb, report.hold()) {
        (Verb::Reserve(settle), Some(hold)) => {
            let bill = Bill::new();
            admission.bill = Some(bill.clone());
            let hold = Hold::new(engine.clone(), hold, bill, Arc::clone(settle));
            After::Settle(Box::new(hold.of_head(is_head)))
        }
        _ => After::Nothing,
    };
    (Ok(Passage { headers, after }), admission)
}

fn refused(refusal: Refusal) -> (Ruling, Admission) {
    (Err(Box::new(refusal)), Admission::default())
}

fn admission(report: &Report) -> Admission {
    Admission {
        decision: report.decision().copied(),
        rule: report.rule().map(Box::from),
        ..Admission::default()
    }
}

/// Waits for a place.
async fn acquired<S: Store, C: Clock + Send + Sync + 'static>(
    engine: Engine<S, C>,
    asked: Asked,
    patience: Option<Duration>,
    dialect: Dialect,
) -> (Ruling, Admission) {
    let pairs = asked.pairs();
    let request = asked.request(&pairs);
    match engine.acquire(&request, patience).await {
        Ok(lease) => {
            let mut admission = admission(lease.report());
            let headers = headers_of(lease.report(), dialect);
            let place = Place::new(lease);
            admission.place = Some(place.clone());
            (Ok(Passage { headers, after: After::Release(place) }), admission)
        }
        Err(WaitError::Denied(report)) => refused(Refusal::of_report(&report, dialect)),
        Err(WaitError::Invalid(error)) => refused(Refusal::of_error(&error)),
        Err(error) => refused(Refusal::no_room(error.to_string())),
    }
}

/// How many attributes a request may have before they need memory of their own.
const INLINE: usize = 6;
