use std::fmt;

use crate::store::{Outage, RefundFailure, SettleFailure};

/// Why a request was not decided: it cannot be understood, or does not belong here.
///
/// A denial is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    /// The domain limits how many are in flight, so places have to be acquired.
    NeedsAcquire {
        /// The rule that does so.
        rule: Box<str>,
    },
    /// The domain does not limit how many are in flight, so there are no places to acquire.
    NoSlots {
        /// The domain.
        domain: Box<str>,
    },
    /// A rule's price list does not cover the request.
    CostNotCovered {
        /// The rule.
        rule: Box<str>,
        /// The attribute that decides on the price.
        attribute: Box<str>,
        /// Its value, if the request has it.
        value: Option<Box<str>>,
    },
    /// The idempotency key was used before, for another request.
    OtherRequest,
    /// There are as many reservations and leases as the store may keep.
    TooManyHolds,
    /// Nothing can be set aside for a cost of 0.
    NothingToReserve,
    /// Requests that are decided together must be of one domain.
    SeveralDomains,
    /// The request brings a limit of its own, and the policy does not take any.
    NoOwnLimits,
    /// The store cannot write: its disk is full or broken.
    ///
    /// Checks and reservations do not fail with this: there the rule's `on_error` decides.
    Outage,
}

impl From<Outage> for CheckError {
    fn from(Outage: Outage) -> Self {
        Self::Outage
    }
}

impl From<RefundFailure> for CheckError {
    fn from(unrefunded: RefundFailure) -> Self {
        match unrefunded {
            RefundFailure::OtherBody => Self::OtherRequest,
            RefundFailure::Outage => Self::Outage,
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsAcquire { rule } => write!(
                f,
                "rule `{rule}` limits how many are in flight: use acquire and release instead"
            ),
            Self::NoSlots { domain } => write!(
                f,
                "no rule of domain `{domain}` that matches limits how many are in flight: \
                 use check instead"
            ),
            Self::CostNotCovered { rule, attribute, value: Some(value) } => {
                write!(f, "the cost table of rule `{rule}` does not cover {attribute} = {value:?}")
            }
            Self::CostNotCovered { rule, attribute, value: None } => {
                write!(f, "the cost table of rule `{rule}` needs the attribute `{attribute}`")
            }
            Self::OtherRequest => {
                f.write_str("the idempotency key was used before, for another request")
            }
            Self::TooManyHolds => {
                f.write_str("there are as many reservations and leases as the store may keep")
            }
            Self::NothingToReserve => f.write_str("a reservation needs a cost of at least 1"),
            Self::SeveralDomains => {
                f.write_str("requests that are decided together must be of one domain")
            }
            Self::NoOwnLimits => {
                f.write_str("the policy takes no limits that requests bring along")
            }
            Self::Outage => Outage.fmt(f),
        }
    }
}

impl std::error::Error for CheckError {}

/// Why a reservation or lease was not ended, renewed or refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleError {
    /// It is gone: it has expired, was ended before, or never was.
    Gone,
    /// The idempotency key was used before, for another request.
    OtherRequest,
    /// The store cannot write: its disk is full or broken. It may have been done all the same; if it
    /// was, asking again finds it gone.
    Outage,
}

impl From<SettleFailure> for SettleError {
    fn from(unsettled: SettleFailure) -> Self {
        match unsettled {
            SettleFailure::Gone => Self::Gone,
            SettleFailure::OtherBody => Self::OtherRequest,
            SettleFailure::Outage => Self::Outage,
        }
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str(
                "the reservation or lease is gone: it has expired, was ended, or never was",
            ),
            Self::OtherRequest => CheckError::OtherRequest.fmt(f),
            Self::Outage => Outage.fmt(f),
        }
    }
}

impl std::error::Error for SettleError {}
