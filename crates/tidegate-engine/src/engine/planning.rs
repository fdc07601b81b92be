//! From a request to a plan: which limits, which keys, which costs. Above 600 lines because the encoding of
//! keys is inlined into planning and shares its look-up of attributes.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_policy::Attributes;
use tidegate_policy::internal::{address_of, masked, v4_mask, v6_mask};
use tidegate_policy::policy::{Empty, KeyPart, Limit, Missing, Mode, Unmatched};
use tidegate_table::hash::{KeyedHash, spread};

use super::error::CheckError;
use super::ruleset::{CompiledDomain, CompiledRule, Ruleset};
use crate::any_limit::{AnyLimit, NO_PERIOD};
use crate::decision::Operation;
use crate::edits::Ban;
use crate::periods::Times;
use crate::plan::{Charge, ChargeTerms, KeyAttributes, KeyName, NameKeys, Plan};
use crate::request::Request;
use crate::request_limit::RequestLimit;

/// A plan, or the reason why there is nothing to decide.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) plan: Plan<'a>,
    /// Why the request is denied before any limit is evaluated.
    pub(crate) denial: Option<EarlyDenial>,
    /// The index of the request that is denied so.
    pub(crate) denied: u32,
    /// The charge for an enforced slot.
    pub(crate) slots: Option<usize>,
    /// The first rule with slots, whether or not it applies.
    pub(crate) in_flight: Option<u32>,
    /// Whether any rule matches.
    is_matched: bool,
    /// Which rule applied to which request, where several are decided at once.
    pub(crate) hits: Vec<RuleHit>,
    /// The request that is planned now, and whether it is one of several.
    at: (u32, bool),
    /// Whether the plan has the attributes of all its keys.
    keeps_keys: bool,
}

/// A rule that applied to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleHit {
    /// The index of the request among those decided at once.
    pub(crate) request: u32,
    /// The index of its charge; `None` where it is not limited.
    pub(crate) charge: Option<u32>,
}

/// Why a request is denied before any limit is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyDenial {
    /// A rule's key needs an attribute that is absent.
    Missing { rule: u32, part: usize },
    /// It is banned: the index of the ban in its domain.
    Banned { ban: usize },
    /// No rule matches, and that is not allowed.
    Unmatched,
}

impl<'a> Planned<'a> {
    /// An empty plan.
    #[inline(always)]
    pub(crate) fn new(rules: &Ruleset, act: Operation) -> Self {
        Self {
            plan: Plan::new(rules.version, act),
            denial: None,
            denied: 0,
            slots: None,
            in_flight: None,
            is_matched: false,
            hits: Vec::new(),
            at: (0, false),
            keeps_keys: false,
        }
    }

    /// The same plan, which is to have the attributes of all its keys if `keeps_keys`.
    #[inline(always)]
    pub(crate) fn keeping_keys(self, keeps_keys: bool) -> Self {
        Self { keeps_keys, ..self }
    }

    /// Adds a charge of a request, to the one for the same key if there is one.
    #[inline(always)]
    pub(crate) fn push(&mut self, compiled: &CompiledRule, charge: Charge, request: &Request<'_>) {
        if self.keeps_keys || compiled.history.has_patterns() {
            self.plan.keep_key(&charge, compiled.key_attributes(&request.attributes));
        }
        merge(self, charge);
    }

    /// Removes charges of slots in shadow mode: only `acquire` takes slots.
    pub(crate) fn leave_slots(&mut self) {
        self.leave(|charge| matches!(charge.limit, AnyLimit::Slots(_)));
    }

    /// Removes charges, as if their rules did not match.
    pub(crate) fn leave(&mut self, is_left: impl Fn(&Charge) -> bool) {
        for (index, _) in self.plan.charges.iter().enumerate().rev().filter(|it| is_left(it.1)) {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.hits.retain(|hits| hits.charge != Some(index));
            for charge in self.hits.iter_mut().filter_map(|hits| hits.charge.as_mut()) {
                *charge -= u32::from(*charge > index);
            }
        }
        self.plan.charges.retain(|charge| !is_left(charge));
    }

    /// Records that a rule applied to the current request.
    fn note(&mut self, charge: Option<usize>) {
        let charge = charge.map(|index| u32::try_from(index).unwrap_or(u32::MAX));
        self.hits.push(RuleHit { request: self.at.0, charge });
    }

    /// Records that the current request is denied before any limit is evaluated.
    fn deny(&mut self, denial: EarlyDenial) {
        self.denial = Some(denial);
        self.denied = self.at.0;
    }

    /// Adds the charges of the requests, which are all of one domain.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        rules: &'a Ruleset,
        domain: Option<&'a CompiledDomain>,
        requests: &'a [Request<'_>],
        hash: &KeyedHash,
        times: Times,
    ) -> Result<(), CheckError> {
        if let Some(domain) = domain {
            if domain.replaces.is_empty() {
                let planning = Planning { rules, hash, times, replaced: &[] };
                planning.add_all(self, domain, requests)?;
            } else {
                let replaced = &domain.replaced(requests);
                Planning { rules, hash, times, replaced }.add_all(self, domain, requests)?;
            }
        }
        let settings = &rules.settings;
        let denies = settings.unmatched() == Unmatched::Deny && settings.enforce_ppm() > 0;
        if denies && !self.is_matched && self.denial.is_none() {
            self.deny(EarlyDenial::Unmatched);
        }
        Ok(())
    }
}

impl Ruleset {
    /// The charge of a matching rule for a request.
    pub(crate) fn charge(
        &self,
        number: u32,
        request: &Request<'_>,
        hash: &KeyedHash,
        times: Times,
    ) -> Result<Charged, CheckError> {
        Planning { rules: self, hash, times, replaced: &[] }.charge(number, request)
    }
}

struct Planning<'a, 'h> {
    rules: &'a Ruleset,
    hash: &'h KeyedHash,
    times: Times,
    /// Rules that others replace in this decision.
    replaced: &'h [u32],
}

impl<'a> Planning<'a, '_> {
    #[inline(always)]
    fn add_all(
        &self,
        planned: &mut Planned<'a>,
        domain: &'a CompiledDomain,
        requests: &'a [Request<'_>],
    ) -> Result<(), CheckError> {
        let is_several = requests.len() > 1;
        for (number, request) in (0..).zip(requests) {
            planned.at = (number, is_several);
            self.add(planned, domain, request)?;
        }
        Ok(())
    }

    #[inline]
    fn add(
        &self,
        planned: &mut Planned<'a>,
        domain: &'a CompiledDomain,
        request: &'a Request<'_>,
    ) -> Result<(), CheckError> {
        let attributes = request.attributes;
        if let Some(ban) = domain.ban(&attributes, self.times) {
            planned.deny(EarlyDenial::Banned { ban });
            return Ok(());
        }
        if let Some(limit) = request.request_limit {
            planned.is_matched = true;
            let charge =
                self.request_limit_charge(limit, request).ok_or(CheckError::NoOwnLimits)?;
            planned.push(self.rules.rule(charge.rule), charge, request);
            return Ok(());
        }
        if domain.is_unconditional {
            for &number in &domain.rules {
                self.add_rule(planned, number, request)?;
            }
        } else {
            for index in domain.matcher.find(&attributes).iter() {
                self.add_rule(planned, domain.rules[index], request)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn add_rule(
        &self,
        planned: &mut Planned<'a>,
        number: u32,
        request: &Request<'_>,
    ) -> Result<(), CheckError> {
        planned.is_matched = true;
        if self.replaced.contains(&number) {
            return Ok(());
        }
        if matches!(self.rules.rule(number).rule.limit(), Limit::Slots(_)) {
            planned.in_flight.get_or_insert(number);
        }
        match self.charge(number, request)? {
            Charged::One(charge) => planned.push(self.rules.rule(number), charge, request),
            Charged::None => {}
            Charged::Unlimited => planned.note(None),
            Charged::Missing { part } => {
                if planned.denial.is_none() {
                    planned.deny(EarlyDenial::Missing { rule: number, part });
                }
            }
        }
        Ok(())
    }

    /// The charge of a matching rule for a request.
    #[inline(always)]
    fn charge(&self, number: u32, request: &Request<'_>) -> Result<Charged, CheckError> {
        let compiled = self.rules.rule(number);
        let rule = &compiled.rule;
        let attributes = &request.attributes;
        let (hash, missing) = compiled.hash_key(attributes, self.hash);
        let is_enforced = rule.mode() == Mode::Enforce && self.rules.is_enforced(hash);
        if let Some(part) = missing {
            match rule.missing() {
                Missing::Skip => return Ok(Charged::None),
                Missing::Refuse if is_enforced => return Ok(Charged::Missing { part }),
                Missing::Refuse => return Ok(Charged::None),
                Missing::Share => {}
            }
        }
        if rule.empty() == Empty::Reject
            && let Some(error) = compiled.empty_attribute(attributes)
        {
            return if is_enforced { Err(error) } else { Ok(Charged::None) };
        }
        let (cost, is_by_request) = match (rule.cost(), rule.limit()) {
            // A request takes one slot, whatever it costs.
            (_, Limit::Slots(_)) => (1, false),
            (None, _) => (request.cost, true),
            (Some(table), _) if request.cost > 0 => match table.cost_of(attributes) {
                Some(cost) => (cost, false),
                None if is_enforced => return Err(compiled.not_covered(attributes)),
                None => return Ok(Charged::None),
            },
            (Some(_), _) => (0, false),
        };
        let period =
            compiled.periods.as_ref().map_or(NO_PERIOD, |periods| periods.period(self.times));
        let (tag, limit) = compiled.limit_of(hash, attributes, period, self.times);
        let Some(&limit) = limit else { return Ok(Charged::Unlimited) };
        let mode = if is_enforced { Mode::Enforce } else { Mode::Shadow };
        let terms = ChargeTerms { is_by_request, ..compiled.charge.terms };
        let charge = compiled.charge;
        Ok(Charged::One(Charge { tag, mode, terms, hash, cost, limit, period, ..charge }))
    }

    /// The charge of a request's own limit; `None` if the policy does not accept any.
    fn request_limit_charge(&self, limit: &RequestLimit, request: &Request<'_>) -> Option<Charge> {
        let number = self.rules.own(limit.unit)?;
        let compiled = self.rules.rule(number);
        let key = RequestLimitKey { family: compiled.charge.family, request };
        let hash = spread(self.hash.hash_parts(&key)).max(1);
        let is_enforced = compiled.rule.mode() == Mode::Enforce && self.rules.is_enforced(hash);
        let mode = if is_enforced { Mode::Enforce } else { Mode::Shadow };
        let (cost, limit) = (request.cost, limit.limit);
        Some(Charge { mode, hash, cost, limit, ..compiled.charge })
    }
}

/// The names of the keys in a plan.
#[derive(Debug)]
pub(super) struct PlannedKeys<'a> {
    pub(super) rules: &'a Ruleset,
    pub(super) requests: &'a [Request<'a>],
    pub(super) hash: &'a KeyedHash,
    pub(super) times: Times,
}

impl PlannedKeys<'_> {
    /// The request that a charge is for.
    fn request_of(&self, charge: &Charge) -> Option<&Request<'_>> {
        if let [request] = self.requests {
            return Some(request);
        }
        let is_its = |request: &&Request<'_>| {
            let charged = self.rules.charge(charge.rule, request, self.hash, self.times);
            matches!(charged, Ok(Charged::One(it)) if it.hash == charge.hash)
        };
        self.requests.iter().find(is_its).or(self.requests.first())
    }
}

impl NameKeys for PlannedKeys<'_> {
    fn key_name(&self, charge: &Charge) -> KeyName {
        let compiled = self.rules.rule(charge.rule);
        let request = self.request_of(charge);
        KeyName {
            rule: compiled.rule.id().clone(),
            parts: request.map_or_else(Vec::new, |it| compiled.key_of(&it.attributes)),
        }
    }
}

/// The outcome of a matching rule for a request.
#[derive(Debug)]
pub(crate) enum Charged {
    One(Charge),
    /// It is not evaluated.
    None,
    /// An override lifts the limit.
    Unlimited,
    Missing {
        part: usize,
    },
}

/// Adds a charge, to the one for the same key if there is one.
#[inline(always)]
fn merge(planned: &mut Planned<'_>, charge: Charge) {
    let charges = &mut planned.plan.charges;
    if matches!(charge.limit, AnyLimit::Slots(_)) && charge.mode == Mode::Enforce {
        planned.slots.get_or_insert(charges.len());
    }
    // One request names a key once; only several requests decided at once can name it twice.
    let index = match charges.iter().position(|known| known.hash == charge.hash) {
        Some(known) => {
            charges[known].cost = charges[known].cost.saturating_add(charge.cost);
            known
        }
        None => {
            charges.push(charge);
            charges.len() - 1
        }
    };
    if planned.at.1 {
        planned.note(Some(index));
    }
}

impl CompiledDomain {
    /// The rules that others replace in a decision over these requests.
    #[cold]
    pub(crate) fn replaced(&self, requests: &[Request<'_>]) -> SmallVec<[u32; 4]> {
        let mut replaced = SmallVec::new();
        for request in requests.iter().filter(|request| request.request_limit.is_none()) {
            for index in self.matcher.find(&request.attributes).iter() {
                let numbers = self.replaces.get(&self.rules[index]);
                replaced.extend(numbers.into_iter().flatten().copied());
            }
        }
        replaced
    }

    fn ban(&self, attributes: &Attributes<'_>, times: Times) -> Option<usize> {
        let applies = |ban: &Ban| ban.applies(attributes, times.wall);
        self.ban_finder.first(&self.bans, attributes, applies)
    }
}

impl Ruleset {
    /// Whether denials of this key are enforced: for all keys, none, or a share of them.
    #[inline]
    pub(super) fn is_enforced(&self, hash: u64) -> bool {
        let share_ppm = u64::from(self.settings.enforce_ppm());
        share_ppm >= 1_000_000 || (hash >> 32) * 1_000_000 < share_ppm << 32
    }
}

impl CompiledRule {
    /// The hash of a request's key, and the first part of the key that the request lacks.
    #[inline(always)]
    pub(super) fn hash_key(
        &self,
        attributes: &Attributes<'_>,
        hash: &KeyedHash,
    ) -> (u64, Option<usize>) {
        let missing = Cell::new(None);
        let (family, parts) = (self.charge.family, self.rule.key().parts());
        let key = KeyEncoder { family, parts, attributes, missing: &missing };
        (spread(hash.hash_parts(&key)).max(1), missing.get())
    }

    /// The first attribute of the key that is absent.
    #[inline]
    pub(crate) fn missing_part(&self, attributes: &Attributes<'_>) -> Option<usize> {
        let is_missing = |part: &KeyPart| attributes.get(part.attribute()).is_none();
        self.rule.key().parts().iter().position(is_missing)
    }

    /// The key: its attributes and their values, as they count.
    pub(crate) fn key_of(&self, attributes: &Attributes<'_>) -> Vec<(Box<str>, Option<Box<str>>)> {
        let value = |part: &KeyPart| {
            let value = attributes.get(part.attribute())?;
            Some(match part {
                KeyPart::Text(_) => value.into(),
                KeyPart::Address { v4_bits, v6_bits, .. } => match address_of(value) {
                    Some(address @ IpAddr::V4(_)) => {
                        format!("{}/{v4_bits}", masked(address, *v4_bits)).into()
                    }
                    Some(address) => format!("{}/{v6_bits}", masked(address, *v6_bits)).into(),
                    None => value.into(),
                },
            })
        };
        self.rule.key().parts().iter().map(|part| (part.attribute().into(), value(part))).collect()
    }

    /// The attributes of a request's key, with their values as the request has them.
    #[cold]
    pub(super) fn key_attributes(&self, attributes: &Attributes<'_>) -> Arc<KeyAttributes> {
        let names = self.rule.key().parts().iter().map(KeyPart::attribute);
        names.filter_map(|name| Some((name.into(), attributes.get(name)?.into()))).collect()
    }

    /// The index of the override in force for a request.
    pub(crate) fn override_of(
        &self,
        attributes: &Attributes<'_>,
        times: Times,
        hash: &KeyedHash,
    ) -> Option<usize> {
        let key = key_hash(self.charge.family, self.rule.key().parts(), attributes, hash);
        let period = self.periods.as_ref().map_or(NO_PERIOD, |periods| periods.period(times));
        self.override_index(key, attributes, period, times)
    }

    /// The error of a request whose key has an empty text.
    #[cold]
    fn empty_attribute(&self, attributes: &Attributes<'_>) -> Option<CheckError> {
        let mut names = self.rule.key().parts().iter().map(KeyPart::attribute);
        let attribute = names.find(|name| attributes.get(name) == Some(""))?;
        let rule = self.rule.id().clone();
        Some(CheckError::EmptyAttribute { rule, attribute: attribute.into() })
    }

    pub(crate) fn not_covered(&self, attributes: &Attributes<'_>) -> CheckError {
        let attribute = self.rule.cost().and_then(|cost| cost.attribute());
        let attribute = attribute.unwrap_or_default();
        CheckError::CostNotCovered {
            rule: self.rule.id().clone(),
            attribute: attribute.into(),
            value: attributes.get(attribute).map(Into::into),
        }
    }

    /// The rule's slots, with their queue and expiry.
    pub(crate) fn slots(&self) -> Option<&tidegate_policy::policy::Slots> {
        match self.rule.limit() {
            Limit::Slots(slots) => Some(slots),
            _ => None,
        }
    }
}

/// The hash of a family's key, which identifies its state.
pub(super) fn key_hash(
    family: u64,
    parts: &[KeyPart],
    attributes: &Attributes<'_>,
    hash: &KeyedHash,
) -> u64 {
    let missing = Cell::new(None);
    let key = KeyEncoder { family, parts, attributes, missing: &missing };
    spread(hash.hash_parts(&key)).max(1)
}

/// A key as it is hashed: the family and every part, encoded injectively.
struct KeyEncoder<'a> {
    family: u64,
    parts: &'a [KeyPart],
    attributes: &'a Attributes<'a>,
    /// The first part that the request lacks, found on the way.
    missing: &'a Cell<Option<usize>>,
}

impl Hash for KeyEncoder<'_> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.family);
        match self.parts {
            // Most keys, without a loop.
            [] => {}
            [KeyPart::Text(name)] => match self.attributes.get(name) {
                Some(value) => write_text(value, state),
                None => self.write_missing(0, state),
            },
            parts => self.write_parts(parts, state),
        }
    }
}

impl KeyEncoder<'_> {
    #[inline(never)]
    fn write_parts<H: Hasher>(&self, parts: &[KeyPart], state: &mut H) {
        for (index, part) in parts.iter().enumerate() {
            let Some(value) = self.attributes.get(part.attribute()) else {
                self.write_missing(index, state);
                continue;
            };
            match part {
                KeyPart::Text(_) => write_text(value, state),
                KeyPart::Address { v4_bits, v6_bits, .. } => match address_of(value) {
                    Some(IpAddr::V4(v4)) => {
                        state.write_u8(V4);
                        state.write_u32(v4.to_bits() & v4_mask(*v4_bits));
                    }
                    Some(IpAddr::V6(v6)) => {
                        let [high, low] = halves(v6.to_bits() & v6_mask(*v6_bits));
                        state.write_u8(V6);
                        state.write_u64(high);
                        state.write_u64(low);
                    }
                    None => {
                        state.write_u8(TEXT);
                        write_text(value, state);
                    }
                },
            }
        }
    }

    #[inline(always)]
    fn write_missing<H: Hasher>(&self, index: usize, state: &mut H) {
        state.write_u8(ABSENT);
        if self.missing.get().is_none() {
            self.missing.set(Some(index));
        }
    }
}

/// The key of a request's own limit: the domain and all attributes.
struct RequestLimitKey<'a> {
    family: u64,
    request: &'a Request<'a>,
}

impl Hash for RequestLimitKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.family);
        write_text(self.request.domain, state);
        for (name, value) in self.request.attributes.iter() {
            write_text(name, state);
            write_text(value, state);
        }
    }
}

/// Whether two texts are the same; those of usual lengths are compared without a call.
#[inline(always)]
pub(super) fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    // The first and the last bytes overlap where there are fewer than twice as many.
    if (4..8).contains(&a.len()) {
        return ends::<4>(a) == ends::<4>(b);
    }
    if (8..=16).contains(&a.len()) {
        return ends::<8>(a) == ends::<8>(b);
    }
    if (2..4).contains(&a.len()) {
        return ends::<2>(a) == ends::<2>(b);
    }
    a == b
}

/// The first and the last `N` bytes of a text that has as many.
#[inline(always)]
fn ends<const N: usize>(text: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
    text.first_chunk().zip(text.last_chunk())
}

/// Text ends with a byte that no text has, as `str`'s own hash has it.
#[inline(always)]
pub(super) fn write_text(text: &str, state: &mut impl Hasher) {
    state.write(text.as_bytes());
    state.write_u8(0xff);
}

#[allow(clippy::cast_possible_truncation, reason = "each half is kept")]
const fn halves(value: u128) -> [u64; 2] {
    [(value >> 64) as u64, value as u64]
}

/// A byte that no one-byte text begins with.
const ABSENT: u8 = 0xfe;
const TEXT: u8 = 1;
const V4: u8 = 4;
const V6: u8 = 6;
