//! Policies: the policy file parsed and checked, and the matching of rules to requests.
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
//! assert!(errors.starts_with("policy.toml:5:31: error: unknown field `burts` in a bucket"));
//! assert!(errors.ends_with("hint: did you mean `burst`?"));
//! ```

mod check;
mod cost;
mod describe;
mod descriptors;
mod diagnostic;
mod difference;
mod fields;
mod key;
pub(crate) mod limit;
mod lints;
mod load;
mod matcher;
pub(crate) mod metadata;
mod overrides;
pub(crate) mod parse;
pub(crate) mod paths;
pub(crate) mod pattern;
mod representable;
mod rule;
mod rule_builder;
mod rule_fields;
mod rule_id;
mod schema;
mod secrets;
mod server;
mod settings;
mod share;
mod subsumption;
mod text;
mod tls;
mod tokens;
mod watch;
mod words;
pub(crate) mod write;

use std::sync::Arc;
use std::time::Duration;

use check::Finding;

pub use crate::attributes::{Attributes, NamedAttributes};
pub use cost::CostTable;
pub use diagnostic::{Diagnostic, PolicyErrors, Severity};
pub use difference::{FieldChange, PolicyDifference, RuleChange, RuleDifference};
pub use key::{Key, KeyPart};
pub use limit::{Limit, Periods, Slots};
pub use load::{LoadError, PolicyFile, YamlOptions};
pub use matcher::{Matcher, Matches, WorstCase};
pub use metadata::{Metadata, MetadataNumber, MetadataValue};
pub use overrides::{Grant, Override};
pub use pattern::{Condition, Network, Pattern};
pub use rule::{Charging, Durability, Effective, Empty, Missing, Mode, OnError, Rule, RuleError};
pub use rule_builder::RuleBuilder;
pub use rule_id::RuleId;
pub use schema::schema;
pub use server::{Listen, Secret, ServerSettings};
pub use settings::{EngineSettings, Unmatched};
pub use share::Share;
pub use tls::{ClientCa, TlsSettings, TlsTable};
pub use tokens::{Credential, RequiredAttribute, Scope, ScopeError, Scopes, Token, TokenFile};
pub use watch::{PolicyWatch, WatchedFile};

/// Rules that have been checked: names are unique in their domain, numbers are exact, nothing is
/// unlimited unless stated.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) settings: EngineSettings,
    pub(crate) rules: Vec<Rule>,
    pub(crate) takes_own_limits: bool,
    /// The warnings of the file; `None` for a policy that was built in code.
    pub(crate) found: Option<Arc<[Diagnostic]>>,
}

/// A valid policy file: the policy, the settings for a daemon, and warnings about probable mistakes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Parsed {
    /// The policy.
    pub policy: Policy,
    /// The settings for a daemon.
    pub server: ServerSettings,
    /// Probable mistakes, in the order of the file.
    pub warnings: Vec<Diagnostic>,
    /// How many more warnings there are.
    pub left_out: usize,
}

/// Compares the contents of the files; [`with_request_limits`](Policy::with_request_limits) and
/// warnings are not part of them.
impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        (&self.settings, &self.rules) == (&other.settings, &other.rules)
    }
}

impl Policy {
    /// Parses a policy file. The name is only for messages.
    ///
    /// All errors are reported at once. Files above 16 MiB are rejected.
    pub fn parse(file_name: &str, bytes: &[u8]) -> Result<Parsed, PolicyErrors> {
        parse::parse(file_name, bytes, parse::FileScope::Whole)
    }

    /// The policy in a text. Its [warnings](Self::warnings) come with it. Settings for a daemon are
    /// checked as well, but are no part of it: [`parse`](Self::parse) returns them.
    ///
    /// ```
    /// use tidegate::policy::Policy;
    ///
    /// let policy = Policy::from_toml(r#"
    ///     [[rule]]
    ///     name   = "user"
    ///     key    = ["user"]
    ///     window = { max = 10, per = "10s" }
    ///
    ///     [[rule]]
    ///     name   = "global"
    ///     window = { max = 9, per = "10s" }
    /// "#)?;
    /// let warning = policy.warnings()[0].to_string();
    /// assert!(warning.starts_with("policy.toml:8:14: warning: "), "{warning}");
    /// # Ok::<(), tidegate::policy::PolicyErrors>(())
    /// ```
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
                    format!("rule `{}` of domain `{}`: {message}", rule.id.name, rule.id.domain);
                diagnostic::without_position(Severity::Error, message, None)
            }));
        }
        if found.is_empty() {
            let settings = EngineSettings::default();
            return Ok(Self { settings, rules, takes_own_limits: false, found: None });
        }
        let left_out = found.len().saturating_sub(PolicyErrors::MOST);
        found.truncate(PolicyErrors::MOST);
        Err(PolicyErrors::new(found, left_out))
    }

    /// No rules: what is in force before the first policy.
    #[doc(hidden)]
    #[must_use]
    pub fn none() -> Self {
        Self {
            settings: EngineSettings::default(),
            rules: Vec::new(),
            takes_own_limits: false,
            found: None,
        }
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The settings besides the rules: what decisions and stores need.
    #[must_use]
    pub const fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// The same policy, enforced for all keys whatever share of them the file sets: for tests,
    /// which have to be deterministic.
    #[must_use]
    pub fn enforced_for_all(mut self) -> Self {
        self.settings.enforce_ppm = EngineSettings::ENFORCE_ALL_PPM;
        self
    }

    /// The same policy, in which rules with slots deny nothing: for requests of which only the start is
    /// known, such as those in a log.
    #[must_use]
    pub fn without_slots(mut self) -> Self {
        let with_slots = self.rules.iter_mut().filter(|it| matches!(it.limit, Limit::Slots(_)));
        with_slots.for_each(|rule| rule.mode = Mode::Shadow);
        self
    }

    /// Whether requests may bring their own limit.
    #[doc(hidden)]
    #[must_use]
    pub const fn takes_request_limits(&self) -> bool {
        self.takes_own_limits
    }

    /// The same policy, for requests that may bring their own limit (`RequestLimit`).
    ///
    /// It is not part of the file: the program that serves the requests decides it.
    /// It stays so when an engine's policy is replaced.
    #[must_use]
    pub fn with_request_limits(self) -> Self {
        Self { takes_own_limits: true, ..self }
    }

    /// The policy as the successor of another one, which still accepts limits from requests.
    #[doc(hidden)]
    #[must_use]
    pub fn in_place_of(mut self, old: &Self) -> Arc<Self> {
        self.takes_own_limits |= old.takes_own_limits;
        Arc::new(self)
    }

    /// Probable mistakes, such as a limit for all keys below the limit of one.
    ///
    /// For a policy from a file they are those of [`Parsed`], in its order and with positions.
    #[must_use]
    pub fn warnings(&self) -> Vec<Diagnostic> {
        if let Some(found) = &self.found {
            return found.to_vec();
        }
        lints::lint(&self.rules, &[self.settings.encoded_slash])
            .into_iter()
            .map(|finding| diagnostic(finding, &self.rules))
            .collect()
    }
}

impl Parsed {
    /// A policy and its warnings, which it keeps.
    pub(crate) fn new(
        mut policy: Policy,
        server: ServerSettings,
        warnings: Vec<Diagnostic>,
        left_out: usize,
    ) -> Self {
        policy.found = Some(warnings.clone().into());
        Self { policy, server, warnings, left_out }
    }

    /// A policy that was built in code, with the default settings for a daemon.
    ///
    /// The settings in a file are lost with this: [`Policy::parse`] returns them with the policy.
    #[must_use]
    pub fn from_code(policy: Policy) -> Self {
        let (warnings, server) = (policy.warnings(), ServerSettings::default());
        Self { policy, server, warnings, left_out: 0 }
    }

    /// The file in full: the policy, and the settings for a daemon. Parsed again, both are equal.
    ///
    /// **Secrets** are written in plain text, as in the file. To print the file, write
    /// [the settings without them](ServerSettings::without_secrets).
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.policy.to_toml_with(&self.server)
    }

    /// The policy, if there are no warnings; else the warnings as errors.
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

/// The text of a TOML file that belongs to a policy, unless it is too large, nested too deep, or
/// not UTF-8.
pub fn readable<'b>(file_name: &str, bytes: &'b [u8]) -> Result<&'b str, PolicyErrors> {
    parse::readable(file_name, bytes).map(|readable| readable.text)
}

/// The duration in a text, as in a policy file: `1h30m`. Zero is not a duration.
pub fn duration_from_text(text: &str) -> Result<Duration, RuleError> {
    Ok(text::duration(text)?)
}

/// A duration as in a policy file, exact: `1h30m`, `250ms`.
#[must_use]
pub fn duration_to_text(duration: Duration) -> String {
    text::format_duration(duration)
}

/// A finding without a position in a file, so it names the rule.
fn diagnostic(finding: Finding, rules: &[Rule]) -> Diagnostic {
    let message = match finding.rule.and_then(|rule| rules.get(rule)) {
        Some(rule) => {
            format!("rule {}: {}", rule.id, finding.message)
        }
        None => finding.message,
    };
    diagnostic::without_position(finding.severity, message, finding.hint)
}
