/// One variable, as in `--help`.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The value if it is not set; `None` if it has no default.
    pub default: Option<&'static str>,
    /// What applies if it is not set and has no default.
    pub unset: &'static str,
    /// Its description.
    pub meaning: &'static str,
    /// Whether its value may be printed.
    pub redaction: Redaction,
    pub(super) expected: &'static str,
}

/// What an error may print of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Its name and its value.
    Value,
    /// Its name: the value is a secret.
    NameOnly,
}

/// All variables of the webhook.
pub const VARIABLES: [Variable; 18] = [
    SECRET,
    AUTH,
    TOKEN,
    API_BASE,
    ALLOWED,
    MAX,
    WINDOW,
    ALGORITHM,
    USERS,
    STORE,
    AGENT_URL,
    AGENT_CALLS,
    AGENT_QUEUE,
    AGENT_QUEUE_BYTES,
    AGENT_TIMEOUT,
    REPLY_TIMEOUT,
    GRACE,
    LISTEN,
];

const fn variable(
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
    expected: &'static str,
) -> Variable {
    Variable {
        name,
        default: Some(default),
        unset: "",
        meaning,
        redaction: Redaction::Value,
        expected,
    }
}

const fn without_default(
    name: &'static str,
    unset: &'static str,
    meaning: &'static str,
    expected: &'static str,
) -> Variable {
    Variable { name, default: None, unset, meaning, redaction: Redaction::Value, expected }
}

pub(super) const SECRET: Variable = Variable {
    redaction: Redaction::NameOnly,
    ..without_default(
        "TELEGRAM_WEBHOOK_SECRET",
        "required",
        "the secret_token given to setWebhook; Telegram sends it with every update",
        "the secret_token given to setWebhook: 1 to 256 of A-Z a-z 0-9 _ - (to let any client \
         send updates, set TELEGRAM_WEBHOOK_AUTH=off)",
    )
};
pub(super) const AUTH: Variable = variable(
    "TELEGRAM_WEBHOOK_AUTH",
    "on",
    "off accepts updates from any client; for experiments, and only without a secret",
    "on, or off if TELEGRAM_WEBHOOK_SECRET is not set",
);
pub(super) const TOKEN: Variable = Variable {
    redaction: Redaction::NameOnly,
    ..without_default(
        "TELEGRAM_BOT_TOKEN",
        "required",
        "the bot's token, as @BotFather gave it",
        "the bot's token as @BotFather gave it, such as 123456:ABC-DEF",
    )
};
pub(super) const API_BASE: Variable = variable(
    "TELEGRAM_API_BASE",
    "https://api.telegram.org",
    "the chat API",
    "a URL such as https://api.telegram.org, without a query",
);
pub(super) const ALLOWED: Variable = without_default(
    "ALLOWED_USER_IDS",
    "all users",
    "the users whose messages are processed, such as 123,456; all others are ignored",
    "user ids such as 123,456 (leave it unset to process the messages of all users)",
);
pub(super) const MAX: Variable = variable(
    "RATE_LIMIT_MAX",
    "20",
    "maximum number of messages per user and window",
    "a whole number from 1 to 4294967295",
);
pub(super) const WINDOW: Variable = variable(
    "RATE_LIMIT_WINDOW_MS",
    "3600000",
    "the length of a window in milliseconds",
    "milliseconds: a whole number from 1 to 31622400000 (366 days)",
);
pub(super) const ALGORITHM: Variable = variable(
    "RATE_LIMIT_ALGORITHM",
    "window",
    "window, sliding (no double burst at a window's edge) or bucket (refills evenly)",
    "window, sliding or bucket",
);
pub(super) const USERS: Variable = without_default(
    "RATE_LIMIT_USERS",
    "none",
    "users with another maximum, such as 123=100,456=unlimited",
    "users and their maxima such as 123=100,456=unlimited",
);
pub(super) const STORE: Variable = variable(
    "RATE_LIMIT_STORE",
    "file:./webhook-state",
    "where counts and accepted messages are stored: file: and a dedicated folder, or memory (lost \
     when the process ends: an accepted message may never be dispatched)",
    "file: and a folder, such as file:./webhook-state, or memory",
);
pub(super) const AGENT_URL: Variable = without_default(
    "AGENT_URL",
    "required",
    "the URL of the agent: each update is posted there unchanged",
    "the URL that updates are posted to, such as http://127.0.0.1:9000/message",
);
pub(super) const AGENT_CALLS: Variable = variable(
    "AGENT_CONCURRENCY",
    "4",
    "maximum number of concurrent calls of the agent",
    "a whole number from 1 to 10000",
);
pub(super) const AGENT_QUEUE: Variable = variable(
    "AGENT_QUEUE",
    "1000",
    "how many more may be queued; beyond that the response is a 503 and Telegram resends later",
    "a whole number from 1 to 1000000",
);
pub(super) const AGENT_QUEUE_BYTES: Variable = variable(
    "AGENT_QUEUE_BYTES",
    "67108864",
    "total size of the messages that are accepted and not answered; beyond that the response is a \
     503",
    "bytes: a whole number from 524288, the largest message, to 1099511627776",
);
pub(super) const AGENT_TIMEOUT: Variable = variable(
    "AGENT_TIMEOUT_MS",
    "120000",
    "time-out of one call",
    "milliseconds: a whole number from 1 to 31622400000",
);
pub(super) const REPLY_TIMEOUT: Variable = variable(
    "REPLY_TIMEOUT_MS",
    "5000",
    "time-out of a reply to the chat API",
    "milliseconds: a whole number from 1 to 31622400000",
);
pub(super) const GRACE: Variable = variable(
    "STOP_GRACE_MS",
    "10000",
    "how long accepted messages may take after a stop signal",
    "milliseconds: a whole number from 1 to 31622400000",
);
pub(super) const LISTEN: Variable = variable(
    "WEBHOOK_LISTEN",
    "127.0.0.1:8080",
    "the address to listen on; port 0 is any free port",
    "an address and a port such as 127.0.0.1:8080",
);
