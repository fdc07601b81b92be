//! Decides the records of a log with a real engine.

use smallvec::SmallVec;
use tidegate::policy::{Charging, Policy};
use tidegate::{
    CheckError, Request, StoreEngine, Timestamp, clock::ManualClock, report::Explanation,
    store::EngineBuildError,
};

use crate::attributes::AttributePlan;
use crate::counts::Counts;
use crate::record::{Position, Record};

/// What a replay keeps.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// The most keys: in the engine's table, and in the statistics.
    pub max_keys: usize,
    /// How many denials are explained: the first ones.
    pub explained: usize,
    /// Which value of a record is the cost of its request; `None`: each costs 1.
    pub cost_index: Option<usize>,
}

/// A policy at work on a log.
#[derive(Debug)]
pub struct Replay {
    engine: StoreEngine,
    options: ReplayOptions,
    requests: RequestMaker,
    counts: Counts,
    first: Vec<FirstDenial>,
    /// Whether a denial may change states, so that it has to be explained before.
    explains_before: bool,
    first_errors: Vec<(Position, String)>,
}

/// Makes requests of records.
#[derive(Debug)]
struct RequestMaker {
    domain: Box<str>,
    /// The names of the values of a record that are attributes here, and their indexes.
    names: Vec<(usize, Box<str>)>,
    /// Whether the rules of the domain name attributes by their positions.
    is_ordered: bool,
    cost_index: Option<usize>,
}

/// One of the first denials.
#[derive(Debug)]
#[non_exhaustive]
pub struct FirstDenial {
    /// Where the request is.
    pub position: Position,
    /// When it was decided, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The attributes that rules read.
    pub attributes: Vec<(Box<str>, Box<str>)>,
    /// The cost of the request.
    pub cost: u64,
    /// Why it was denied.
    pub explanation: Explanation,
}

/// The attributes of a request, without an allocation for most of them.
type AttributeList<'a> = SmallVec<[(&'a str, &'a str); 8]>;

/// The attributes and the cost of a record; no cost if it has none that is a number.
struct RequestParts<'a> {
    attributes: AttributeList<'a>,
    cost: Option<u64>,
}

impl Replay {
    /// A fresh engine for a domain of a policy. Every key is enforced, and rules with slots deny
    /// nothing.
    pub fn new(
        policy: Policy,
        domain: &str,
        plan: &AttributePlan,
        options: ReplayOptions,
    ) -> Result<Self, EngineBuildError> {
        let policy = policy.enforced_for_all();
        let counts = Counts::new(&policy, domain, options.max_keys);
        let policy = policy.without_slots();
        let requests = RequestMaker::new(&policy, domain, plan, options.cost_index);
        let mut of_domain = policy.rules().iter().filter(|rule| rule.domain() == domain);
        let explains_before = of_domain.any(|rule| rule.charging() != Charging::Allowed);
        let mut bounds = policy.settings().bounds();
        bounds.max_keys = options.max_keys;
        let clock = ManualClock::new(Timestamp::ZERO);
        Ok(Self {
            engine: StoreEngine::builder(policy).bounds(bounds).clock(clock).build()?,
            options,
            requests,
            counts,
            first: Vec::new(),
            explains_before,
            first_errors: Vec::new(),
        })
    }

    /// Decides a record. Times do not go back.
    pub fn decide(&mut self, record: Record<'_>) {
        self.counts.add_request(record.time_ns);
        if let Err(why) = self.try_decide(&record) {
            self.undecided(record.position, why);
        }
    }

    #[inline]
    fn try_decide(&mut self, record: &Record<'_>) -> Result<(), String> {
        let RequestParts { attributes, cost } = self.requests.parts(record);
        let cost = cost.ok_or("the field with the cost has no whole number")?;
        let request = Request::new(&self.requests.domain, &attributes).cost(cost);
        let engine = self.engine.at(Timestamp::from_nanos(record.time_ns));
        let explains = self.first.len() < self.options.explained;
        let before = (explains && self.explains_before).then(|| engine.explain(&request).block());
        let report = engine.check(&request).block().map_err(|error| error.to_string())?;
        self.counts.add(&report, &request, record.time_ns);
        if explains && !report.is_allowed() {
            let explanation = before.unwrap_or_else(|| engine.explain(&request).block());
            self.first.extend(first_denial(record, &request, cost, explanation));
        }
        Ok(())
    }

    #[cold]
    fn undecided(&mut self, position: Position, why: String) {
        self.counts.add_undecided();
        if self.first_errors.len() < MOST_ERRORS_SHOWN {
            self.first_errors.push((position, why));
        }
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.requests.domain
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The first denials.
    #[must_use]
    pub fn first_denials(&self) -> &[FirstDenial] {
        &self.first
    }

    /// Why the first requests that cannot be decided cannot be.
    #[must_use]
    pub fn first_errors(&self) -> &[(Position, String)] {
        &self.first_errors
    }

    /// Whether the engine's table is full, so that new keys share counters.
    #[must_use]
    pub fn is_table_full(&self) -> bool {
        self.engine.len() >= self.options.max_keys
    }
}

impl RequestMaker {
    fn new(policy: &Policy, domain: &str, plan: &AttributePlan, cost_index: Option<usize>) -> Self {
        let is_ordered = policy.reads_descriptors(domain);
        let of_domain = || policy.rules().iter().filter(|rule| rule.domain() == domain);
        let reads = |name: &str| is_ordered || of_domain().any(|rule| rule.reads(name));
        let named = plan.names().enumerate().filter(|(_, name)| !name.is_empty() && reads(name));
        let names = named.map(|(index, name)| (index, name.into())).collect();
        Self { domain: domain.into(), names, is_ordered, cost_index }
    }

    #[inline]
    fn parts<'r>(&'r self, record: &Record<'r>) -> RequestParts<'r> {
        let mut attributes = AttributeList::new();
        let mut cost = Some(1);
        let mut names = self.names.iter().peekable();
        for (index, value) in record.values().enumerate() {
            if let Some((_, name)) = names.next_if(|(at, _)| *at == index)
                && let Some(value) = value
            {
                attributes.push((name, value));
            }
            if self.cost_index == Some(index) {
                cost = value.and_then(|value| value.parse().ok());
            }
        }
        // A descriptor lacks no entry: without a value for each, Envoy sends none.
        if self.is_ordered && attributes.len() < self.names.len() {
            attributes.clear();
        }
        RequestParts { attributes, cost }
    }
}

#[cold]
fn first_denial(
    record: &Record<'_>,
    request: &Request<'_>,
    cost: u64,
    explanation: Result<Explanation, CheckError>,
) -> Option<FirstDenial> {
    let owned = |(name, value): (&str, &str)| (name.into(), value.into());
    Some(FirstDenial {
        position: record.position,
        time_ns: record.time_ns,
        attributes: request.attributes().iter().map(owned).collect(),
        cost,
        explanation: explanation.ok()?,
    })
}

const MOST_ERRORS_SHOWN: usize = 5;

#[cfg(test)]
mod tests;
