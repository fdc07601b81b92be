//! Numbers to policy: the one rule that messages are limited by.

use std::fmt;
use std::time::Duration;

use tidegate::policy::{Condition, Durability, Grant, Limit, OnError, Override, Policy, Rule};
use tidegate::{Bucket, LimitError, Rate, Sliding, Window};

/// How many messages of each user reach the agent.
///
/// ```
/// use tidegate_webhook::Limits;
///
/// let policy = Limits::default().policy()?;
/// assert!(policy.rules()[0].in_words().contains("20"));
/// # Ok::<(), tidegate_webhook::LimitsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many messages …
    pub max: u64,
    /// … in how long.
    pub per: Duration,
    /// How they are counted.
    pub algorithm: Algorithm,
    /// Users who get another number.
    pub users: Vec<UserLimit>,
}

/// How messages are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// In windows that begin at multiples of their length since 1970. At the edge of two of them
    /// twice as many can pass at once.
    #[default]
    Window,
    /// In every window of that length, wherever it begins.
    Sliding,
    /// By a bucket that refills evenly over that time.
    Bucket,
}

/// Another number for one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLimit {
    /// Who.
    pub user: u64,
    /// How many messages; `None`: as many as they like.
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
    /// The policy that they are, unless they make no sense.
    ///
    /// A store that cannot answer lets messages pass. What is charged survives the process, if the
    /// store keeps anything beyond it.
    pub fn policy(&self) -> Result<Policy, LimitsError> {
        let limit = self.limit(self.max).map_err(LimitsError::everybody)?;
        let mut rule = Rule::new(RULE, limit)
            .domain(DOMAIN)
            .on_error(OnError::Allow)
            .durability(Durability::Flush)
            .key([USER])
            .map_err(LimitsError::everybody)?;
        for (index, UserLimit { user, max }) in self.users.iter().enumerate() {
            let wrong = |error: &dyn fmt::Display| LimitsError::of(*user, error);
            if self.users[..index].iter().any(|earlier| earlier.user == *user) {
                return Err(wrong(&"the user is there twice"));
            }
            let grant = match max {
                None => Grant::Unlimited,
                Some(max) => Grant::Limit(self.limit(*max).map_err(|error| wrong(&error))?),
            };
            let key = Condition::new(USER, [&*user.to_string()]).map_err(|error| wrong(&error))?;
            rule = rule.overridden(Override::new(vec![key], grant));
        }
        Policy::new([rule]).map_err(LimitsError::everybody)
    }

    fn limit(&self, max: u64) -> Result<Limit, LimitError> {
        Ok(match self.algorithm {
            Algorithm::Window => Limit::Window(Window::new(max, self.per)?.aligned()),
            Algorithm::Sliding => {
                Limit::Sliding(Sliding::new(max, self.per, Sliding::DEFAULT_PARTS)?)
            }
            Algorithm::Bucket => Limit::Bucket(Bucket::of(Rate::new(max, self.per)?)?),
        })
    }
}

/// Numbers that make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsError {
    user: Option<u64>,
    reason: String,
}

impl LimitsError {
    fn everybody(reason: impl fmt::Display) -> Self {
        Self { user: None, reason: reason.to_string() }
    }

    fn of(user: u64, reason: &dyn fmt::Display) -> Self {
        Self { user: Some(user), reason: reason.to_string() }
    }

    /// The user whose numbers they are; `None`: everybody's.
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

impl std::error::Error for LimitsError {}

/// The domain of the rule: a namespace of its own.
pub(crate) const DOMAIN: &str = "ratelimit";

/// The attribute that says whose messages they are.
pub(crate) const USER: &str = "user";

const RULE: &str = "messages";

#[cfg(test)]
mod tests;
