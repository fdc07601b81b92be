/// One variable, as `--help` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it is when it is not set; `None` if it has none.
    pub default: Option<&'static str>,
    /// What happens when it is not set and has no default.
    pub unset: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Whether its value may be shown.
    pub shown: Redaction,
    pub(super) expected: &'static str,
}

/// What an error may show of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Its name and its value.
    Value,
    /// Its name: the value is a secret.
    NameOnly,
}

/// Every variable that the webhook reads.
pub const VARIABLES: [Variable; 17] = [
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
    Variable { name, default: Some(default), unset: "", meaning, shown: Redaction::Value, expected }
}

const fn without_default(
    name: &'static str,
    unset: &'static str,
    meaning: &'static str,
    expected: &'static str,
) -> Variable {
    Variable { name, default: None, unset, meaning, shown: Redaction::Value, expected }
}

pub(super) const SECRET: Variable = Variable {
    shown: Redaction::NameOnly,
    ..without_default(
        "TELEGRAM_WEBHOOK_SECRET",
        "required",
        "the secret_token that setWebhook was told; Telegram sends it with every update",
        "the secret_token that setWebhook was told: 1 to 256 of A-Z a-z 0-9 _ - (to let anybody \
         send updates, set TELEGRAM_WEBHOOK_AUTH=off)",
    )
};
pub(super) const AUTH: Variable = variable(
    "TELEGRAM_WEBHOOK_AUTH",
    "on",
    "off lets anybody send updates; for trying things out",
    "on, or off if TELEGRAM_WEBHOOK_SECRET is not set",
);
pub(super) const TOKEN: Variable = Variable {
    shown: Redaction::NameOnly,
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
    "everybody",
    "whose messages are looked at, such as 123,456; all others are ignored",
    "numbers of users such as 123,456 (leave it unset to look at everybody's messages)",
);
pub(super) const MAX: Variable = variable(
    "RATE_LIMIT_MAX",
    "20",
    "how many messages of a user reach the agent in a window",
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
    "users with another number, such as 123=100,456=unlimited",
    "users and their numbers such as 123=100,456=unlimited",
);
pub(super) const STORE: Variable = variable(
    "RATE_LIMIT_STORE",
    "file:./webhook-state",
    "where counts are kept: file: and a folder of its own, or memory (gone after a restart)",
    "file: and a folder, such as file:./webhook-state, or memory",
);
pub(super) const AGENT_URL: Variable = without_default(
    "AGENT_URL",
    "required",
    "where messages go: each update is posted there as it came",
    "the URL that updates are posted to, such as http://127.0.0.1:9000/message",
);
pub(super) const AGENT_CALLS: Variable = variable(
    "AGENT_CONCURRENCY",
    "4",
    "how many messages the agent works on at a time",
    "a whole number from 1 to 10000",
);
pub(super) const AGENT_QUEUE: Variable = variable(
    "AGENT_QUEUE",
    "1000",
    "how many more may wait for it; beyond them Telegram is asked to send again later",
    "a whole number from 1 to 1000000",
);
pub(super) const AGENT_TIMEOUT: Variable = variable(
    "AGENT_TIMEOUT_MS",
    "120000",
    "how long the agent may take for one",
    "milliseconds: a whole number from 1 to 31622400000",
);
pub(super) const REPLY_TIMEOUT: Variable = variable(
    "REPLY_TIMEOUT_MS",
    "5000",
    "how long a reply may take to reach the chat API",
    "milliseconds: a whole number from 1 to 31622400000",
);
pub(super) const GRACE: Variable = variable(
    "STOP_GRACE_MS",
    "10000",
    "how long accepted messages may take once the process is asked to stop",
    "milliseconds: a whole number from 1 to 31622400000",
);
pub(super) const LISTEN: Variable = variable(
    "WEBHOOK_LISTEN",
    "127.0.0.1:8080",
    "where to listen; port 0 is any that is free",
    "an address and a port such as 127.0.0.1:8080",
);
