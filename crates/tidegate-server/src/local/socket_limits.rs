//! The socket's own limits: the daemon guards its door with its own engine.

use std::fmt;

use tidegate::policy::{Limit, Policy, Rule};
use tidegate::{Bucket, Engine, LimitError, Rate, Request, Wait};

use crate::settings::LocalSettings;

/// How often each user may ask over the socket, and all of them together.
#[derive(Debug)]
pub(crate) struct SocketLimits {
    engine: Engine,
}

/// A request that came too soon. It has been charged to no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketDenial {
    /// `user` or `global`: the one with the longest wait, if both refused.
    pub(crate) limit: Option<String>,
    /// How long to wait, rounded up.
    pub(crate) retry_after_ms: Option<u64>,
}

/// Why rates cannot be the limits of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RatesError {
    /// All users together may ask less often than one of them.
    GlobalBelowUser,
    /// A rate cannot be kept exactly.
    Inexact(LimitError),
}

impl SocketLimits {
    pub(crate) fn new(local: &LocalSettings) -> Result<Self, RatesError> {
        let usual = |rate: Option<Rate>, per_second| match rate {
            Some(rate) => Ok(rate),
            None => Rate::per_second(per_second),
        };
        let user = usual(local.user_rate, USER_PER_SECOND).map_err(RatesError::Inexact)?;
        let global = usual(local.rate, GLOBAL_PER_SECOND).map_err(RatesError::Inexact)?;
        if is_below(global, user) {
            return Err(RatesError::GlobalBelowUser);
        }
        let bucket = |rate: Rate| {
            let bucket = Bucket::new(rate, rate.count()).map_err(RatesError::Inexact)?;
            Ok(Limit::Bucket(bucket))
        };
        let rules = [
            Rule::new("user", bucket(user)?).key(["user"]).expect("a user is an attribute"),
            Rule::new("global", bucket(global)?),
        ];
        Ok(Self { engine: Engine::new(Policy::new(rules).expect("these rules are in order")) })
    }

    /// Charges a request of a user to both limits, or to none.
    pub(crate) fn check(&self, user: &str) -> Result<(), SocketDenial> {
        let attributes = [("user", user)];
        let request = Request::new(Rule::DEFAULT_DOMAIN, &attributes);
        match self.engine.check(&request).wait() {
            Ok(report) if report.is_allowed() => Ok(()),
            Ok(report) => Err(SocketDenial {
                limit: report.rule().map(str::to_owned),
                retry_after_ms: report.wait().and_then(Wait::whole_ms),
            }),
            // There is no cost table and no place to acquire, so there is always an answer.
            Err(_) => Err(SocketDenial { limit: None, retry_after_ms: None }),
        }
    }
}

/// Whether the one lets through less than the other.
fn is_below(one: Rate, other: Rate) -> bool {
    let per = |rate: Rate, period: Rate| u128::from(rate.count()) * (period.period().as_nanos());
    per(one, other) < per(other, one)
}

impl fmt::Display for RatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GlobalBelowUser => f.write_str(
                "unix_rate: all users together may ask less often than one of them (unix_user_rate); \
                 raise it, or lower unix_user_rate",
            ),
            Self::Inexact(error) => write!(f, "unix_rate or unix_user_rate: {error}"),
        }
    }
}

impl std::error::Error for RatesError {}

const USER_PER_SECOND: u64 = 100;
const GLOBAL_PER_SECOND: u64 = 1_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LocalSettings, Rate, RatesError, SocketLimits};

    fn gate(user: (u64, u64), all: (u64, u64)) -> Result<SocketLimits, RatesError> {
        let rate =
            |(count, secs)| Some(Rate::new(count, Duration::from_secs(secs)).expect("a rate"));
        SocketLimits::new(&LocalSettings {
            user_rate: rate(user),
            rate: rate(all),
            ..LocalSettings::default()
        })
    }

    #[test]
    fn all_together_may_not_have_less_than_one() {
        for (user, all, is_fine) in [
            ((10, 10), (10, 10), true),
            ((10, 10), (9, 10), false),
            ((1, 1), (59, 60), false),
            ((1, 1), (60, 60), true),
            ((1, 3_600), (1, 86_400), false),
        ] {
            assert_eq!(gate(user, all).is_ok(), is_fine, "{user:?} {all:?}");
        }
        assert!(SocketLimits::new(&LocalSettings::default()).is_ok());
    }

    #[test]
    fn each_user_and_all_together_are_limited_and_refusals_cost_nothing() {
        let gate = gate((2, 86_400), (3, 86_400)).expect("in order");
        assert!(gate.check("ada").is_ok() && gate.check("ada").is_ok());
        for _ in 0..3 {
            let refused = gate.check("ada").expect_err("two a day");
            assert_eq!(refused.limit.as_deref(), Some("user"));
            assert!(refused.retry_after_ms.is_some_and(|ms| ms > 0 && ms <= 43_200_000));
        }
        assert!(gate.check("Ada").is_ok(), "names differ by case, and refusals cost nothing");
        assert_eq!(gate.check("bob").expect_err("three a day").limit.as_deref(), Some("global"));
    }
}
