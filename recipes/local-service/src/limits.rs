//! Settings to policy: the two rules that requests are limited by.

use std::path::Path;
use std::time::Duration;

use tidegate::policy::{self, Condition, Limit, Override, Policy, Rule};
use tidegate::{Bucket, LimitError, Rate, Window};

use crate::SettingError;
use crate::request_limiter::{ATTRIBUTES, DOMAIN};

/// How much each user may ask, and all of them together. Both limits must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For each user.
    pub user: LimitNumbers,
    /// For all users together.
    pub global: LimitNumbers,
    /// Other numbers for some users; the first that fits counts.
    pub overrides: Vec<UserOverride>,
}

/// The numbers of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitNumbers {
    /// How many requests …
    pub max: u64,
    /// … in how long.
    pub per: Duration,
    /// `None` is a window, which opens with the first request. With a number it is a bucket that
    /// holds so many and refills at `max` per `per`.
    pub burst: Option<u64>,
}

/// Other numbers for users whose names look like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserOverride {
    /// A name, or a pattern as in a policy file: `backup-*`.
    pub users: String,
    /// What they get.
    pub grant: Grant,
}

/// What an exception gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// No limit of their own; the global one stays.
    Unlimited,
    /// These numbers; what is not given is as for everybody.
    Numbers {
        /// How many requests.
        max: u64,
        /// In how long.
        per: Option<Duration>,
        /// How many at once, if the limit is a bucket.
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
    /// The policy that they are, unless they make no sense.
    pub fn policy(&self) -> Result<Policy, SettingError> {
        let user = self.user.limit().map_err(|error| setting_error(&error, &USER))?;
        let global = self.global.limit().map_err(|error| setting_error(&error, &GLOBAL))?;
        if capacity(&global) < capacity(&user) {
            let reason = "the limit for all is below that for a single user".to_owned();
            return Err(SettingError::new(self.global_capacity_setting(), reason));
        }
        let mut user = Rule::new("user", user).domain(DOMAIN).key(["user"]).map_err(in_policy)?;
        for exception in &self.overrides {
            user = user.overridden(self.overriding(exception, &global)?);
        }
        let global = Rule::new("global", global).domain(DOMAIN);
        let policy = Policy::new([user, global]).map_err(in_policy)?;
        // That a limit for all is slower than one for each is a warning elsewhere, and others are
        // about exceptions that never apply.
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
        let wrong = |reason: String| {
            SettingError::new("--user-override", format!("{:?}: {reason}", exception.users))
        };
        let users = Condition::new("user", [exception.users.as_str()])
            .map_err(|error| wrong(error.to_string()))?;
        let grant = match exception.grant {
            Grant::Unlimited => policy::Grant::Unlimited,
            Grant::Numbers { burst: Some(_), .. } if self.user.burst.is_none() => {
                return Err(wrong("a burst needs --user-burst for everybody".into()));
            }
            Grant::Numbers { max, per, burst } => {
                let per = per.unwrap_or(self.user.per);
                let numbers = LimitNumbers { max, per, burst: burst.or(self.user.burst) };
                let limit = numbers.limit().map_err(|error| wrong(error.to_string()))?;
                if capacity(&limit) > capacity(global) {
                    return Err(wrong("it is more than the limit for all".into()));
                }
                policy::Grant::Limit(limit)
            }
        };
        Ok(Override::new(vec![users], grant))
    }

    const fn global_capacity_setting(&self) -> &'static str {
        if self.global.burst.is_some() { GLOBAL.burst } else { GLOBAL.max }
    }

    /// Whether all together get less in the long run than one user.
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
            None => Limit::Window(Window::new(self.max, self.per)?),
            Some(burst) => Limit::Bucket(Bucket::new(Rate::new(self.max, self.per)?, burst)?),
        })
    }
}

/// The policy in a file, if it is one for this service: its domain only, and nothing that would
/// refuse everybody or nobody.
pub fn policy_from_file(path: &Path) -> Result<Policy, SettingError> {
    let wrong = |reason: String| SettingError::new("--policy", reason);
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("{name}: {error}")))?;
    let policy = Policy::parse(&name, &bytes)
        .and_then(policy::Parsed::strict)
        .map_err(|errors| wrong(format!("it cannot be used\n{errors}")))?;
    for rule in policy.rules() {
        let refuse = |why: String| Err(wrong(format!("{name}: rule `{}` {why}", rule.name())));
        if rule.domain_name() != DOMAIN {
            return refuse(format!("is not of domain `{DOMAIN}`, so it would limit nobody"));
        }
        if matches!(rule.limit(), Limit::Slots(_)) {
            return refuse("limits how many are in flight; use --max-connections".into());
        }
        let attributes = rule
            .key_parts()
            .parts()
            .iter()
            .map(policy::KeyPart::attribute)
            .chain(rule.conditions().iter().map(Condition::attribute))
            .chain(rule.cost_table().and_then(policy::CostTable::attribute));
        for attribute in attributes {
            if !ATTRIBUTES.contains(&attribute) {
                let known = ATTRIBUTES.join("`, `");
                return refuse(format!("needs `{attribute}`; a request here has `{known}`"));
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

/// The setting that a number came from.
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

/// The most that passes at once.
fn capacity(limit: &Limit) -> u64 {
    match limit {
        Limit::Window(window) => window.max(),
        Limit::Bucket(bucket) => bucket.burst(),
        _ => u64::MAX,
    }
}

const USER: SettingNames =
    SettingNames { max: "--user-max", per: "--user-per", burst: "--user-burst" };
const GLOBAL: SettingNames =
    SettingNames { max: "--global-max", per: "--global-per", burst: "--global-burst" };
