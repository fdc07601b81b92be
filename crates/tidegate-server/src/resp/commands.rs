//! The table of commands.

use tidegate_proto::resp::Replies;

/// A kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    Throttle,
    Check,
    Peek,
    Reserve,
    Commit,
    Cancel,
    Explain,
    Usage,
    Ping,
    Echo,
    Quit,
    Auth,
    Hello,
    Command,
    Client,
    Info,
    Reset,
    Select,
    Multi,
    Exec,
    Discard,
}

/// A command, as `COMMAND` describes it.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    pub(super) verb: CommandKind,
    /// The number of arguments, its name included; if negative, the least number.
    arity: i64,
    /// The position of its key; 0 if it has none.
    key: i64,
    summary: &'static str,
}

/// The command of this name, in any case.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

impl CommandSpec {
    /// Whether it accepts this number of arguments, its name included.
    pub(super) fn accepts(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Whether clients may use it before they authenticate.
    pub(super) fn is_allowed_unauthenticated(&self) -> bool {
        matches!(
            self.verb,
            CommandKind::Auth | CommandKind::Hello | CommandKind::Quit | CommandKind::Reset
        )
    }

    /// Whether it begins or ends a transaction.
    pub(super) fn is_transacting(&self) -> bool {
        matches!(self.verb, CommandKind::Multi | CommandKind::Exec | CommandKind::Discard)
    }

    /// Whether it can be part of a transaction.
    pub(super) fn is_for_transactions(&self) -> bool {
        matches!(
            self.verb,
            CommandKind::Throttle
                | CommandKind::Check
                | CommandKind::Peek
                | CommandKind::Reserve
                | CommandKind::Commit
                | CommandKind::Cancel
                | CommandKind::Explain
                | CommandKind::Usage
                | CommandKind::Ping
                | CommandKind::Echo
        )
    }

    fn encode(&self, replies: &mut Replies<'_>) {
        replies.array(6);
        replies.bulk(self.name.as_bytes());
        replies.integer(self.arity);
        replies.array(1);
        replies.simple("fast");
        let last = i64::from(self.key > 0);
        [self.key, self.key, last].into_iter().for_each(|position| replies.integer(position));
    }

    fn explain(&self, replies: &mut Replies<'_>) {
        replies.bulk(self.name.as_bytes());
        replies.map(3);
        let group = if self.name.contains("thr") || self.name.contains('.') {
            "rate limiting"
        } else {
            "connection"
        };
        for (name, value) in [("summary", self.summary), ("since", "0.1.0"), ("group", group)] {
            replies.bulk(name.as_bytes());
            replies.bulk(value.as_bytes());
        }
    }
}

/// `COMMAND [COUNT | LIST | INFO [name …] | DOCS [name …]]`.
pub(super) fn command<'a>(
    mut arguments: impl Iterator<Item = &'a [u8]> + Clone,
    replies: &mut Replies<'_>,
) {
    let what = arguments.next().unwrap_or_default();
    let named =
        |arguments: &mut dyn Iterator<Item = &'a [u8]>| -> Vec<Option<&'static CommandSpec>> {
            let names: Vec<&[u8]> = arguments.collect();
            if names.is_empty() {
                COMMANDS.iter().map(Some).collect()
            } else {
                names.into_iter().map(find).collect()
            }
        };
    match what.to_ascii_uppercase().as_slice() {
        b"COUNT" => replies.count(COMMANDS.len() as u64),
        b"LIST" => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| replies.bulk(command.name.as_bytes()));
        }
        b"" | b"INFO" => {
            let commands = named(&mut arguments);
            replies.array(commands.len());
            for command in commands {
                match command {
                    Some(command) => command.encode(replies),
                    None => replies.null(),
                }
            }
        }
        b"DOCS" => {
            let commands: Vec<_> = named(&mut arguments).into_iter().flatten().collect();
            replies.map(commands.len());
            commands.into_iter().for_each(|command| command.explain(replies));
        }
        _ => unknown_subcommand("COMMAND", what, replies),
    }
}

/// The error of Redis for an unknown subcommand.
pub(super) fn unknown_subcommand(command: &str, what: &[u8], replies: &mut Replies<'_>) {
    let what = String::from_utf8_lossy(&what[..what.len().min(SHOWN_BYTES)]);
    replies.error("ERR", &format!("unknown subcommand '{what}'. Try {command} HELP."));
}

/// The error of Redis for an unknown command.
pub(super) fn unknown<'a>(
    mut arguments: impl Iterator<Item = &'a [u8]>,
    replies: &mut Replies<'_>,
) {
    let name = arguments.next().unwrap_or_default();
    if CLUSTER_COMMANDS.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes())) {
        // The words of Redis, which clients know; and what to do.
        let why = "This instance has cluster support disabled: use a client without cluster mode";
        return replies.error("ERR", why);
    }
    let shown =
        |word: &'a [u8], most: usize| String::from_utf8_lossy(&word[..word.len().min(most)]);
    let mut text =
        format!("unknown command '{}', with args beginning with: ", shown(name, SHOWN_BYTES));
    let mut left = SHOWN_BYTES;
    for word in arguments {
        if left == 0 {
            break;
        }
        let word = shown(word, left);
        left = left.saturating_sub(word.len() + 3);
        text.extend(["'", &word, "' "]);
    }
    replies.error("ERR", &text);
}

const fn spec(
    name: &'static str,
    verb: CommandKind,
    arity: i64,
    key: i64,
    summary: &'static str,
) -> CommandSpec {
    CommandSpec { name, verb, arity, key, summary }
}

/// All commands, the most used first.
static COMMANDS: [CommandSpec; 21] = [
    spec(
        "cl.throttle",
        CommandKind::Throttle,
        -5,
        1,
        "Charges a bucket whose limit comes with the call: key max_burst count period [quantity]",
    ),
    spec(
        "tg.check",
        CommandKind::Check,
        -2,
        0,
        "Checks a request and charges it: domain [ATTR name value ...] [COST n] [IDEMPOTENCY key]",
    ),
    spec(
        "tg.peek",
        CommandKind::Peek,
        -2,
        0,
        "Checks a request without a charge: domain [ATTR name value ...] [COST n]",
    ),
    spec(
        "tg.reserve",
        CommandKind::Reserve,
        -2,
        0,
        "Reserves units: domain [ATTR name value ...] [COST n] [IDEMPOTENCY key]",
    ),
    spec("tg.commit", CommandKind::Commit, -2, 0, "Charges a reservation: reservation [actual]"),
    spec(
        "tg.cancel",
        CommandKind::Cancel,
        2,
        0,
        "Releases a reservation without a charge: reservation",
    ),
    spec(
        "tg.explain",
        CommandKind::Explain,
        -2,
        0,
        "Explains the decision on a request: domain [ATTR name value ...] [COST n]",
    ),
    spec(
        "tg.usage",
        CommandKind::Usage,
        -2,
        0,
        "Reports what keys have used of their limits: domain [ATTR name value ...]",
    ),
    spec("ping", CommandKind::Ping, -1, 0, "Replies with PONG or its argument"),
    spec("echo", CommandKind::Echo, 2, 0, "Replies with its argument"),
    spec("quit", CommandKind::Quit, -1, 0, "Closes the connection"),
    spec("auth", CommandKind::Auth, -2, 0, "Authenticates the connection: [username] password"),
    spec("hello", CommandKind::Hello, -1, 0, "Selects the protocol version"),
    spec("command", CommandKind::Command, -1, 0, "Lists the commands"),
    spec("client", CommandKind::Client, -2, 0, "Names and describes the connection"),
    spec("info", CommandKind::Info, -1, 0, "Describes the daemon"),
    spec("reset", CommandKind::Reset, -1, 0, "Resets the connection"),
    spec("select", CommandKind::Select, 2, 0, "Selects database 0, the only one"),
    spec(
        "multi",
        CommandKind::Multi,
        1,
        0,
        "Queues the commands that follow, until EXEC or DISCARD",
    ),
    spec("exec", CommandKind::Exec, 1, 0, "Runs the queued commands in order"),
    spec("discard", CommandKind::Discard, 1, 0, "Discards the queued commands"),
];

/// The commands that clients send in cluster mode.
const CLUSTER_COMMANDS: [&str; 4] = ["cluster", "readonly", "readwrite", "asking"];
/// How much of a client's input an error shows.
const SHOWN_BYTES: usize = 128;
