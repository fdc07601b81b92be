//! The policy: the one rule that limits messages.

use std::fmt;
use std::time::Duration;

use tidegate::policy::{Condition, Durability, Grant, Limit, OnError, Override, Policy, Rule};
use tidegate::{Bucket, LimitError, Rate, Sliding, Window};

/// The limit of messages per user.
///
/// ```
/// use tidegate_webhook::Limits;
///
/// let policy = Limits::default().policy()?;
/// assert!(policy.rules()[0].describe().contains("20"));
/// # Ok::<(), tidegate_webhook::LimitsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of messages …
    pub max: u64,
    /// … in this time.
    pub per: Duration,
    /// The algorithm that counts them.
    pub algorithm: Algorithm,
    /// Users with another maximum.
    pub users: Vec<UserLimit>,
}

/// The algorithm that counts messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Windows that begin at multiples of their length since 1970. Around the edge of two of them
    /// up to twice the maximum is allowed.
    #[default]
    Window,
    /// The maximum in any interval of that length.
    Sliding,
    /// A bucket that refills evenly over that time.
    Bucket,
}

/// Another maximum for one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimit {
    /// The user's id.
    pub user: u64,
    /// The maximum number of messages; `None`: unlimited.
    pub max: Option<u64>,
}

impl Default for Limits {
    /// 20 messages per hour, in windows.
    fn default() -> Self {
        let per = Duration::from_secs(3_600);
        Self { max: 20, per, algorithm: Algorithm::default(), users: Vec::new() }
    }
}

impl Limits {
    /// The policy of these limits, if they are valid.
    ///
    /// An outage of the store allows messages. Charges survive the process, if the store is
    /// durable.
    pub fn policy(&self) -> Result<Policy, LimitsError> {
        let limit = self.limit(self.max).map_err(LimitsError::all_users)?;
        let mut rule = Rule::builder(RULE, limit)
            .domain(DOMAIN)
            .on_error(OnError::Allow)
            .durability(Durability::Flush)
            .key([USER]);
        for (index, UserLimit { user, max }) in self.users.iter().enumerate() {
            let wrong = |error: &dyn fmt::Display| LimitsError::of(*user, error);
            if self.users[..index].iter().any(|earlier| earlier.user == *user) {
                return Err(wrong(&"the user is listed twice"));
            }
            let grant = match max {
                None => Grant::Unlimited,
                Some(max) => Grant::Limit(self.limit(*max).map_err(|error| wrong(&error))?),
            };
            let key = Condition::new(USER, [&*user.to_string()]).map_err(|error| wrong(&error))?;
            rule = rule.overridden(Override::new(vec![key], grant));
        }
        let rule = rule.build().map_err(LimitsError::all_users)?;
        Policy::new([rule]).map_err(LimitsError::all_users)
    }

    fn limit(&self, max: u64) -> Result<Limit, LimitError> {
        Ok(match self.algorithm {
            Algorithm::Window => Limit::Window(Window::try_new(max, self.per)?.aligned()),
            Algorithm::Sliding => {
                Limit::Sliding(Sliding::try_new(max, self.per, Sliding::DEFAULT_PARTS)?)
            }
            Algorithm::Bucket => {
                Limit::Bucket(Bucket::try_new(Rate::try_new(max, self.per)?, max)?)
            }
        })
    }
}

/// Invalid limits.
#[derive(Clone, PartialEq, Eq)]
pub struct LimitsError {
    user: Option<u64>,
    reason: String,
}

impl LimitsError {
    fn all_users(reason: impl fmt::Display) -> Self {
        Self { user: None, reason: reason.to_string() }
    }

    fn of(user: u64, reason: &dyn fmt::Display) -> Self {
        Self { user: Some(user), reason: reason.to_string() }
    }

    /// The user whose limit is invalid; `None`: the limit of all users.
    #[must_use]
    pub fn user(&self) -> Option<u64> {
        self.user
    }
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.user {
            Some(user) => write!(f, "user {user}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// As it is displayed, for `expect` and `unwrap`.
impl fmt::Debug for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for LimitsError {}

/// The domain of the rule: a separate namespace.
pub(crate) const DOMAIN: &str = "ratelimit";

/// The domain of the names of denied messages. No rule limits it.
pub(crate) const DENIALS: &str = "denials";

/// The attribute with the user's id.
pub(crate) const USER: &str = "user";

const RULE: &str = "messages";

#[cfg(test)]
mod tests;
