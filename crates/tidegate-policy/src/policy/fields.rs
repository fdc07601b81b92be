//! Every field of the policy file: the one table that the parser, the hints and the schema share.

use super::Rule;
use super::parse::reader::TableReader;
use super::rule_fields::{OVERLAY_OVERRIDE, RULE};
use ValueKind::{
    Bool, Choice, Duration, DurationOr, FractionOr, Integer, IntegerOr, Patterns, Rate, Table,
    Tables, Text, Texts, Time,
};

/// A table of the file: its fields.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [Field],
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) need: Presence,
    pub(crate) about: &'static str,
    /// Reads a field of a rule; `None`: the limit depends on it, and it is read with the limit.
    pub(crate) read: Option<fn(&mut TableReader<'_, '_>, &mut Rule)>,
    /// The value of a field of a rule; none for a default.
    pub(crate) write: Option<fn(&Rule) -> Option<String>>,
}

/// Whether a field is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
}

/// What the value of a field may be.
#[derive(Clone, Copy, Debug)]
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

/// A field that has to be present.
pub(crate) const fn required(name: &'static str, kind: ValueKind) -> Field {
    Field { name, kind, need: Presence::Required, about: "", read: None, write: None }
}

/// A field that may be absent.
pub(crate) const fn optional(name: &'static str, kind: ValueKind) -> Field {
    Field { need: Presence::Optional, ..required(name, kind) }
}

impl Field {
    pub(crate) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    pub(crate) const fn read(self, read: fn(&mut TableReader<'_, '_>, &mut Rule)) -> Self {
        Self { read: Some(read), ..self }
    }

    pub(crate) const fn write(self, write: fn(&Rule) -> Option<String>) -> Self {
        Self { write: Some(write), ..self }
    }
}

/// The fields of three lists, which have `N` together.
pub(crate) const fn joined<const N: usize>(lists: [&[Field]; 3]) -> [Field; N] {
    let mut all = [required("", Text); N];
    let (mut list, mut index, mut used) = (0, 0, 0);
    while list < lists.len() {
        if index < lists[list].len() {
            all[used] = lists[list][index];
            (index, used) = (index + 1, used + 1);
        } else {
            (list, index) = (list + 1, 0);
        }
    }
    assert!(used == N);
    all
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
pub(crate) const COUNT: ValueKind = Integer { min: 1, max: MOST };
/// At least the largest message.
const BUDGET: ValueKind = Integer { min: 4 << 20, max: MOST };
/// Windows keep their counts in 32 bits.
pub(crate) const WINDOW_COUNT: ValueKind = Integer { min: 1, max: u32::MAX as u64 };
pub(crate) const PARTS: ValueKind =
    Integer { min: 1, max: tidegate_core::Sliding::MAX_PARTS as u64 };
pub(crate) const QUEUE: ValueKind = Integer { min: 0, max: MOST_QUEUE };

pub(crate) static FILE: Section = Section {
    name: "the file",
    fields: &[
        optional("rule", Tables(&RULE))
            .about("A rule: which requests it matches, their key, and the limit."),
        optional("server", Table(&SERVER)).about("Settings of the daemon that loads the file."),
    ],
};

pub(crate) const CARRY: ValueKind = IntegerOr { min: 1, words: &["none", "all"] };

pub(crate) const LIMIT_DEBT: ValueKind = IntegerOr { min: 1, words: &["all", "none"] };

pub(crate) const WAIT: ValueKind = DurationOr(&["none"]);

/// The token file.
pub(crate) static TOKENS: Section = Section {
    name: "the token file",
    fields: &[optional("token", Tables(&TOKEN)).about("A client, and what it may do.")],
};

pub(crate) static TOKEN: Section = Section {
    name: "a token",
    fields: &[
        required("name", Text).about("The name of the client."),
        optional("sha256", Text).about("The SHA-256 of its secret, in hexadecimal digits."),
        optional("subject", Text).about("The subject of its certificate."),
        optional("user", Text).about("The user on the local socket."),
        optional("group", Text).about("The group on the local socket."),
        required("scopes", Texts).about(
            "What it may do: \"check\", \"settle\", \"lease\", \"read\", \"inspect\", \"admin\".",
        ),
        optional("domains", Texts).about("The domains it is for. Default: all of them."),
        optional("attributes", Patterns).about(
            "Attributes that its requests must have, each with a value or a list of values.",
        ),
        optional("limit", Table(&TOKEN_LIMIT)).about("How many requests it may send."),
        optional("until", Time).about("When it ends."),
    ],
};

pub(crate) static TOKEN_LIMIT: Section = Section {
    name: "the limit of a token",
    fields: &[
        required("rate", Rate).about("How fast it refills."),
        optional("burst", COUNT).about("The whole capacity. Default: the count of the rate."),
    ],
};

const TLS_CERT: Field = optional("cert", Text)
    .about("File in PEM with the certificate, then those between it and its authority.");
const TLS_KEY: Field = optional("key", Text).about("File in PEM with the key of cert.");
const TLS_CLIENT_CA: Field = optional("client_ca", Text).about(
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
        optional("http", Table(&TLS_LISTENER)).about("What differs for HTTP."),
        optional("grpc", Table(&TLS_LISTENER)).about("What differs for gRPC."),
        optional("resp", Table(&TLS_LISTENER)).about("What differs for the Redis protocol."),
        optional("admin", Table(&TLS_LISTENER)).about("What differs for admins."),
    ],
};

pub(crate) static TLS_LISTENER: Section = Section {
    name: "the tls table of a listener",
    fields: &[
        TLS_CERT,
        TLS_KEY,
        TLS_CLIENT_CA,
        optional("off", Bool).about("Whether this listener has no TLS. Default: false."),
    ],
};

pub(crate) static SERVER: Section = Section {
    name: "the server table",
    fields: &[
        optional("http", Text).about("Address of the HTTP listener, or \"off\"."),
        optional("grpc", Text).about("Address of the gRPC listener, or \"off\"."),
        optional("resp", Text).about("Address of the Redis protocol listener, or \"off\"."),
        optional("unix", Text).about("Path of the local socket, or \"off\"."),
        optional("admin", Text).about("Address of the admin listener, or \"off\"."),
        optional("tls", Table(&TLS)).about("Certificates of the listeners."),
        optional("tokens", Text).about("File with the tokens of clients, and what each of them may do."),
        optional("access", Choice(&["closed", "open"])).about("Whether listeners that other machines can reach need TLS and credentials; the admin \
             listener always does. Default: \"closed\"."),
        optional("hosts", Texts).about("Names of the daemon that requests without a token may have in the header Host, besides \
             addresses and localhost."),
        optional("unix_users", Texts).about("Users allowed on the local socket, besides its owner and root."),
        optional("unix_groups", Texts).about("Groups whose members are allowed on the local socket."),
        optional("unix_user_rate", Rate).about("Requests of one user on the local socket. Default: \"100/s\"."),
        optional("unix_rate", Rate).about("Requests of all users on the local socket. Default: \"1000/s\"."),
        optional("store", Text).about("\"memory\", \"file:PATH\", or the address of a Redis or Valkey server that several \
             daemons share, as \"redis://HOST:PORT\"."),
        optional("store_namespace", Text).about("What all names on a shared server begin with. Default: \"tidegate\"."),
        optional("store_secret", Text).about("What the names of keys on a shared server are hashed with; the same in all daemons."),
        optional("store_password", Text).about("The password of the shared server, where its address has none."),
        optional("store_sentinel_user", Text).about("The user of the sentinels. Default: the default user."),
        optional("store_sentinel_password", Text).about("The password of the sentinels."),
        optional("store_ca", Text).about("File in PEM with the certificates that the shared server's is checked against. Default: \
             those of the system."),
        optional("store_cert", Text).about("File in PEM with the certificate that the shared server checks."),
        optional("store_key", Text).about("File in PEM with the key of store_cert."),
        optional("store_deadline", Duration).about("How long a shared server may take before on_error applies. Default: \"50ms\"."),
        optional("store_replicas", Integer { min: 0, max: 100 }).about("How many replicas of a shared server have what durability \"flush\" or \"fsync\" \
             acknowledges. Default: 0."),
        optional("trusted_proxies", Texts).about("Networks of proxies whose forwarded client addresses are trusted."),
        optional("headers", Choice(&["ietf-11", "ietf-06", "x-ratelimit", "envoy-03", "none"])).about("Which rate-limit headers responses have. Default: \"ietf-11\"."),
        optional("user_header", Text).about("The header with the attribute \"user\", set by proxies."),
        optional("encoded_slash", Choice(&["decode", "keep"])).about("What %2F and %5C in the attribute \"path\" become: a slash, or unchanged. Default: \
             \"decode\"."),
        optional("merge_domains", Bool).about("Whether several files of envoyproxy/ratelimit may have the same domain. Default: false."),
        optional("quota_mode", Bool).about("Whether all descriptors of files of envoyproxy/ratelimit are in quota mode. Default: false."),
        optional("response_metadata", Bool).about("Whether responses to Envoy have the domain, the descriptors and the metadata of the rules \
             that allowed them. Default: false."),
        optional("log_keys", Choice(&["plain", "hashed"])).about("How keys are shown in logs. Default: \"plain\"."),
        optional("max_connections", COUNT).about("Maximum concurrent connections of each listener. Default: 10000."),
        optional("max_connections_per_peer", COUNT).about("Maximum concurrent connections of one address to one listener. Default: a quarter of all."),
        optional("max_received_bytes", BUDGET).about("Maximum bytes of unfinished requests, over all connections. Default: 67108864."),
        optional("max_unsent_bytes", BUDGET).about("Maximum bytes of responses not yet sent, over all connections. Default: 67108864."),
        optional("max_keys", COUNT).about("Maximum number of keys, in total over all rules. Default: 16777216."),
        optional("revision", COUNT).about("Number of this revision of the file. Of daemons that share a store, the file with the \
             higher one is in force."),
        optional("max_holds", COUNT).about("Maximum number of open reservations and leases; a domain has at most half of it. \
             Default: 262144."),
        optional("max_idempotency_keys", COUNT).about("Maximum number of idempotency keys that are kept. Beyond it the domain with most loses \
             its oldest. Default: 1048576."),
        optional("when_full", Choice(&["share", "deny"])).about("What happens to new keys beyond max_keys. Default: \"share\"."),
        optional("unmatched", Choice(&["allow", "deny"])).about("The decision when no rule matches."),
        optional("enforce", FractionOr(&["all", "none"])).about("For which share of the keys denials are enforced. Default: \"all\"."),
    ],
};

/// Edits over a policy, as they are stored.
pub(crate) static OVERLAY: Section = Section {
    name: "the overlay",
    fields: &[
        optional("rule", Tables(&RULE)).about("A rule, over the policy's rule of that name."),
        optional("override", Tables(&OVERLAY_OVERRIDE)).about("Another limit for some keys."),
        optional("ban", Tables(&BAN)).about("Requests that are denied whatever the limits are."),
    ],
};

pub(crate) static BAN: Section = Section {
    name: "a ban",
    fields: &[
        required("domain", Text).about("The domain in which it applies."),
        required("match", Patterns).about("Which requests: conditions. {} is every request."),
        optional("until", Time).about("When the ban ends."),
        optional("reason", Text).about("The reason that denied clients get."),
    ],
};
