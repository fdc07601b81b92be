//! Every field of the policy file: the one table that the parser, the hints and the schema share.

/// A table of the file: its fields.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// One field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) need: Presence,
    pub(crate) about: &'static str,
}

/// Whether a field is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
}

/// What the value of a field may be.
#[derive(Debug)]
pub(crate) enum ValueKind {
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
    /// One of some words, or a table with its own fields.
    ChoiceOr(&'static [&'static str], &'static Section),
    /// A fraction above 0 and up to 1.
    Share,
    /// A whole number of at least `min`, or one of some words.
    IntegerOr { min: u64, words: &'static [&'static str] },
    /// A fraction from 0 to 1, or one of some words.
    FractionOr(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// Attributes, each with a pattern or a list of patterns.
    Patterns,
    /// A whole number, or an attribute (`by`) and a cost for each pattern.
    Cost,
    /// A table of any values.
    Metadata,
    /// A time: text as in RFC 3339, or a date-time of TOML.
    Time,
    /// A table with its own fields.
    Table(&'static Section),
    /// A list of tables with their own fields.
    Tables(&'static Section),
}

impl Section {
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

const fn required(name: &'static str, kind: ValueKind, about: &'static str) -> Field {
    Field { name, kind, need: Presence::Required, about }
}

const fn optional(name: &'static str, kind: ValueKind, about: &'static str) -> Field {
    Field { name, kind, need: Presence::Optional, about }
}

/// Fields of earlier versions, and what to do instead.
pub(crate) const REMOVED: &[(&str, &str)] = &[(
    "store_cluster",
    "delete this line: in a cluster all records of a namespace are in one hash slot; to use more of \
     its nodes, give groups of daemons a store_namespace each",
)];

/// The largest count. TOML promises half of it, but limits built in code may have as much, and
/// every policy can be written.
pub(crate) const MOST: u64 = u64::MAX;
/// The longest queue in a file.
pub(crate) const MOST_QUEUE: u64 = u32::MAX as u64;
const COUNT: ValueKind = ValueKind::Integer { min: 1, max: MOST };
/// At least the largest message.
const BUDGET: ValueKind = ValueKind::Integer { min: 4 << 20, max: MOST };
/// Windows keep their counts in 32 bits.
const WINDOW_COUNT: ValueKind = ValueKind::Integer { min: 1, max: u32::MAX as u64 };
const PARTS: ValueKind =
    ValueKind::Integer { min: 1, max: tidegate_core::Sliding::MAX_PARTS as u64 };
const QUEUE: ValueKind = ValueKind::Integer { min: 0, max: MOST_QUEUE };

pub(crate) static FILE: Section = Section {
    name: "the file",
    fields: &[
        optional(
            "rule",
            ValueKind::Tables(&RULE),
            "A rule: which requests it matches, their key, and the limit.",
        ),
        optional(
            "server",
            ValueKind::Table(&SERVER),
            "Settings of the daemon that loads the file.",
        ),
    ],
};

pub(crate) static RULE: Section = Section {
    name: "a rule",
    fields: &[
        required("name", ValueKind::Text, "Unique in its domain; shown in decisions and metrics."),
        optional("domain", ValueKind::Text, "The area that a request names. Default: \"default\"."),
        optional(
            "match",
            ValueKind::Patterns,
            "Conditions on attributes of the request; all must hold.",
        ),
        optional(
            "key",
            ValueKind::Texts,
            "Attributes that the limit counts by. Default: [], one key for all.",
        ),
        optional("bucket", ValueKind::Table(&BUCKET), "A token bucket."),
        optional("window", ValueKind::Table(&WINDOW), "A fixed window."),
        optional("sliding", ValueKind::Table(&SLIDING), "A sliding window."),
        optional("cooldown", ValueKind::Duration, "The minimum time between two allowed requests."),
        optional("quota", ValueKind::Table(&QUOTA), "An amount per calendar period or round."),
        optional("slots", ValueKind::Table(&SLOTS), "A maximum in flight at once."),
        optional("cost", ValueKind::Cost, "What a request costs, in place of its own cost."),
        optional("deny", ValueKind::Text, "The reason in denials."),
        optional(
            "mode",
            ValueKind::Choice(&["enforce", "shadow"]),
            "Whether denials are enforced.",
        ),
        optional(
            "group",
            ValueKind::Text,
            "Of the rules of a group only the first that matches applies.",
        ),
        optional("override", ValueKind::Tables(&OVERRIDE), "Other limits for some keys."),
        optional(
            "on_error",
            ValueKind::ChoiceOr(&["allow", "deny"], &LOCAL),
            "The decision when the store is unavailable. Default: \"allow\"; \"deny\" for quotas.",
        ),
        optional(
            "missing",
            ValueKind::Choice(&["refuse", "skip", "share"]),
            "What happens when an attribute of the key is absent. Default: \"refuse\".",
        ),
        optional(
            "empty",
            ValueKind::Choice(&["accept", "reject"]),
            "Whether an empty attribute of the key is a key, or an error of the request. \
             Default: \"accept\".",
        ),
        optional(
            "durability",
            ValueKind::Choice(&["memory", "flush", "fsync"]),
            "How durable a charge is before the response.",
        ),
        optional(
            "reserve_for",
            ValueKind::Duration,
            "How long a reservation holds units. Default: \"10m\".",
        ),
        optional("charge_refused", ValueKind::Bool, "Also charge denied requests."),
        optional(
            "postpaid",
            ValueKind::Bool,
            "Book costs in full, whatever is left, because they are known only afterwards; allow a \
             request if at least one unit was left before.",
        ),
        optional(
            "quota_mode",
            ValueKind::Bool,
            "Envoy's quota mode: a call is denied only if all of its descriptors with such rules are.",
        ),
        optional(
            "replaces",
            ValueKind::Texts,
            "Names of rules of the domain that do not apply where this one does.",
        ),
        optional("effective", ValueKind::Choice(&["now", "next"]), "When an edit takes effect."),
        optional(
            "metadata",
            ValueKind::Metadata,
            "Values for Envoy's dynamic metadata, where `response_metadata` is on.",
        ),
    ],
};

/// The fields of a rule of which it has exactly one.
pub(crate) const ALGORITHMS: [&str; 6] =
    ["bucket", "window", "sliding", "cooldown", "quota", "slots"];

pub(crate) static BUCKET: Section = Section {
    name: "a bucket",
    fields: &[
        required("rate", ValueKind::Rate, "How fast it refills."),
        optional("burst", COUNT, "The whole capacity. Default: the count of the rate."),
        optional(
            "debt",
            LIMIT_DEBT,
            "How far commits may overdraw it. Default: \"none\"; \"all\" for a postpaid rule.",
        ),
    ],
};

pub(crate) static WINDOW: Section = Section {
    name: "a window",
    fields: &[
        required("max", WINDOW_COUNT, "Units per window."),
        required("per", ValueKind::Duration, "The length of a window."),
        optional("align", ValueKind::Choice(&["epoch"]), "Default: opens with the first request."),
    ],
};

pub(crate) static SLIDING: Section = Section {
    name: "a sliding window",
    fields: &[
        required("max", WINDOW_COUNT, "Units in every window."),
        required("per", ValueKind::Duration, "The length of a window."),
        optional("parts", PARTS, "Sub-windows in which units are counted. Default: 10."),
    ],
};

pub(crate) static QUOTA: Section = Section {
    name: "a quota",
    fields: &[
        required("max", COUNT, "Units per period."),
        required("per", ValueKind::Text, "\"day\", \"month in Europe/Helsinki\", … or \"round\"."),
        optional("carry", CARRY, "What happens to unused units. Default: \"none\"."),
        optional("debt", LIMIT_DEBT, "How far commits may overdraw it. Default: \"all\"."),
    ],
};

/// What a rule does without its store, beyond words.
pub(crate) static LOCAL: Section = Section {
    name: "`on_error`",
    fields: &[required(
        "local",
        ValueKind::Share,
        "Each process decides by itself, with this share of the limit, rounded down, and at least 1. \
         For bucket, window and sliding.",
    )],
};

const CARRY: ValueKind = ValueKind::IntegerOr { min: 1, words: &["none", "all"] };

const LIMIT_DEBT: ValueKind = ValueKind::IntegerOr { min: 1, words: &["all", "none"] };

const WAIT: ValueKind = ValueKind::DurationOr(&["none"]);

pub(crate) static SLOTS: Section = Section {
    name: "slots",
    fields: &[
        required("max", COUNT, "The maximum in flight."),
        optional("queue", QUEUE, "The length of the queue. Default: 1024."),
        optional("wait", WAIT, "The longest wait in the queue. Default: \"none\", no deadline."),
        optional(
            "expires",
            ValueKind::Duration,
            "When an unrenewed slot expires. Default: \"10m\".",
        ),
        optional("priority", ValueKind::Text, "An attribute: the higher integer goes first."),
    ],
};

/// Of a bucket or of a quota.
const DEBT: ValueKind = ValueKind::IntegerOr { min: 0, words: &["all", "none"] };

pub(crate) static OVERRIDE: Section = Section {
    name: "an override",
    fields: &[
        required("key", ValueKind::Patterns, "Which keys: attributes of the rule's key."),
        optional("unlimited", ValueKind::Bool, "No limit for these keys."),
        optional("until", ValueKind::Time, "When the override ends."),
        optional("rate", ValueKind::Rate, "For a bucket."),
        optional("burst", COUNT, "For a bucket."),
        optional("debt", DEBT, "For a bucket, where 0 is none, or for a quota."),
        optional("max", COUNT, "For a window, sliding window, quota or slots."),
        optional("per", ValueKind::Duration, "For a window or sliding window."),
        optional("parts", PARTS, "For a sliding window."),
        optional("cooldown", ValueKind::Duration, "For a cooldown."),
        optional("carry", CARRY, "For a quota."),
        optional("queue", QUEUE, "For slots."),
        optional("wait", WAIT, "For slots."),
        optional("expires", ValueKind::Duration, "For slots."),
    ],
};

/// The numbers of each algorithm that an override may change.
pub(crate) fn overridable(algorithm: &str) -> &'static [&'static str] {
    match algorithm {
        "bucket" => &["rate", "burst", "debt"],
        "window" => &["max", "per"],
        "sliding" => &["max", "per", "parts"],
        "cooldown" => &["cooldown"],
        "quota" => &["max", "carry", "debt"],
        "slots" => &["max", "queue", "wait", "expires"],
        _ => &[],
    }
}

/// The token file.
pub(crate) static TOKENS: Section = Section {
    name: "the token file",
    fields: &[optional("token", ValueKind::Tables(&TOKEN), "A client, and what it may do.")],
};

pub(crate) static TOKEN: Section = Section {
    name: "a token",
    fields: &[
        required("name", ValueKind::Text, "The name of the client."),
        optional("sha256", ValueKind::Text, "The SHA-256 of its secret, in hexadecimal digits."),
        optional("subject", ValueKind::Text, "The subject of its certificate."),
        optional("user", ValueKind::Text, "The user on the local socket."),
        optional("group", ValueKind::Text, "The group on the local socket."),
        required(
            "scopes",
            ValueKind::Texts,
            "What it may do: \"check\", \"settle\", \"lease\", \"read\", \"inspect\", \"admin\".",
        ),
        optional("domains", ValueKind::Texts, "The domains it is for. Default: all of them."),
        optional(
            "attributes",
            ValueKind::Patterns,
            "Attributes that its requests must have, each with a value or a list of values.",
        ),
        optional("limit", ValueKind::Table(&TOKEN_LIMIT), "How many requests it may send."),
        optional("until", ValueKind::Time, "When it ends."),
    ],
};

pub(crate) static TOKEN_LIMIT: Section = Section {
    name: "the limit of a token",
    fields: &[
        required("rate", ValueKind::Rate, "How fast it refills."),
        optional("burst", COUNT, "The whole capacity. Default: the count of the rate."),
    ],
};

const TLS_CERT: Field = optional(
    "cert",
    ValueKind::Text,
    "File in PEM with the certificate, then those between it and its authority.",
);
const TLS_KEY: Field = optional("key", ValueKind::Text, "File in PEM with the key of cert.");
const TLS_CLIENT_CA: Field = optional(
    "client_ca",
    ValueKind::Text,
    "File in PEM with the authorities of clients, which then need a certificate of one of them; \
     \"off\": they need none.",
);

/// What all TCP listeners have, and what differs for one.
pub(crate) static TLS: Section = Section {
    name: "the tls table",
    fields: &[
        TLS_CERT,
        TLS_KEY,
        TLS_CLIENT_CA,
        optional("http", ValueKind::Table(&TLS_LISTENER), "What differs for HTTP."),
        optional("grpc", ValueKind::Table(&TLS_LISTENER), "What differs for gRPC."),
        optional("resp", ValueKind::Table(&TLS_LISTENER), "What differs for the Redis protocol."),
        optional("admin", ValueKind::Table(&TLS_LISTENER), "What differs for admins."),
    ],
};

pub(crate) static TLS_LISTENER: Section = Section {
    name: "the tls table of a listener",
    fields: &[
        TLS_CERT,
        TLS_KEY,
        TLS_CLIENT_CA,
        optional("off", ValueKind::Bool, "Whether this listener has no TLS. Default: false."),
    ],
};

pub(crate) static SERVER: Section = Section {
    name: "the server table",
    fields: &[
        optional("http", ValueKind::Text, "Address of the HTTP listener, or \"off\"."),
        optional("grpc", ValueKind::Text, "Address of the gRPC listener, or \"off\"."),
        optional("resp", ValueKind::Text, "Address of the Redis protocol listener, or \"off\"."),
        optional("unix", ValueKind::Text, "Path of the local socket, or \"off\"."),
        optional("admin", ValueKind::Text, "Address of the admin listener, or \"off\"."),
        optional("tls", ValueKind::Table(&TLS), "Certificates of the listeners."),
        optional(
            "tokens",
            ValueKind::Text,
            "File with the tokens of clients, and what each of them may do.",
        ),
        optional(
            "access",
            ValueKind::Choice(&["closed", "open"]),
            "Whether listeners that other machines can reach need TLS and credentials; the admin \
             listener always does. Default: \"closed\".",
        ),
        optional(
            "hosts",
            ValueKind::Texts,
            "Names of the daemon that requests without a token may have in the header Host, besides \
             addresses and localhost.",
        ),
        optional(
            "unix_users",
            ValueKind::Texts,
            "Users allowed on the local socket, besides its owner and root.",
        ),
        optional(
            "unix_groups",
            ValueKind::Texts,
            "Groups whose members are allowed on the local socket.",
        ),
        optional(
            "unix_user_rate",
            ValueKind::Rate,
            "Requests of one user on the local socket. Default: \"100/s\".",
        ),
        optional(
            "unix_rate",
            ValueKind::Rate,
            "Requests of all users on the local socket. Default: \"1000/s\".",
        ),
        optional(
            "store",
            ValueKind::Text,
            "\"memory\", \"file:PATH\", or the address of a Redis or Valkey server that several \
             daemons share, as \"redis://HOST:PORT\".",
        ),
        optional(
            "store_namespace",
            ValueKind::Text,
            "What all names on a shared server begin with. Default: \"tidegate\".",
        ),
        optional(
            "store_secret",
            ValueKind::Text,
            "What the names of keys on a shared server are hashed with; the same in all daemons.",
        ),
        optional(
            "store_password",
            ValueKind::Text,
            "The password of the shared server, where its address has none.",
        ),
        optional(
            "store_sentinel_user",
            ValueKind::Text,
            "The user of the sentinels. Default: the default user.",
        ),
        optional("store_sentinel_password", ValueKind::Text, "The password of the sentinels."),
        optional(
            "store_ca",
            ValueKind::Text,
            "File in PEM with the certificates that the shared server's is checked against. Default: \
             those of the system.",
        ),
        optional(
            "store_cert",
            ValueKind::Text,
            "File in PEM with the certificate that the shared server checks.",
        ),
        optional("store_key", ValueKind::Text, "File in PEM with the key of store_cert."),
        optional(
            "store_deadline",
            ValueKind::Duration,
            "How long a shared server may take before on_error applies. Default: \"50ms\".",
        ),
        optional(
            "store_replicas",
            ValueKind::Integer { min: 0, max: 100 },
            "How many replicas of a shared server have what durability \"flush\" or \"fsync\" \
             acknowledges. Default: 0.",
        ),
        optional(
            "trusted_proxies",
            ValueKind::Texts,
            "Networks of proxies whose forwarded client addresses are trusted.",
        ),
        optional(
            "headers",
            ValueKind::Choice(&["ietf-11", "ietf-06", "x-ratelimit", "envoy-03", "none"]),
            "Which rate-limit headers responses have. Default: \"ietf-11\".",
        ),
        optional(
            "user_header",
            ValueKind::Text,
            "The header with the attribute \"user\", set by proxies.",
        ),
        optional(
            "encoded_slash",
            ValueKind::Choice(&["decode", "keep"]),
            "What %2F and %5C in the attribute \"path\" become: a slash, or unchanged. Default: \
             \"decode\".",
        ),
        optional(
            "merge_domains",
            ValueKind::Bool,
            "Whether several files of envoyproxy/ratelimit may have the same domain. Default: false.",
        ),
        optional(
            "quota_mode",
            ValueKind::Bool,
            "Whether all descriptors of files of envoyproxy/ratelimit are in quota mode. Default: false.",
        ),
        optional(
            "response_metadata",
            ValueKind::Bool,
            "Whether responses to Envoy have the domain, the descriptors and the metadata of the rules \
             that allowed them. Default: false.",
        ),
        optional(
            "log_keys",
            ValueKind::Choice(&["plain", "hashed"]),
            "How keys are shown in logs. Default: \"plain\".",
        ),
        optional(
            "max_connections",
            COUNT,
            "Maximum concurrent connections of each listener. Default: 10000.",
        ),
        optional(
            "max_connections_per_peer",
            COUNT,
            "Maximum concurrent connections of one address to one listener. Default: a quarter of all.",
        ),
        optional(
            "max_received_bytes",
            BUDGET,
            "Maximum bytes of unfinished requests, over all connections. Default: 67108864.",
        ),
        optional(
            "max_unsent_bytes",
            BUDGET,
            "Maximum bytes of responses not yet sent, over all connections. Default: 67108864.",
        ),
        optional(
            "max_keys",
            COUNT,
            "Maximum number of keys, in total over all rules. Default: 16777216.",
        ),
        optional(
            "revision",
            COUNT,
            "Number of this revision of the file. Of daemons that share a store, the file with the \
             higher one is in force.",
        ),
        optional(
            "max_holds",
            COUNT,
            "Maximum number of open reservations and leases; a domain has at most half of it. \
             Default: 262144.",
        ),
        optional(
            "max_idempotency_keys",
            COUNT,
            "Maximum number of idempotency keys that are kept. Beyond it the domain with most loses \
             its oldest. Default: 1048576.",
        ),
        optional(
            "when_full",
            ValueKind::Choice(&["share", "deny"]),
            "What happens to new keys beyond max_keys. Default: \"share\".",
        ),
        optional(
            "unmatched",
            ValueKind::Choice(&["allow", "deny"]),
            "The decision when no rule matches.",
        ),
        optional(
            "enforce",
            ValueKind::FractionOr(&["all", "none"]),
            "For which share of the keys denials are enforced. Default: \"all\".",
        ),
    ],
};

/// Edits over a policy, as they are stored.
pub(crate) static OVERLAY: Section = Section {
    name: "the overlay",
    fields: &[
        optional("rule", ValueKind::Tables(&RULE), "A rule, over the policy's rule of that name."),
        optional("override", ValueKind::Tables(&OVERLAY_OVERRIDE), "Another limit for some keys."),
        optional(
            "ban",
            ValueKind::Tables(&BAN),
            "Requests that are denied whatever the limits are.",
        ),
    ],
};

/// An override of a rule in another file, so it has its limit in full.
pub(crate) static OVERLAY_OVERRIDE: Section = Section {
    name: "an override",
    fields: &[
        required("domain", ValueKind::Text, "The domain of its rule."),
        required("rule", ValueKind::Text, "The name of its rule."),
        required("key", ValueKind::Patterns, "Which keys: attributes of the rule's key."),
        optional("unlimited", ValueKind::Bool, "No limit for these keys."),
        optional("until", ValueKind::Time, "When the override ends."),
        optional("bucket", ValueKind::Table(&BUCKET), "A token bucket."),
        optional("window", ValueKind::Table(&WINDOW), "A fixed window."),
        optional("sliding", ValueKind::Table(&SLIDING), "A sliding window."),
        optional("cooldown", ValueKind::Duration, "The minimum time between two allowed requests."),
        optional("quota", ValueKind::Table(&QUOTA), "An amount per calendar period or round."),
        optional("slots", ValueKind::Table(&SLOTS), "A maximum in flight at once."),
    ],
};

pub(crate) static BAN: Section = Section {
    name: "a ban",
    fields: &[
        required("domain", ValueKind::Text, "The domain in which it applies."),
        required("match", ValueKind::Patterns, "Which requests: conditions. {} is every request."),
        optional("until", ValueKind::Time, "When the ban ends."),
        optional("reason", ValueKind::Text, "The reason that denied clients get."),
    ],
};
