//! The fields of a rule: what each of them is, how it is read, and how it is written; and those of its
//! overrides.

use super::fields::ValueKind::{
    self, Bool, Choice, ChoiceOr, Cost, Duration, IntegerOr, Metadata, Patterns, Rate, Share,
    Tables, Text, Texts, Time,
};
use super::fields::{CARRY, COUNT, Field, PARTS, QUEUE, Section, WAIT, joined, optional, required};
use super::limit::{ALGORITHM_FIELDS, Limit, written};
use super::parse::reader::TableReader;
use super::parse::{metadata, rule as values_of};
use super::words::Words;
use super::write::override_table;
use super::write::values::{self, TableWriter, conditions, text, word};
use super::{Charging, Durability, Effective, Empty, Missing, Mode, OnError, Rule};

pub(crate) static RULE: Section = Section {
    name: "a rule",
    fields: &joined::<{ WHICH.len() + ALGORITHM_FIELDS.len() + HOW.len() }>([
        WHICH,
        &ALGORITHM_FIELDS,
        HOW,
    ]),
};

/// Which rule it is, and for which requests; the limit comes next.
const WHICH: &[Field] = &[
    required("name", Text)
        .about("Unique in its domain; shown in decisions and metrics.")
        .read(|table, rule| rule.id.name = table.text("name").unwrap_or_default().into())
        .write(|rule| Some(text(&rule.id.name))),
    optional("domain", Text)
        .about("The area that a request names. Default: \"default\".")
        .read(|table, rule| {
            rule.id.domain = table.text("domain").unwrap_or(Rule::DEFAULT_DOMAIN).into();
        })
        .write(|rule| Some(rule.domain()).filter(|it| *it != Rule::DEFAULT_DOMAIN).map(text)),
    optional("match", Patterns)
        .about("Conditions on attributes of the request; all must hold.")
        .read(|table, rule| rule.conditions = values_of::conditions(table, "match"))
        .write(|rule| not_empty(&rule.conditions, |it| conditions(it))),
    optional("key", Texts)
        .about("Attributes that the limit counts by. Default: [], one key for all.")
        .read(|table, rule| rule.key = values_of::key(table))
        .write(|rule| not_empty(&values::key_parts(&rule.key), |it| values::texts(it))),
];

/// How requests are charged to the limit, and what happens then.
const HOW: &[Field] = &[
    optional("cost", Cost)
        .about("What a request costs, in place of its own cost.")
        .read(|table, rule| rule.cost = values_of::cost(table))
        .write(|rule| rule.cost.as_ref().map(values::costs)),
    optional("deny", Text)
        .about("The reason in denials.")
        .read(|table, rule| rule.deny = table.text("deny").map(Into::into))
        .write(|rule| rule.deny.as_deref().map(text)),
    optional("mode", Choice(Mode::WORDS))
        .about("Whether denials are enforced.")
        .read(|table, rule| rule.mode = table.word("mode").unwrap_or_default())
        .write(|rule| not_default(rule.mode)),
    optional("group", Text)
        .about("Of the rules of a group only the first that matches applies.")
        .read(|table, rule| rule.group = table.text("group").map(Into::into))
        .write(|rule| rule.group.as_deref().map(text)),
    // Read with the limit, whose numbers it has where it does not change them.
    optional("override", Tables(&OVERRIDE))
        .about("Other limits for some keys.")
        .write(|rule| {
            let tables: Vec<_> = rule.overrides.iter().map(|it| override_table(rule, it)).collect();
            not_empty(&tables, values::long_list)
        }),
    optional("on_error", ChoiceOr(&["allow", "deny"], &LOCAL))
        .about(
            "The decision when the store is unavailable. Default: \"allow\"; \"deny\" for quotas.",
        )
        .read(|table, rule| rule.on_error = values_of::on_error(table))
        .write(|rule| {
            rule.on_error.map(|on_error| match on_error {
                OnError::Allow => text("allow"),
                OnError::Deny => text("deny"),
                OnError::Local(share) => format!("{{ local = {share} }}"),
            })
        }),
    optional("missing", Choice(Missing::WORDS))
        .about("What happens when an attribute of the key is absent. Default: \"refuse\".")
        .read(|table, rule| rule.missing = table.word("missing").unwrap_or_default())
        .write(|rule| not_default(rule.missing)),
    optional("empty", Choice(Empty::WORDS))
        .about(
            "Whether an empty attribute of the key is a key, or an error of the request. \
             Default: \"accept\".",
        )
        .read(|table, rule| rule.empty = table.word("empty").unwrap_or_default())
        .write(|rule| not_default(rule.empty)),
    optional("durability", Choice(Durability::WORDS))
        .about("How durable a charge is before the response.")
        .read(|table, rule| rule.durability = table.word("durability"))
        .write(|rule| rule.durability.map(word)),
    optional("reserve_for", Duration)
        .about("How long a reservation holds units. Default: \"10m\".")
        .read(|table, rule| {
            rule.reserve_for = table.duration("reserve_for").unwrap_or(Rule::DEFAULT_RESERVE_FOR);
        })
        .write(|rule| {
            let is_written = rule.reserve_for != Rule::DEFAULT_RESERVE_FOR;
            is_written.then(|| values::duration(rule.reserve_for))
        }),
    // Both are read before the limit, which depends on them.
    optional("charge_refused", Bool)
        .about("Also charge denied requests.")
        .write(|rule| flag(rule.charging == Charging::Refused)),
    optional("postpaid", Bool)
        .about(
            "Book costs in full, whatever is left, because they are known only afterwards; allow a \
             request if at least one unit was left before.",
        )
        .write(|rule| flag(rule.charging == Charging::Postpaid)),
    optional("quota_mode", Bool)
        .about(
            "Envoy's quota mode: a call is denied only if all of its descriptors with such rules are.",
        )
        .read(|table, rule| rule.quota_mode = table.boolean("quota_mode").unwrap_or(false))
        .write(|rule| flag(rule.quota_mode)),
    optional("replaces", Texts)
        .about("Names of rules of the domain that do not apply where this one does.")
        .read(|table, rule| rule.replaces = table.texts("replaces"))
        .write(|rule| not_empty(&rule.replaces, |names| values::texts(names))),
    optional("effective", Choice(Effective::WORDS))
        .about("When an edit takes effect.")
        .read(|table, rule| rule.effective = table.word("effective").unwrap_or_default())
        .write(|rule| not_default(rule.effective)),
    optional("metadata", Metadata)
        .about("Values for Envoy's dynamic metadata, where `response_metadata` is on.")
        .read(|table, rule| rule.metadata = metadata::read(table))
        .write(|rule| rule.metadata.as_deref().map(values::metadata)),
];

/// What a rule does without its store, beyond words.
static LOCAL: Section = Section {
    name: "`on_error`",
    fields: &[required("local", Share).about(
        "Each process decides by itself, with this share of the limit, rounded down, and at least 1. \
         For bucket, window and sliding.",
    )],
};

/// Of a bucket or of a quota.
const DEBT: ValueKind = IntegerOr { min: 0, words: &["all", "none"] };

pub(crate) static OVERRIDE: Section = Section {
    name: "an override",
    fields: &[
        required("key", Patterns).about("Which keys: attributes of the rule's key."),
        optional("unlimited", Bool).about("No limit for these keys."),
        optional("until", Time).about("When the override ends."),
        optional("rate", Rate).about("For a bucket."),
        optional("burst", COUNT).about("For a bucket."),
        optional("debt", DEBT).about("For a bucket, where 0 is none, or for a quota."),
        optional("max", COUNT).about("For a window, sliding window, quota or slots."),
        optional("per", Duration).about("For a window or sliding window."),
        optional("parts", PARTS).about("For a sliding window."),
        optional("cooldown", Duration).about("For a cooldown."),
        optional("carry", CARRY).about("For a quota."),
        optional("queue", QUEUE).about("For slots."),
        optional("wait", WAIT).about("For slots."),
        optional("expires", Duration).about("For slots."),
    ],
};

/// An override of a rule in another file, so it has its limit in full.
pub(crate) static OVERLAY_OVERRIDE: Section = Section {
    name: "an override",
    fields: &joined::<{ OVERRIDDEN.len() + ALGORITHM_FIELDS.len() }>([
        OVERRIDDEN,
        &ALGORITHM_FIELDS,
        &[],
    ]),
};

const OVERRIDDEN: &[Field] = &[
    required("domain", Text).about("The domain of its rule."),
    required("rule", Text).about("The name of its rule."),
    required("key", Patterns).about("Which keys: attributes of the rule's key."),
    optional("unlimited", Bool).about("No limit for these keys."),
    optional("until", Time).about("When the override ends."),
];

/// The rule in a table. Where something is wrong it has been reported, and the rule only serves to
/// find more errors.
pub(crate) fn read(table: &mut TableReader<'_, '_>) -> Rule {
    let mut rule = Rule::new("", Limit::placeholder());
    rule.charging = values_of::charging(table);
    let algorithm = values_of::algorithm(table);
    let limit = algorithm.and_then(|it| it.read_in(table, rule.charging));
    if let (Some(algorithm), Some(_)) = (algorithm, &limit) {
        rule.overrides = values_of::overrides(table, algorithm, rule.charging);
    }
    for read in RULE.fields.iter().filter_map(|field| field.read) {
        read(table, &mut rule);
    }
    match limit {
        Some(Ok(limit)) => rule.limit = limit,
        // Whether it fits the limit is unknown without one.
        _ => rule.on_error = None,
    }
    rule
}

impl Rule {
    /// The rule as in a policy file: one `[[rule]]` table, with what differs from the default.
    ///
    /// Parsed again it is an equal rule, if it is one that a [`Policy`](super::Policy) accepts.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut lines = TableWriter::default();
        let (algorithm, limit) = written::in_full(&self.limit, self.charging);
        for field in RULE.fields {
            match field.write {
                Some(write) => lines.add_some(field.name, write(self)),
                None if field.name == algorithm => lines.add(algorithm, limit.clone()),
                None => {}
            }
        }
        lines.under("[[rule]]")
    }
}

fn not_empty<T>(list: &[T], write: impl FnOnce(&[T]) -> String) -> Option<String> {
    (!list.is_empty()).then(|| write(list))
}

fn not_default<T: Words + Default>(value: T) -> Option<String> {
    (value != T::default()).then(|| word(value))
}

fn flag(is_set: bool) -> Option<String> {
    is_set.then(|| "true".into())
}
