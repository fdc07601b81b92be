use std::fmt;

use tidegate_policy::policy::RuleId;

use crate::store::{Failure, HoldBound, Outage};

/// Why a request was not decided: it is invalid, or does not fit the policy.
///
/// A denial is not an error.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    /// The domain limits requests in flight, so slots have to be acquired.
    NeedsAcquire {
        /// The rule with the slots.
        rule: RuleId,
    },
    /// The domain does not limit requests in flight, so there are no slots to acquire.
    NoSlots {
        /// The domain.
        domain: Box<str>,
    },
    /// A rule's cost table does not cover the request.
    CostNotCovered {
        /// The rule.
        rule: RuleId,
        /// The attribute that decides the cost.
        attribute: Box<str>,
        /// Its value, if the request has it.
        value: Option<Box<str>>,
    },
    /// An attribute of a rule's key is empty, and the rule rejects that.
    EmptyAttribute {
        /// The rule.
        rule: RuleId,
        /// The attribute.
        attribute: Box<str>,
    },
    /// The idempotency key was already used for a different request.
    OtherRequest,
    /// The store has no room for another reservation or lease.
    TooManyHolds(HoldBound),
    /// The store has as many keys as it may have.
    TooManyKeys,
    /// The request has no keys: it is banned, lacks an attribute of a key, or no rule matches.
    NoKeys {
        /// Why.
        reason: Box<str>,
    },
    /// A reservation needs a cost of at least 1.
    NothingToReserve,
    /// Requests of one decision must be of one domain.
    SeveralDomains,
    /// The request brings its own limit, and the policy does not accept any.
    NoOwnLimits,
    /// The store is unavailable, or its answer was lost.
    ///
    /// Checks and reservations do not fail with this: there the rule's `on_error` decides.
    Outage(Outage),
}

impl From<Outage> for CheckError {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

impl From<Failure> for CheckError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OtherBody => Self::OtherRequest,
            Failure::TooManyHolds(bound) => Self::TooManyHolds(bound),
            Failure::NoRoom => Self::TooManyKeys,
            Failure::Superseded | Failure::NotAdopted => Self::Outage(Outage::Unavailable),
            Failure::Outage(outage) => Self::Outage(outage),
            Failure::Gone | Failure::Committed { .. } | Failure::Cancelled => {
                unreachable!("only a settlement fails so")
            }
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsAcquire { rule } => write!(
                f,
                "rule `{}` limits requests in flight: use acquire and release instead",
                rule.name()
            ),
            Self::NoSlots { domain } => write!(
                f,
                "no matching rule of domain `{domain}` limits requests in flight: \
                 use check instead"
            ),
            Self::CostNotCovered { rule, attribute, value: Some(value) } => {
                let rule = rule.name();
                write!(f, "the cost table of rule `{rule}` does not cover {attribute} = {value:?}")
            }
            Self::CostNotCovered { rule, attribute, value: None } => {
                let rule = rule.name();
                write!(f, "the cost table of rule `{rule}` needs the attribute `{attribute}`")
            }
            Self::EmptyAttribute { rule, attribute } => {
                let rule = rule.name();
                write!(f, "rule `{rule}` needs a key: the attribute `{attribute}` is empty")
            }
            Self::OtherRequest => {
                f.write_str("the idempotency key was already used for a different request")
            }
            Self::TooManyHolds(bound) => {
                write!(f, "{bound}, which is the maximum: try again later")
            }
            Self::TooManyKeys => f.write_str("the store has as many keys as it may have"),
            Self::NoKeys { reason } => write!(f, "the request has no keys: {reason}"),
            Self::NothingToReserve => f.write_str("a reservation needs a cost of at least 1"),
            Self::SeveralDomains => f.write_str("requests of one decision must be of one domain"),
            Self::NoOwnLimits => f.write_str("the policy does not accept limits from requests"),
            Self::Outage(outage) => outage.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(CheckError);

impl std::error::Error for CheckError {}

/// Why a reservation or lease was not settled, renewed or refunded.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleError {
    /// It is gone: it expired, or never existed. A lease that was released is gone as well.
    Gone,
    /// It was committed before, with another number of units, and so many were charged.
    Committed {
        /// The units that were charged.
        units: u64,
    },
    /// It was cancelled before.
    Cancelled,
    /// The idempotency key was already used for a different request.
    OtherRequest,
    /// The store is unavailable, or its answer was lost. The operation may still have happened; if it
    /// did, the same again gets its result.
    Outage(Outage),
}

impl From<Failure> for SettleError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Gone => Self::Gone,
            Failure::Committed { units } => Self::Committed { units },
            Failure::Cancelled => Self::Cancelled,
            Failure::OtherBody => Self::OtherRequest,
            Failure::Superseded | Failure::NotAdopted => Self::Outage(Outage::Unavailable),
            Failure::Outage(outage) => Self::Outage(outage),
            Failure::TooManyHolds(_) | Failure::NoRoom => {
                unreachable!("a settlement needs no room")
            }
        }
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => {
                f.write_str("the reservation or lease is gone: it expired, or never existed")
            }
            Self::Committed { units } => {
                write!(f, "the reservation was committed before: {units} units were charged")
            }
            Self::Cancelled => f.write_str("the reservation was cancelled before"),
            Self::OtherRequest => CheckError::OtherRequest.fmt(f),
            Self::Outage(outage) => outage.fmt(f),
        }
    }
}

tidegate_core::debug_as_displayed!(SettleError);

impl std::error::Error for SettleError {}
