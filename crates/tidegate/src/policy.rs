//! What the policy file says, checked: rules, and how to find those that a request meets.
//!
//! ```
//! use tidegate::policy::Policy;
//!
//! let parsed = Policy::parse("policy.toml", br#"
//!     [[rule]]
//!     name   = "search"
//!     key    = ["ip"]
//!     bucket = { rate = "10/s", burts = 20 }
//! "#);
//! let errors = parsed.unwrap_err().to_string();
//! assert!(errors.starts_with("policy.toml:5:31: error: unknown key `burts` in a bucket"));
//! assert!(errors.ends_with("hint: did you mean `burst`?"));
//! ```

mod check;
mod cost;
mod describe;
pub(crate) mod descriptor;
mod diagnostic;
mod fields;
mod key;
mod limit;
mod lints;
mod load;
mod matcher;
mod overrides;
pub(crate) mod parse;
mod pattern;
mod representable;
mod rule;
mod schema;
mod server;
mod subsumption;
mod text;
pub(crate) mod write;
#[cfg(feature = "yaml")]
mod yaml;

use std::sync::Arc;
use std::time::Duration;

use check::Finding;

pub use cost::CostTable;
pub use descriptor::DescriptorNames;
pub use diagnostic::{Diagnostic, PolicyErrors, Severity};
pub use key::{Key, KeyPart};
pub use limit::{Cycle, Limit, Slots};
pub use load::PolicyFile;
pub use matcher::{Matcher, Matches, WorstCase};
pub use overrides::{Grant, Override};
pub use pattern::{Condition, Network, Pattern};
pub(crate) use pattern::{address_of, masked, v4_mask, v6_mask};
pub use rule::{Durability, Effective, Missing, Mode, OnError, Rule, RuleError};
pub use schema::schema;
pub use server::{Listen, Secret, ServerConfig, Unmatched};

/// Rules that have been checked: names are unique in their domain, numbers are exact, nothing is
/// unlimited unless it says so.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) server: ServerConfig,
    pub(crate) rules: Vec<Rule>,
    pub(crate) takes_own_limits: bool,
}

/// A policy that can be used, and what is probably wrong with it all the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parsed {
    /// The policy.
    pub policy: Policy,
    /// What was probably not meant, in the order of the file.
    pub warnings: Vec<Diagnostic>,
    /// How many more warnings there are.
    pub left_out: usize,
}

/// Equal are those that say the same. Whether requests may bring limits along is nothing that they say.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        (&self.server, &self.rules) == (&other.server, &other.rules)
    }
}

impl Policy {
    /// Reads a policy file. The name is only for messages.
    ///
    /// All errors are reported at once. Files above 16 MiB are refused.
    pub fn parse(file_name: &str, bytes: &[u8]) -> Result<Parsed, PolicyErrors> {
        parse::parse(file_name, bytes, parse::FileScope::Whole)
    }

    /// The policy that a text says, for those who do not care for warnings.
    pub fn from_toml(text: &str) -> Result<Self, PolicyErrors> {
        Self::parse("policy.toml", text.as_bytes()).map(|parsed| parsed.policy)
    }

    /// A policy of rules that were built in code.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, PolicyErrors> {
        let rules: Vec<Rule> = rules.into_iter().collect();
        let mut found: Vec<_> =
            check::check(&rules).into_iter().map(|f| diagnostic(f, &rules)).collect();
        for rule in &rules {
            found.extend(representable::problem(rule).map(|message| {
                let message =
                    format!("rule `{}` of domain `{}`: {message}", rule.name, rule.domain);
                diagnostic::without_position(Severity::Error, message, None)
            }));
        }
        if found.is_empty() {
            return Ok(Self { server: ServerConfig::default(), rules, takes_own_limits: false });
        }
        let left_out = found.len().saturating_sub(PolicyErrors::MOST);
        found.truncate(PolicyErrors::MOST);
        Err(PolicyErrors::new(found, left_out))
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What the file says about the daemon.
    #[must_use]
    pub const fn server(&self) -> &ServerConfig {
        &self.server
    }

    /// The same policy, enforced for all keys whatever share of them the file says: for tests, which
    /// have to come out the same each time.
    #[must_use]
    pub fn enforced_for_all(mut self) -> Self {
        self.server.enforce_ppm = ServerConfig::ENFORCE_ALL_PPM;
        self
    }

    /// The same policy, for requests that may bring [a limit of their own](crate::OwnLimit).
    ///
    /// It is not part of the file: whether requests may do so is for whoever answers them to say. It
    /// stays so when an engine's policy is replaced.
    #[must_use]
    pub fn with_own_limits(self) -> Self {
        Self { takes_own_limits: true, ..self }
    }

    /// The policy that follows another one: whoever answers requests stays the same.
    pub(crate) fn in_place_of(mut self, old: &Self) -> Arc<Self> {
        self.takes_own_limits |= old.takes_own_limits;
        Arc::new(self)
    }

    /// What was probably not meant, for a policy that was built in code.
    #[must_use]
    pub fn warnings(&self) -> Vec<Diagnostic> {
        lints::lint(&self.rules)
            .into_iter()
            .map(|finding| diagnostic(finding, &self.rules))
            .collect()
    }
}

impl Parsed {
    /// The policy, if there is nothing to warn about; else the warnings as errors.
    pub fn strict(mut self) -> Result<Policy, PolicyErrors> {
        if self.warnings.is_empty() {
            return Ok(self.policy);
        }
        for warning in &mut self.warnings {
            warning.severity = Severity::Error;
        }
        Err(PolicyErrors::new(self.warnings, self.left_out))
    }
}

/// The text of a TOML file that goes with a policy, unless reading it could do harm: it is too large,
/// nested too deep, or not UTF-8.
pub fn readable<'b>(file_name: &str, bytes: &'b [u8]) -> Result<&'b str, PolicyErrors> {
    parse::readable(file_name, bytes).map(|readable| readable.text)
}

/// The duration that a text says, as in a policy file: `1h30m`. Zero is not a duration.
pub fn duration_from_text(text: &str) -> Result<Duration, RuleError> {
    Ok(text::duration(text)?)
}

/// A duration as a policy file says it, exact: `1h30m`, `250ms`.
#[must_use]
pub fn duration_to_text(duration: Duration) -> String {
    text::format_duration(duration)
}

/// A finding without a place in a file, so it names the rule.
fn diagnostic(finding: Finding, rules: &[Rule]) -> Diagnostic {
    let message = match finding.rule.and_then(|rule| rules.get(rule)) {
        Some(Rule { name, domain, .. }) => {
            format!("rule `{name}` of domain `{domain}`: {}", finding.message)
        }
        None => finding.message,
    };
    diagnostic::without_position(finding.severity, message, finding.hint)
}
