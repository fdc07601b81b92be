//! Policies as text, which parses as the same policy again.

use super::limit::written;
use super::{
    Charging, Durability, Effective, Empty, Grant, Missing, Mode, OnError, Override, Policy, Rule,
    ServerSettings,
};
use values::TableWriter;
use values::{conditions, text, time};

mod settings;
pub mod values;

impl Policy {
    /// The policy as a file. Parsed again, it is an equal policy.
    ///
    /// Only what differs from the default is written. Comments of the file that the policy came
    /// from are lost. A text larger than a file may be (16 MiB, 250 000 tables) is written, but
    /// cannot be parsed again.
    ///
    /// ```
    /// use tidegate::policy::{Limit, Policy, Rule};
    /// use tidegate::{Bucket, Rate};
    ///
    /// let limit = Limit::Bucket(Bucket::new(Rate::per_second(10)?, 20)?);
    /// let search = Rule::builder("search", limit).matching("path", ["/search/*"]).key(["ip"]);
    /// let policy = Policy::new([search.build()?])?;
    /// assert_eq!(policy.to_toml(), r#"[[rule]]
    /// name   = "search"
    /// match  = { path = "/search/*" }
    /// key    = ["ip"]
    /// bucket = { rate = "10/s", burst = 20 }
    /// "#);
    /// assert_eq!(Policy::from_toml(&policy.to_toml())?, policy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.to_toml_with(&ServerSettings::default())
    }

    /// The policy and the settings for a daemon as one file, secrets included; see
    /// [`Parsed::to_toml`](super::Parsed::to_toml).
    #[must_use]
    pub fn to_toml_with(&self, server: &ServerSettings) -> String {
        let mut table = TableWriter::default();
        settings::add_server(server, &mut table);
        settings::add_engine(&self.settings, &mut table);
        let table = (!table.is_empty()).then(|| table.under("[server]"));
        let rules = self.rules.iter().map(Rule::to_toml);
        table.into_iter().chain(rules).collect::<Vec<_>>().join("\n")
    }
}

impl Rule {
    /// The rule as in a policy file: one `[[rule]]` table, with what differs from the default.
    ///
    /// Parsed again it is an equal rule, if it is one that a [`Policy`] accepts.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut lines = TableWriter::default();
        lines.add("name", text(&self.id.name));
        lines.add_unless(&*self.id.domain == Self::DEFAULT_DOMAIN, "domain", || {
            text(&self.id.domain)
        });
        lines.add_unless(self.conditions.is_empty(), "match", || conditions(&self.conditions));
        lines.add_unless(self.key.parts.is_empty(), "key", || {
            values::list(values::key_parts(&self.key).iter().map(|part| text(part)))
        });
        let (algorithm, limit) = written::in_full(&self.limit, self.charging);
        lines.add(algorithm, limit);
        lines.add_some("cost", self.cost.as_ref().map(values::costs));
        lines.add_some("deny", self.deny.as_deref().map(text));
        lines.add_unless(self.mode == Mode::default(), "mode", || word(self.mode.name()));
        lines.add_some("group", self.group.as_deref().map(text));
        lines.add_unless(self.overrides.is_empty(), "override", || {
            values::long_list(self.overrides.iter().map(|given| override_table(self, given)))
        });
        self.add_choices(&mut lines);
        lines.under("[[rule]]")
    }

    fn add_choices(&self, lines: &mut TableWriter) {
        let on_error = self.on_error.map(|on_error| match on_error {
            OnError::Allow => word("allow"),
            OnError::Deny => word("deny"),
            OnError::Local(share) => format!("{{ local = {share} }}"),
        });
        lines.add_some("on_error", on_error);
        lines.add_unless(self.missing == Missing::default(), "missing", || {
            word(match self.missing {
                Missing::Refuse => "refuse",
                Missing::Skip => "skip",
                Missing::Share => "share",
            })
        });
        lines.add_unless(self.empty == Empty::default(), "empty", || {
            word(match self.empty {
                Empty::Accept => "accept",
                Empty::Reject => "reject",
            })
        });
        let durability = self.durability.map(|durability| match durability {
            Durability::Memory => "memory",
            Durability::Flush => "flush",
            Durability::Fsync => "fsync",
        });
        lines.add_some("durability", durability.map(word));
        lines.add_unless(self.reserve_for == Self::DEFAULT_RESERVE_FOR, "reserve_for", || {
            values::duration(self.reserve_for)
        });
        match self.charging {
            Charging::Allowed => {}
            Charging::Refused => lines.add("charge_refused", "true".into()),
            Charging::Postpaid => lines.add("postpaid", "true".into()),
        }
        lines.add_unless(!self.quota_mode, "quota_mode", || "true".into());
        lines.add_unless(self.replaces.is_empty(), "replaces", || {
            values::list(self.replaces.iter().map(|name| text(name)))
        });
        lines.add_unless(self.effective == Effective::default(), "effective", || {
            word(match self.effective {
                Effective::Now => "now",
                Effective::Next => "next",
            })
        });
        lines.add_some("metadata", self.metadata.as_deref().map(values::metadata));
    }
}

/// An override in the list of its rule: its keys, and the numbers that differ from the rule's.
pub fn override_table(rule: &Rule, given: &Override) -> String {
    let mut entries = vec![("key", conditions(&given.key))];
    match &given.grant {
        Grant::Unlimited => entries.push(("unlimited", "true".into())),
        Grant::Limit(limit) => entries.extend(written::over(rule, limit)),
    }
    entries.extend(given.until_ns.map(|until_ns| ("until", time(until_ns))));
    values::table(entries)
}

/// A keyword of the file, which has nothing to escape.
fn word(word: &str) -> String {
    format!("\"{word}\"")
}

#[cfg(test)]
mod tests;
