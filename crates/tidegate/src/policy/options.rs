//! Every key of the policy file: the one table that the parser, the hints and the schema share.

/// A table of the file: its keys.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// One key.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) need: Need,
    pub(crate) about: &'static str,
}

/// Whether a key has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Optional,
}

/// What the value of a key may be.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text that is not empty.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number in a range.
    Integer { min: u64, max: u64 },
    /// Text such as `10s`.
    Duration,
    /// Text such as `10s`, or one of some words.
    DurationOr(&'static [&'static str]),
    /// Text such as `100 per 15m`.
    Rate,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A whole number, or one of some words.
    IntegerOr(&'static [&'static str]),
    /// A fraction from 0 to 1, or one of some words.
    FractionOr(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// Attributes, each with a pattern or a list of patterns.
    Patterns,
    /// A whole number, or an attribute (`by`) and a cost for each pattern.
    Cost,
    /// A time: text as in RFC 3339, or a date-time of TOML.
    Time,
    /// A table with keys of its own.
    Table(&'static Section),
    /// A list of tables with keys of their own.
    Tables(&'static Section),
}

impl Section {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

const fn required(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, need: Need::Required, about }
}

const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, need: Need::Optional, about }
}

/// The largest count. TOML promises half of it, but code can build limits of as much, and every policy
/// can be written down.
pub(crate) const MOST: u64 = u64::MAX;
/// The longest queue that a file can say.
pub(crate) const MOST_QUEUE: u64 = u32::MAX as u64;
const COUNT: Kind = Kind::Integer { min: 1, max: MOST };
/// Windows keep their counts in 32 bits.
const WINDOW_COUNT: Kind = Kind::Integer { min: 1, max: u32::MAX as u64 };
const PARTS: Kind = Kind::Integer { min: 1, max: tidegate_core::Sliding::MAX_PARTS as u64 };
const QUEUE: Kind = Kind::Integer { min: 0, max: MOST_QUEUE };

pub(crate) static FILE: Section = Section {
    name: "the file",
    fields: &[
        optional("rule", Kind::Tables(&RULE), "A rule: who is limited, and how."),
        optional("server", Kind::Table(&SERVER), "Settings of the daemon that loads the file."),
    ],
};

pub(crate) static RULE: Section = Section {
    name: "a rule",
    fields: &[
        required("name", Kind::Text, "Unique in its domain; shown in decisions and metrics."),
        optional("domain", Kind::Text, "The area that a request names. Default: \"default\"."),
        optional("match", Kind::Patterns, "What a request must look like: all of these."),
        optional("key", Kind::Texts, "Whose bucket: attributes. Default: [], one for all."),
        optional("bucket", Kind::Table(&BUCKET), "A token bucket."),
        optional("window", Kind::Table(&WINDOW), "A fixed window."),
        optional("sliding", Kind::Table(&SLIDING), "A sliding window."),
        optional("cooldown", Kind::Duration, "The least time between two admissions."),
        optional("quota", Kind::Table(&QUOTA), "An amount per calendar period or round."),
        optional("slots", Kind::Table(&SLOTS), "So many in flight at once."),
        optional("cost", Kind::Cost, "What a request costs, instead of what it says itself."),
        optional("deny", Kind::Text, "The reason that a refusal gives."),
        optional("mode", Kind::Choice(&["enforce", "shadow"]), "Whether a denial bites."),
        optional("group", Kind::Text, "Of the rules of a group only the first that matches."),
        optional("override", Kind::Tables(&OVERRIDE), "Other limits for some keys."),
        optional("on_error", Kind::Choice(&["allow", "deny"]), "When the store has no answer."),
        optional(
            "missing",
            Kind::Choice(&["refuse", "skip", "share"]),
            "When an attribute of the key is absent. Default: \"refuse\".",
        ),
        optional(
            "durability",
            Kind::Choice(&["memory", "flush", "fsync"]),
            "How safe a charge is when the answer is given.",
        ),
        optional("reserve_for", Kind::Duration, "How long units are held. Default: \"10m\"."),
        optional("charge_refused", Kind::Bool, "Charge what is refused, too."),
        optional("effective", Kind::Choice(&["now", "next"]), "When an edit begins to count."),
    ],
};

/// The keys of a rule of which it has exactly one.
pub(crate) const ALGORITHMS: [&str; 6] =
    ["bucket", "window", "sliding", "cooldown", "quota", "slots"];

pub(crate) static BUCKET: Section = Section {
    name: "a bucket",
    fields: &[
        required("rate", Kind::Rate, "How fast it refills."),
        optional("burst", COUNT, "The whole capacity. Default: the count of the rate."),
        optional("debt", COUNT, "How far commits may overdraw it. Default: not at all."),
    ],
};

pub(crate) static WINDOW: Section = Section {
    name: "a window",
    fields: &[
        required("max", WINDOW_COUNT, "Units per window."),
        required("per", Kind::Duration, "The length of a window."),
        optional("align", Kind::Choice(&["epoch"]), "Default: opens with the first request."),
    ],
};

pub(crate) static SLIDING: Section = Section {
    name: "a sliding window",
    fields: &[
        required("max", WINDOW_COUNT, "Units in every window."),
        required("per", Kind::Duration, "The length of a window."),
        optional("parts", PARTS, "Sub-windows in which units are counted. Default: 10."),
    ],
};

pub(crate) static QUOTA: Section = Section {
    name: "a quota",
    fields: &[
        required("max", COUNT, "Units per period."),
        required("per", Kind::Text, "\"day\", \"month in Europe/Helsinki\", … or \"round\"."),
        optional("carry", CARRY, "What becomes of unspent units. Default: \"none\"."),
    ],
};

const CARRY: Kind = Kind::IntegerOr(&["none", "all"]);

const WAIT: Kind = Kind::DurationOr(&["none"]);

pub(crate) static SLOTS: Section = Section {
    name: "slots",
    fields: &[
        required("max", COUNT, "How many may be in flight."),
        optional("queue", QUEUE, "How many may wait. Default: 1024."),
        optional("wait", WAIT, "How long anybody waits. Default: \"none\", no deadline."),
        optional("expires", Kind::Duration, "When an unrenewed place is lost. Default: \"10m\"."),
        optional("priority", Kind::Text, "An attribute: the higher integer goes first."),
    ],
};

const DEBT: Kind = Kind::Integer { min: 0, max: MOST };

pub(crate) static OVERRIDE: Section = Section {
    name: "an override",
    fields: &[
        required("key", Kind::Patterns, "Which keys: attributes of the rule's key."),
        optional("unlimited", Kind::Bool, "No limit for these keys."),
        optional("until", Kind::Time, "When the override ends."),
        optional("rate", Kind::Rate, "For a bucket."),
        optional("burst", COUNT, "For a bucket."),
        optional("debt", DEBT, "For a bucket; 0: none, where the rule has some."),
        optional("max", COUNT, "For a window, sliding window, quota or slots."),
        optional("per", Kind::Duration, "For a window or sliding window."),
        optional("parts", PARTS, "For a sliding window."),
        optional("cooldown", Kind::Duration, "For a cooldown."),
        optional("carry", CARRY, "For a quota."),
        optional("queue", QUEUE, "For slots."),
        optional("wait", WAIT, "For slots."),
        optional("expires", Kind::Duration, "For slots."),
    ],
};

/// The numbers of each algorithm that an override may change.
pub(crate) fn overridable(algorithm: &str) -> &'static [&'static str] {
    match algorithm {
        "bucket" => &["rate", "burst", "debt"],
        "window" => &["max", "per"],
        "sliding" => &["max", "per", "parts"],
        "cooldown" => &["cooldown"],
        "quota" => &["max", "carry"],
        "slots" => &["max", "queue", "wait", "expires"],
        _ => &[],
    }
}

pub(crate) static SERVER: Section = Section {
    name: "the server table",
    fields: &[
        optional("http", Kind::Text, "Address of the HTTP listener, or \"off\"."),
        optional("grpc", Kind::Text, "Address of the gRPC listener, or \"off\"."),
        optional("resp", Kind::Text, "Address of the Redis protocol listener, or \"off\"."),
        optional("unix", Kind::Text, "Path of the local socket, or \"off\"."),
        optional("admin", Kind::Text, "Address of the admin listener, or \"off\"."),
        optional("admin_token", Kind::Text, "What callers of the admin listener must show."),
        optional("admin_read_token", Kind::Text, "What those must show who may only look there."),
        optional("resp_password", Kind::Text, "What callers of the Redis listener must show."),
        optional(
            "unix_users",
            Kind::Texts,
            "Who may use the local socket, besides its owner and root.",
        ),
        optional("unix_groups", Kind::Texts, "Groups whose members may use it."),
        optional("unix_user_rate", Kind::Rate, "Requests of one user there. Default: \"100/s\"."),
        optional("unix_rate", Kind::Rate, "Requests of all users there. Default: \"1000/s\"."),
        optional("store", Kind::Text, "\"memory\", \"file:PATH\" or \"redis://…\"."),
        optional("trusted_proxies", Kind::Texts, "Networks whose word about addresses counts."),
        optional(
            "headers",
            Kind::Choice(&["ietf-11", "ietf-06", "x-ratelimit", "envoy-03", "none"]),
            "Which headers tell a client about its limits. Default: \"ietf-11\".",
        ),
        optional("user_header", Kind::Text, "The header with the attribute \"user\", for proxies."),
        optional(
            "log_keys",
            Kind::Choice(&["plain", "hashed"]),
            "How keys are shown in logs. Default: \"plain\".",
        ),
        optional("max_connections", COUNT, "Connections at a time. Default: 10000."),
        optional(
            "max_connections_per_peer",
            COUNT,
            "Connections at a time from one address or user. Default: half of all.",
        ),
        optional("max_keys", COUNT, "How many keys are kept at most. Default: 16777216."),
        optional(
            "when_full",
            Kind::Choice(&["share", "deny", "allow"]),
            "What happens to new keys beyond that. Default: \"share\".",
        ),
        optional("unmatched", Kind::Choice(&["allow", "deny"]), "When no rule matches."),
        optional(
            "enforce",
            Kind::FractionOr(&["all", "none"]),
            "Which part of the keys is enforced. Default: \"all\".",
        ),
    ],
};

/// Edits over a policy, as they are kept.
pub(crate) static OVERLAY: Section = Section {
    name: "the overlay",
    fields: &[
        optional("rule", Kind::Tables(&RULE), "A rule, over the policy's rule of that name."),
        optional("override", Kind::Tables(&OVERLAY_OVERRIDE), "Another limit for some keys."),
        optional("ban", Kind::Tables(&BAN), "Somebody who is refused."),
    ],
};

/// An override of a rule that is somewhere else, so it says its limit in full.
pub(crate) static OVERLAY_OVERRIDE: Section = Section {
    name: "an override",
    fields: &[
        required("domain", Kind::Text, "The domain of its rule."),
        required("rule", Kind::Text, "The name of its rule."),
        required("key", Kind::Patterns, "Which keys: attributes of the rule's key."),
        optional("unlimited", Kind::Bool, "No limit for these keys."),
        optional("until", Kind::Time, "When the override ends."),
        optional("bucket", Kind::Table(&BUCKET), "A token bucket."),
        optional("window", Kind::Table(&WINDOW), "A fixed window."),
        optional("sliding", Kind::Table(&SLIDING), "A sliding window."),
        optional("cooldown", Kind::Duration, "The least time between two admissions."),
        optional("quota", Kind::Table(&QUOTA), "An amount per calendar period or round."),
        optional("slots", Kind::Table(&SLOTS), "So many in flight at once."),
    ],
};

pub(crate) static BAN: Section = Section {
    name: "a ban",
    fields: &[
        required("domain", Kind::Text, "Where they are refused."),
        required("who", Kind::Patterns, "Whose requests: all that look so. {} is everybody."),
        optional("until", Kind::Time, "When the ban ends."),
        optional("reason", Kind::Text, "Words for those who are refused."),
    ],
};
