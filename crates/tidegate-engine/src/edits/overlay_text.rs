//! Overlays as TOML, in which edits are stored and listed.

use std::sync::Arc;

use tidegate_core::Timestamp;
use tidegate_policy::internal::limits;
use tidegate_policy::internal::overlay::{self, BanEntry, OverlayEdits};
use tidegate_policy::internal::values::{
    TableWriter, conditions, conditions_in_tables, text, time,
};
use tidegate_policy::policy::{Charging, Grant, Override, PolicyErrors, Rule, RuleId};

use super::overlay::{Ban, Overlay};

impl Overlay {
    /// The edits as TOML. Parsed again, it is an equal overlay.
    ///
    /// Rules are written as in a policy file. An override names its rule and has its limit in full,
    /// because that rule may be in another file. A ban has the conditions of the requests it
    /// denies.
    ///
    /// ```
    /// use tidegate::policy::{Condition, Grant, Override, Policy, RuleId};
    /// use tidegate::edit::{Ban, Overlay};
    /// use tidegate::{Edit, Engine};
    ///
    /// let engine = Engine::new(Policy::from_toml(
    ///     "[[rule]]\nname = 'search'\nkey = ['ip']\nbucket = { rate = '1/s', burst = 10 }",
    /// )?);
    /// let ip = |ip| Condition::new("ip", [ip]);
    /// let friend = Override::new(vec![ip("192.0.2.7")?], Grant::Unlimited);
    /// engine.edit("ada", Edit::set_override(&RuleId::named("search"), friend))?;
    /// let abuser = Ban::new("default", vec![ip("198.51.100.0/24")?]).reason("abuse");
    /// engine.edit("ada", Edit::ban(abuser))?;
    ///
    /// let saved = engine.overlay().to_toml();
    /// assert_eq!(saved, r#"[[override]]
    /// domain    = "default"
    /// rule      = "search"
    /// key       = { ip = "192.0.2.7" }
    /// unlimited = true
    ///
    /// [[ban]]
    /// domain = "default"
    /// match  = { ip = "198.51.100.0/24" }
    /// reason = "abuse"
    /// "#);
    /// assert_eq!(Overlay::from_toml(&saved)?, engine.overlay());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_toml(&self) -> String {
        let rules = self.rules().map(Rule::to_toml);
        let overrides = self.overrides().map(|(rule, given)| override_table(rule, given));
        let bans = self.bans.iter().map(ban);
        rules.chain(overrides).chain(bans).collect::<Vec<_>>().join("\n")
    }

    /// The edits of a TOML text, or all errors in it.
    ///
    /// A text without edits is valid. Rules are checked as in a policy; whether an override fits
    /// its rule is checked when the overlay [is put into force](super::Edit::overlay).
    pub fn from_toml(text: &str) -> Result<Self, PolicyErrors> {
        let OverlayEdits { rules, overrides, bans } =
            overlay::parse("overlay.toml", text.as_bytes())?;
        let ban = |BanEntry { domain, conditions, until_ns, reason }| Ban {
            domain,
            conditions,
            until: until_ns.map(Timestamp::from_nanos),
            reason,
        };
        Ok(Self {
            rules: rules.into_iter().map(Arc::new).collect(),
            overrides,
            bans: bans.into_iter().map(ban).collect(),
        })
    }
}

fn override_table(rule: &RuleId, given: &Override) -> String {
    let mut lines = TableWriter::default();
    lines.add("domain", text(rule.domain()));
    lines.add("rule", text(rule.name()));
    lines.add("key", conditions(given.key()));
    match given.grant() {
        Grant::Unlimited => lines.add("unlimited", "true".into()),
        Grant::Limit(limit) => {
            let (algorithm, limit) = limits::in_full(limit, Charging::Allowed);
            lines.add(algorithm, limit);
        }
    }
    lines.add_some("until", given.until_ns().map(time));
    lines.under("[[override]]")
}

fn ban(ban: &Ban) -> String {
    let mut lines = TableWriter::default();
    lines.add("domain", text(&ban.domain));
    lines.add("match", conditions_in_tables(&ban.conditions));
    lines.add_some("until", ban.until.map(|until| time(until.as_nanos())));
    lines.add_some("reason", ban.reason.as_deref().map(text));
    lines.under("[[ban]]")
}
