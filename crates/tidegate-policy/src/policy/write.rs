//! Policies as text, which parses as the same policy again.

use super::limit::written;
use super::{Grant, Override, Policy, Rule, ServerSettings};
use values::TableWriter;
use values::{conditions, time};

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
    /// use tidegate::Bucket;
    ///
    /// let limit = Limit::Bucket(Bucket::per_second(10).burst(20));
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

/// An override in the list of its rule: its keys, and the numbers that differ from the rule's.
pub(crate) fn override_table(rule: &Rule, given: &Override) -> String {
    let mut entries = vec![("key", conditions(&given.key))];
    match &given.grant {
        Grant::Unlimited => entries.push(("unlimited", "true".into())),
        Grant::Limit(limit) => entries.extend(written::over(rule, limit)),
    }
    entries.extend(given.until_ns.map(|until_ns| ("until", time(until_ns))));
    values::table(entries)
}

#[cfg(test)]
mod tests;
