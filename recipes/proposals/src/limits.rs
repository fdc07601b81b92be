use std::time::Duration;

use tidegate::Report;
use tidegate::policy::{Policy, PolicyErrors, Rule, duration_to_text};

use crate::problem::DeskError;

/// The numbers of the desk's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many proposals a governor may hand in per window, as long as no vote has changed it.
    pub proposals_per_window: u64,
    /// How long a governor waits between two proposals; `None`: not at all.
    pub cooldown: Option<Duration>,
    /// How long a governor has to confirm a proposal.
    pub confirm_within: Duration,
    /// How many calls of the interpreter may be in flight.
    pub calls: u64,
    /// How many more proposals may wait for one.
    pub queue: u64,
    /// How long the interpreter may take.
    pub answer_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            proposals_per_window: 3,
            cooldown: Some(Duration::from_secs(60)),
            confirm_within: Duration::from_secs(600),
            calls: 3,
            queue: 1_000,
            answer_within: Duration::from_secs(60),
        }
    }
}

impl Limits {
    /// The policy that these numbers make.
    ///
    /// The order of the rules is that in which they speak, if several refuse.
    pub fn policy(&self) -> Result<Policy, PolicyErrors> {
        let cooldown = self.cooldown.map(cooldown_rule).unwrap_or_default();
        let held = duration_to_text(self.confirm_within);
        let cap = self.proposals_per_window;
        let (calls, queue) = (self.calls, self.queue);
        // A place is freed when its call is over. This is for one that hangs all the same.
        let expires = duration_to_text(self.answer_within.saturating_mul(2));
        Policy::from_toml(&format!(
            r#"{cooldown}
            [[rule]]
            name        = "{TOKENS}"
            domain      = "{DOMAIN}"
            key         = ["{GOVERNOR}"]
            quota       = {{ max = {TOKENS_PER_WINDOW}, per = "round", carry = "all" }}
            cost        = {{ by = "{TIER}", "1..=4" = 1, "5..=6" = 2, "7.." = 3 }}
            reserve_for = "{held}"
            on_error    = "deny"

            [[rule]]
            name        = "{CAP}"
            domain      = "{DOMAIN}"
            match       = {{ {ACT} = "{PROPOSE}" }}
            key         = ["{GOVERNOR}"]
            quota       = {{ max = {cap}, per = "round" }}
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

/// Why a proposal was refused: the first of the rules that did so speaks.
pub(crate) fn denial(report: &Report) -> DeskError {
    let refuser = report.rules().find(|rule| !rule.decision.is_allowed());
    let Some(refuser) = refuser.filter(|_| !report.is_outage()) else { return DeskError::Outage };
    match refuser.rule {
        COOLDOWN => {
            let wait = refuser.decision.wait();
            let seconds = wait.and_then(tidegate::Wait::whole_secs).unwrap_or(0);
            DeskError::Cooldown { seconds, wait }
        }
        TOKENS => DeskError::Tokens { left: refuser.decision.remaining() },
        _ => DeskError::Cap,
    }
}

/// How many tokens every governor gets when a window closes.
pub const TOKENS_PER_WINDOW: u64 = 2;

/// The most that `proposals_per_window` can be set to.
pub const CAP_MAX: u64 = 10;

/// What a governor is told who has used up the cap.
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
pub(crate) const TIER: &str = "tier";
pub(crate) const ACT: &str = "act";

/// What somebody does who proposes: governors are also enrolled, which is no proposal.
pub(crate) const PROPOSE: &str = "propose";
