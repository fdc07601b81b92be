//! The rate limits of the local socket, in an engine of their own.

use std::fmt;

use tidegate::policy::{Limit, Policy, Rule};
use tidegate::{Bucket, LimitError, Rate, Request, StoreEngine, Wait};

use crate::settings::LocalSettings;

/// The rate limits of the socket: per user, and for all users together.
#[derive(Debug)]
pub(crate) struct SocketLimits {
    engine: StoreEngine,
}

/// A denied request. It is charged to no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketDenial {
    /// `user` or `global`: the one with the longest wait, if both deny.
    pub(crate) limit: Option<String>,
    /// How long to wait, rounded up.
    pub(crate) retry_after_ms: Option<u64>,
}

/// The error of invalid rates.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RatesError {
    /// The rate of all users together is below that of one user.
    GlobalBelowUser,
    /// A rate cannot be represented exactly.
    Inexact(LimitError),
}

impl SocketLimits {
    pub(crate) fn new(local: &LocalSettings) -> Result<Self, RatesError> {
        let user = local.user_rate.unwrap_or(Rate::per_second(USER_PER_SECOND));
        let global = local.rate.unwrap_or(Rate::per_second(GLOBAL_PER_SECOND));
        if is_below(global, user) {
            return Err(RatesError::GlobalBelowUser);
        }
        let bucket = |rate: Rate| {
            let bucket = Bucket::try_new(rate, rate.count()).map_err(RatesError::Inexact)?;
            Ok(Limit::Bucket(bucket))
        };
        let rules = [
            Rule::builder("user", bucket(user)?).key(["user"]),
            Rule::builder("global", bucket(global)?),
        ]
        .map(|rule| rule.build().expect("`user` is a valid attribute"));
        Ok(Self { engine: StoreEngine::new(Policy::new(rules).expect("the rules are valid")) })
    }

    /// Charges a request of a user to both limits, or to none.
    pub(crate) fn check(&self, user: &str) -> Result<(), SocketDenial> {
        let attributes = [("user", user)];
        let request = Request::new(Rule::DEFAULT_DOMAIN, &attributes);
        match self.engine.check(&request).block() {
            Ok(report) if report.is_allowed() => Ok(()),
            Ok(report) => Err(SocketDenial {
                limit: report.rule().map(|rule| rule.name().to_owned()),
                retry_after_ms: report.retry_after().and_then(Wait::whole_ms),
            }),
            // Unreachable: the rules have no cost table and no slots.
            Err(_) => Err(SocketDenial { limit: None, retry_after_ms: None }),
        }
    }
}

/// Whether the first rate is below the second.
fn is_below(one: Rate, other: Rate) -> bool {
    let per = |rate: Rate, period: Rate| u128::from(rate.count()) * (period.period().as_nanos());
    per(one, other) < per(other, one)
}

impl fmt::Display for RatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GlobalBelowUser => f.write_str(
                "unix_rate: the rate of all users is below that of one user (unix_user_rate); raise \
                 it, or lower unix_user_rate",
            ),
            Self::Inexact(error) => write!(f, "unix_rate or unix_user_rate: {error}"),
        }
    }
}

tidegate::debug_as_displayed!(RatesError);

impl std::error::Error for RatesError {}

const USER_PER_SECOND: u64 = 100;
const GLOBAL_PER_SECOND: u64 = 1_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LocalSettings, Rate, RatesError, SocketLimits};

    fn limits(user: (u64, u64), all: (u64, u64)) -> Result<SocketLimits, RatesError> {
        let rate = |(count, secs)| Some(Rate::new(count, Duration::from_secs(secs)));
        SocketLimits::new(&LocalSettings {
            user_rate: rate(user),
            rate: rate(all),
            ..LocalSettings::default()
        })
    }

    #[test]
    fn the_global_rate_may_not_be_below_the_user_rate() {
        for (user, all, is_valid) in [
            ((10, 10), (10, 10), true),
            ((10, 10), (9, 10), false),
            ((1, 1), (59, 60), false),
            ((1, 1), (60, 60), true),
            ((1, 3_600), (1, 86_400), false),
        ] {
            assert_eq!(limits(user, all).is_ok(), is_valid, "{user:?} {all:?}");
        }
        assert!(SocketLimits::new(&LocalSettings::default()).is_ok());
    }

    #[test]
    fn each_user_and_all_users_are_limited_and_denials_cost_nothing() {
        let limits = limits((2, 86_400), (3, 86_400)).expect("valid");
        assert!(limits.check("ada").is_ok() && limits.check("ada").is_ok());
        for _ in 0..3 {
            let denied = limits.check("ada").expect_err("two a day");
            assert_eq!(denied.limit.as_deref(), Some("user"));
            assert!(denied.retry_after_ms.is_some_and(|ms| ms > 0 && ms <= 43_200_000));
        }
        assert!(limits.check("Ada").is_ok(), "names differ by case, and denials cost nothing");
        assert_eq!(limits.check("bob").expect_err("three a day").limit.as_deref(), Some("global"));
    }
}
