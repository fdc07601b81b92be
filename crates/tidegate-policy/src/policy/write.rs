//! Policies as text, which parses as the same policy again.

use tidegate_table::table::WhenFull;

use super::{
    Durability, Effective, Empty, Grant, Listen, Missing, Mode, OnError, Override, Pattern, Policy,
    Rule, ServerConfig, Unmatched,
};
use crate::policy::text::format_rate;
use crate::request_path::EncodedSlash;
use values::TableWriter;
use values::{conditions, text, time};

pub mod limits;
pub mod values;

impl Policy {
    /// The policy as a file. Parsed again, it is an equal policy.
    ///
    /// Only what differs from the default is written. Comments of the file that the policy came
    /// from are lost. A text larger than a file may be (16 MiB, 250 000 tables) is written, but
    /// cannot be parsed again.
    ///
    /// **Secrets** are written in plain text, as in the file: the admin tokens, passwords, and a
    /// password in the address of the store. To print a policy, write it
    /// [without secrets](Self::without_secrets).
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
        let server = server(&self.server);
        let server = (!server.is_empty()).then(|| server.under("[server]"));
        let rules = self.rules.iter().map(Rule::to_toml);
        server.into_iter().chain(rules).collect::<Vec<_>>().join("\n")
    }

    /// The same policy without secrets: the admin tokens, the password of the Redis protocol, and
    /// the user and password in the address of the store.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut policy = self.clone();
        policy.server.admin_token = None;
        policy.server.admin_read_token = None;
        policy.server.resp_password = None;
        policy.server.store = policy.server.store.map(|store| without_user(&store));
        policy
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
        let (algorithm, limit) = limits::in_full(&self.limit);
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
        lines.add_unless(!self.charge_refused, "charge_refused", || "true".into());
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
        Grant::Limit(limit) => entries.extend(limits::over(&rule.limit, limit)),
    }
    entries.extend(given.until_ns.map(|until_ns| ("until", time(until_ns))));
    values::table(entries)
}

fn server(server: &ServerConfig) -> TableWriter {
    let mut lines = TableWriter::default();
    let listeners = [
        ("http", &server.http),
        ("grpc", &server.grpc),
        ("resp", &server.resp),
        ("unix", &server.unix),
        ("admin", &server.admin),
    ];
    for (name, listen) in listeners {
        lines.add_some(
            name,
            listen.as_ref().map(|listen| match listen {
                Listen::Off => word("off"),
                Listen::At(address) => text(address),
            }),
        );
    }
    let secrets = [
        ("admin_token", &server.admin_token),
        ("admin_read_token", &server.admin_read_token),
        ("resp_password", &server.resp_password),
    ];
    for (name, secret) in secrets {
        lines.add_some(name, secret.as_ref().map(|secret| text(secret.reveal())));
    }
    for (name, names) in [("unix_users", &server.unix_users), ("unix_groups", &server.unix_groups)]
    {
        lines.add_unless(names.is_empty(), name, || values::list(names.iter().map(|it| text(it))));
    }
    for (name, rate) in [("unix_user_rate", server.unix_user_rate), ("unix_rate", server.unix_rate)]
    {
        lines.add_some(name, rate.map(|rate| word(&format_rate(rate))));
    }
    lines.add_some("headers", server.headers.as_deref().map(word));
    lines.add_some("user_header", server.user_header.as_deref().map(text));
    lines
        .add_unless(server.encoded_slash == EncodedSlash::Decode, "encoded_slash", || word("keep"));
    switches(server, &mut lines);
    lines.add_unless(!server.hides_keys, "log_keys", || word("hashed"));
    let numbers = [
        ("max_connections", server.max_connections),
        ("max_connections_per_peer", server.max_connections_per_peer),
        ("max_received_bytes", server.max_received_bytes),
        ("max_unsent_bytes", server.max_unsent_bytes),
    ];
    for (name, number) in numbers {
        lines.add_some(name, number.map(|number| number.to_string()));
    }
    lines.add_some("store", server.store.as_deref().map(text));
    lines.add_unless(server.trusted_proxies.is_empty(), "trusted_proxies", || {
        let networks = server.trusted_proxies.iter();
        let networks = networks.map(|it| Pattern::Network(it.address, it.bits).to_string());
        values::list(networks.map(|network| text(&network)))
    });
    bounds(server, &mut lines);
    match server.unmatched {
        Unmatched::Allow => {}
        Unmatched::Deny => lines.add("unmatched", word("deny")),
    }
    match server.enforce_ppm {
        ServerConfig::ENFORCE_ALL_PPM => {}
        0 => lines.add("enforce", word("none")),
        ppm => lines.add("enforce", format!("0.{ppm:06}").trim_end_matches('0').into()),
    }
    lines
}

fn switches(server: &ServerConfig, lines: &mut TableWriter) {
    let switches = [
        ("merge_domains", server.merge_domains),
        ("quota_mode", server.quota_mode),
        ("response_metadata", server.response_metadata),
    ];
    for (name, is_on) in switches {
        lines.add_unless(!is_on, name, || "true".into());
    }
}

fn bounds(server: &ServerConfig, lines: &mut TableWriter) {
    let usual = ServerConfig::default();
    let bounds = [
        ("max_keys", server.max_keys, usual.max_keys),
        ("max_holds", server.max_holds, usual.max_holds),
        ("max_idempotency_keys", server.max_idempotency_keys, usual.max_idempotency_keys),
    ];
    for (name, number, usual) in bounds {
        lines.add_unless(number == usual, name, || number.to_string());
    }
    match server.when_full {
        WhenFull::Share => {}
        WhenFull::Deny => lines.add("when_full", word("deny")),
        WhenFull::Allow => lines.add("when_full", word("allow")),
    }
}

/// A keyword of the file, which has nothing to escape.
fn word(word: &str) -> String {
    format!("\"{word}\"")
}

/// The address of a store without its user and password.
fn without_user(store: &str) -> Box<str> {
    let Some((kind, rest)) = store.split_once("://") else { return store.into() };
    let host_ends = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..host_ends].rfind('@') {
        Some(at) => format!("{kind}://{}", &rest[at + 1..]).into(),
        None => store.into(),
    }
}

#[cfg(test)]
mod tests;
