use std::time::Duration;

use tidegate::Report;
use tidegate::policy::{Policy, PolicyErrors, Rule, duration_to_text};

use crate::problem::DeskError;

/// The numbers of the desk's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The cap: proposals per governor and window, until a vote changes it.
    pub proposals_per_window: u64,
    /// The minimum time between two proposals of a governor; `None`: none.
    pub cooldown: Option<Duration>,
    /// The time that a governor has to confirm a proposal.
    pub confirm_within: Duration,
    /// The maximum number of calls of the interpreter in flight.
    pub calls: u64,
    /// How many more proposals may be queued.
    pub queue: u64,
    /// The time-out of one call.
    pub call_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            proposals_per_window: 3,
            cooldown: Some(Duration::from_secs(60)),
            confirm_within: Duration::from_secs(600),
            calls: 3,
            queue: 1_000,
            call_timeout: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// The policy of these limits.
    ///
    /// If several rules deny, the first in order is reported.
    pub fn policy(&self) -> Result<Policy, PolicyErrors> {
        let cooldown = self.cooldown.map(cooldown_rule).unwrap_or_default();
        let held = duration_to_text(self.confirm_within);
        let cap = self.proposals_per_window;
        let (calls, queue) = (self.calls, self.queue);
        // A slot is released when its call ends. This is for a call that hangs nevertheless.
        let expires = duration_to_text(self.call_timeout.saturating_mul(2));
        Policy::from_toml(&format!(
            r#"{cooldown}
            [[rule]]
            name        = "{TOKENS}"
            domain      = "{DOMAIN}"
            match       = {{ {ACT} = ["{PROPOSE}", "{ENROL}"] }}
            key         = ["{GOVERNOR}"]
            quota       = {{ max = {TOKENS_PER_WINDOW}, per = "round", carry = "all" }}
            reserve_for = "{held}"
            on_error    = "deny"

            [[rule]]
            name        = "{CAP}"
            domain      = "{DOMAIN}"
            match       = {{ {ACT} = ["{PROPOSE}", "{CONFIRM}"] }}
            key         = ["{GOVERNOR}"]
            quota       = {{ max = {cap}, per = "round" }}
            cost        = 1
            deny        = "{CAP_REACHED}"
            reserve_for = "{held}"
            effective   = "next"
            on_error    = "deny"

            [[rule]]
            name        = "{INTERPRETER}"
            domain      = "{INTERPRETER}"
            slots       = {{ max = {calls}, queue = {queue}, expires = "{expires}" }}
            "#
        ))
    }

    /// The rule of the cap, with another number.
    pub fn cap_rule(&self, proposals_per_window: u64) -> Result<Rule, PolicyErrors> {
        let policy = Self { proposals_per_window, ..self.clone() }.policy()?;
        let rule = policy.rules().iter().find(|rule| rule.name() == CAP);
        Ok(rule.cloned().expect("the policy has this rule"))
    }
}

fn cooldown_rule(cooldown: Duration) -> String {
    let cooldown = duration_to_text(cooldown);
    format!(
        r#"
            [[rule]]
            name        = "{COOLDOWN}"
            domain      = "{DOMAIN}"
            match       = {{ {ACT} = "{PROPOSE}" }}
            key         = ["{GOVERNOR}"]
            cooldown    = "{cooldown}"
            durability  = "memory"
            "#
    )
}

/// The error of a denied proposal: the first of the rules that denied it. `None` in an outage.
pub(crate) fn denial(report: &Report) -> Option<DeskError> {
    let denied = report.rules().find(|rule| !rule.decision.is_allowed());
    let denied = denied.filter(|_| !report.is_outage())?;
    Some(match denied.rule.name() {
        COOLDOWN => {
            let wait = denied.decision.retry_after();
            let seconds = wait.and_then(tidegate::Wait::whole_secs).unwrap_or(0);
            DeskError::Cooldown { seconds, wait }
        }
        TOKENS => DeskError::Tokens { left: denied.decision.remaining() },
        _ => DeskError::Cap,
    })
}

/// The tokens that a proposal of a tier costs.
///
/// They are the cost of the request, and a place under the cap is always 1: so a commit can charge
/// the place and release the tokens.
pub(crate) const fn price(tier: u64) -> u64 {
    match tier {
        ..=4 => 1,
        5..=6 => 2,
        _ => 3,
    }
}

/// The tokens that each governor gets when a window closes.
pub const TOKENS_PER_WINDOW: u64 = 2;

/// The maximum of `proposals_per_window`.
pub const CAP_MAX: u64 = 10;

/// The message when the cap is used up.
pub(crate) const CAP_REACHED: &str = "You've used all your proposals for this governance window. \
     Your limit resets after the next governance tally.";

/// The domain of proposals, and the rules in it.
pub(crate) const DOMAIN: &str = "proposals";
pub(crate) const COOLDOWN: &str = "propose-cooldown";
pub(crate) const TOKENS: &str = "propose-tokens";
pub(crate) const CAP: &str = "propose-cap";

/// The domain of the interpreter, and its rule.
pub(crate) const INTERPRETER: &str = "interpreter";

/// Attributes of a request.
pub(crate) const GOVERNOR: &str = "governor";
pub(crate) const ACT: &str = "act";

/// The values of `act`: a submission; an enrolment, which needs the tokens alone; the confirmation
/// of a proposal of an earlier window, which takes a place under the cap of the open one.
pub(crate) const PROPOSE: &str = "propose";
pub(crate) const ENROL: &str = "enrol";
pub(crate) const CONFIRM: &str = "confirm";
