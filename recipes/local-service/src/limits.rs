//! The policy: the two rules that limit requests.

use std::path::Path;
use std::time::Duration;

use tidegate::policy::{self, Condition, Empty, Limit, Override, Policy, Rule};
use tidegate::{Bucket, LimitError, Rate, Window};

use crate::SettingError;
use crate::request_limiter::{ATTRIBUTES, DOMAIN};

/// The limits of each user and of all users. A request must be allowed by both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Per user.
    pub user: LimitNumbers,
    /// For all users.
    pub global: LimitNumbers,
    /// Other limits for some users; the first match counts.
    pub overrides: Vec<UserOverride>,
}

/// The numbers of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitNumbers {
    /// The maximum number of requests …
    pub max: u64,
    /// … in this time.
    pub per: Duration,
    /// `None` is a window, which opens with the first request. With a number it is a bucket of this
    /// capacity that refills at `max` per `per`.
    pub burst: Option<u64>,
}

/// Other limits for matching users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserOverride {
    /// A name, or a pattern as in a policy file: `backup-*`.
    pub users: String,
    /// The limit that they get.
    pub grant: Grant,
}

/// The limit of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// No limit per user; the global one applies.
    Unlimited,
    /// These numbers; absent ones are as for all users.
    Numbers {
        /// The maximum number of requests.
        max: u64,
        /// The window.
        per: Option<Duration>,
        /// The burst, if the limit is a bucket.
        burst: Option<u64>,
    },
}

impl Default for Limits {
    /// 10 per 10 seconds and user, 30 per 10 seconds for all.
    fn default() -> Self {
        let per = Duration::from_secs(10);
        Self {
            user: LimitNumbers { max: 10, per, burst: None },
            global: LimitNumbers { max: 30, per, burst: None },
            overrides: Vec::new(),
        }
    }
}

impl Limits {
    /// The policy of these limits, if they are valid.
    pub fn policy(&self) -> Result<Policy, SettingError> {
        let user = self.user.limit().map_err(|error| setting_error(&error, &USER))?;
        let global = self.global.limit().map_err(|error| setting_error(&error, &GLOBAL))?;
        if capacity(&global) < capacity(&user) {
            let reason = "the limit for all users is below that for one user".to_owned();
            return Err(SettingError::new(self.global_capacity_setting(), reason));
        }
        // A user without a name shares no budget with others.
        let mut user =
            Rule::builder("user", user).domain(DOMAIN).key(["user"]).empty(Empty::Reject);
        for exception in &self.overrides {
            user = user.overridden(self.overriding(exception, &global)?);
        }
        let user = user.build().map_err(in_policy)?;
        let global = Rule::builder("global", global).domain(DOMAIN).build().map_err(in_policy)?;
        let policy = Policy::new([user, global]).map_err(in_policy)?;
        // A limit for all that is slower than one for each is a warning elsewhere; the others are
        // about overrides that never apply.
        match policy.warnings().first() {
            None => Ok(policy),
            Some(warning) if self.is_slower_for_all() => {
                Err(SettingError::new("--global-per", warning.message.clone()))
            }
            Some(warning) => Err(SettingError::new("--user-override", warning.message.clone())),
        }
    }

    fn overriding(
        &self,
        exception: &UserOverride,
        global: &Limit,
    ) -> Result<Override, SettingError> {
        let invalid = |reason: String| {
            SettingError::new("--user-override", format!("{:?}: {reason}", exception.users))
        };
        let users = Condition::new("user", [exception.users.as_str()])
            .map_err(|error| invalid(error.to_string()))?;
        let grant = match exception.grant {
            Grant::Unlimited => policy::Grant::Unlimited,
            Grant::Numbers { burst: Some(_), .. } if self.user.burst.is_none() => {
                return Err(invalid("a burst needs --user-burst".into()));
            }
            Grant::Numbers { max, per, burst } => {
                let per = per.unwrap_or(self.user.per);
                let numbers = LimitNumbers { max, per, burst: burst.or(self.user.burst) };
                let limit = numbers.limit().map_err(|error| invalid(error.to_string()))?;
                if capacity(&limit) > capacity(global) {
                    return Err(invalid("exceeds the limit for all users".into()));
                }
                policy::Grant::Limit(limit)
            }
        };
        Ok(Override::new(vec![users], grant))
    }

    const fn global_capacity_setting(&self) -> &'static str {
        if self.global.burst.is_some() { GLOBAL.burst } else { GLOBAL.max }
    }

    /// Whether all users together get a lower rate than one user.
    fn is_slower_for_all(&self) -> bool {
        let (user, global) = (self.user, self.global);
        // Counts and nanoseconds are below 2^64.
        u128::from(global.max).saturating_mul(user.per.as_nanos())
            < u128::from(user.max).saturating_mul(global.per.as_nanos())
    }
}

impl LimitNumbers {
    fn limit(self) -> Result<Limit, LimitError> {
        Ok(match self.burst {
            None => Limit::Window(Window::try_new(self.max, self.per)?),
            Some(burst) => {
                Limit::Bucket(Bucket::try_new(Rate::try_new(self.max, self.per)?, burst)?)
            }
        })
    }
}

/// The policy of a file, if it is valid for this service: rules of its domain only, none of which
/// always or never applies.
pub fn policy_from_file(path: &Path) -> Result<Policy, SettingError> {
    let invalid = |reason: String| SettingError::new("--policy", reason);
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| invalid(format!("{name}: {error}")))?;
    let policy = Policy::parse(&name, &bytes)
        .and_then(policy::Parsed::strict)
        .map_err(|errors| invalid(format!("invalid policy\n{errors}")))?;
    for rule in policy.rules() {
        let reject = |why: String| Err(invalid(format!("{name}: rule `{}` {why}", rule.name())));
        if rule.domain() != DOMAIN {
            return reject(format!("is not in domain `{DOMAIN}`, so it would never apply"));
        }
        if matches!(rule.limit(), Limit::Slots(_)) {
            return reject("is a concurrency limit; use --max-connections".into());
        }
        let attributes = rule
            .key()
            .parts()
            .iter()
            .map(policy::KeyPart::attribute)
            .chain(rule.conditions().iter().map(Condition::attribute))
            .chain(rule.cost().and_then(policy::CostTable::attribute));
        for attribute in attributes {
            if !ATTRIBUTES.contains(&attribute) {
                let known = ATTRIBUTES.join("`, `");
                return reject(format!("needs `{attribute}`; requests have `{known}`"));
            }
        }
    }
    Ok(policy)
}

/// The settings of one limit.
struct SettingNames {
    max: &'static str,
    per: &'static str,
    burst: &'static str,
}

/// The error of the setting that a number came from.
fn setting_error(error: &LimitError, names: &SettingNames) -> SettingError {
    let setting = match error.field() {
        "per" | "period" => names.per,
        "burst" => names.burst,
        _ => names.max,
    };
    SettingError::new(setting, error.to_string())
}

fn in_policy(error: impl ToString) -> SettingError {
    SettingError::new("--user-override", error.to_string())
}

/// The maximum that is allowed at once.
fn capacity(limit: &Limit) -> u64 {
    match limit {
        Limit::Window(window) => window.max(),
        Limit::Bucket(bucket) => bucket.capacity(),
        _ => u64::MAX,
    }
}

const USER: SettingNames =
    SettingNames { max: "--user-max", per: "--user-per", burst: "--user-burst" };
const GLOBAL: SettingNames =
    SettingNames { max: "--global-max", per: "--global-per", burst: "--global-burst" };
