//! Which commands there are.

use tidegate_proto::resp::{Replies, ThrottleDialect};

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    Throttle(ThrottleDialect),
    Check,
    Peek,
    Reserve,
    Commit,
    Cancel,
    Explain,
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

/// A command, as it is told to those who ask.
#[derive(Debug)]
pub(super) struct CommandSpec {
    pub(super) name: &'static str,
    pub(super) verb: CommandKind,
    /// How many arguments it has, its name included; if below zero, at least so many.
    arity: i64,
    /// Where its key is; 0 if it has none.
    key: i64,
    summary: &'static str,
}

/// The command of this name, in capitals or not.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|command| command.name.as_bytes().eq_ignore_ascii_case(name))
}

impl CommandSpec {
    /// Whether it can have so many arguments, its name included.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// Whether it may be used by those who have not said who they are.
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

    /// Whether it can be a part of one.
    pub(super) fn is_for_transactions(&self) -> bool {
        matches!(
            self.verb,
            CommandKind::Throttle(_)
                | CommandKind::Check
                | CommandKind::Peek
                | CommandKind::Reserve
                | CommandKind::Commit
                | CommandKind::Cancel
                | CommandKind::Explain
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
pub(super) fn tell<'a>(
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
    replies: &mut Replies<'_>,
) {
    let what = words.next().unwrap_or_default();
    let named = |words: &mut dyn Iterator<Item = &'a [u8]>| -> Vec<Option<&'static CommandSpec>> {
        let names: Vec<&[u8]> = words.collect();
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
            let commands = named(&mut words);
            replies.array(commands.len());
            for command in commands {
                match command {
                    Some(command) => command.encode(replies),
                    None => replies.null(),
                }
            }
        }
        b"DOCS" => {
            let commands: Vec<_> = named(&mut words).into_iter().flatten().collect();
            replies.map(commands.len());
            commands.into_iter().for_each(|command| command.explain(replies));
        }
        _ => unknown_subcommand("COMMAND", what, replies),
    }
}

/// What Redis says to those who ask for a part that a command does not have.
pub(super) fn unknown_subcommand(command: &str, what: &[u8], replies: &mut Replies<'_>) {
    let what = String::from_utf8_lossy(&what[..what.len().min(SHOWN_BYTES)]);
    replies.error("ERR", &format!("unknown subcommand '{what}'. Try {command} HELP."));
}

/// What Redis says to those who use a command that does not exist.
pub(super) fn unknown<'a>(mut words: impl Iterator<Item = &'a [u8]>, replies: &mut Replies<'_>) {
    let name = words.next().unwrap_or_default();
    let shown =
        |word: &'a [u8], most: usize| String::from_utf8_lossy(&word[..word.len().min(most)]);
    let mut text =
        format!("unknown command '{}', with args beginning with: ", shown(name, SHOWN_BYTES));
    let mut room = SHOWN_BYTES;
    for word in words {
        if room == 0 {
            break;
        }
        let word = shown(word, room);
        room = room.saturating_sub(word.len() + 3);
        text.extend(["'", &word, "' "]);
    }
    replies.error("ERR", &text);
}

const fn command(
    name: &'static str,
    verb: CommandKind,
    arity: i64,
    key: i64,
    summary: &'static str,
) -> CommandSpec {
    CommandSpec { name, verb, arity, key, summary }
}

/// The most wanted first.
static COMMANDS: [CommandSpec; 21] = [
    command(
        "cl.throttle",
        CommandKind::Throttle(ThrottleDialect::RedisCell),
        -5,
        1,
        "Charges a bucket whose limit comes with the call: key max_burst count period [quantity]",
    ),
    command(
        "throttle",
        CommandKind::Throttle(ThrottleDialect::Throttlecrab),
        -5,
        1,
        "Like CL.THROTTLE, with throttlecrab's burst and reply",
    ),
    command(
        "tg.check",
        CommandKind::Check,
        -2,
        0,
        "Asks the policy and charges: domain [ATTR name value ...] [COST n] [IDEMPOTENCY key]",
    ),
    command(
        "tg.peek",
        CommandKind::Peek,
        -2,
        0,
        "Asks the policy and charges nothing: domain [ATTR name value ...] [COST n]",
    ),
    command(
        "tg.reserve",
        CommandKind::Reserve,
        -2,
        0,
        "Sets units aside: domain [ATTR name value ...] [COST n] [IDEMPOTENCY key]",
    ),
    command(
        "tg.commit",
        CommandKind::Commit,
        -2,
        0,
        "Charges what was set aside: reservation [actual]",
    ),
    command("tg.cancel", CommandKind::Cancel, 2, 0, "Gives back what was set aside: reservation"),
    command(
        "tg.explain",
        CommandKind::Explain,
        -2,
        0,
        "Tells why a request is decided as it is: domain [ATTR name value ...] [COST n]",
    ),
    command("ping", CommandKind::Ping, -1, 0, "Answers"),
    command("echo", CommandKind::Echo, 2, 0, "Answers with its argument"),
    command("quit", CommandKind::Quit, -1, 0, "Ends the connection"),
    command("auth", CommandKind::Auth, -2, 0, "Shows a password: [username] password"),
    command("hello", CommandKind::Hello, -1, 0, "Chooses the protocol's version"),
    command("command", CommandKind::Command, -1, 0, "Tells which commands there are"),
    command("client", CommandKind::Client, -2, 0, "Names a connection, and tells about it"),
    command("info", CommandKind::Info, -1, 0, "Tells about the daemon"),
    command("reset", CommandKind::Reset, -1, 0, "Begins the connection anew"),
    command("select", CommandKind::Select, 2, 0, "Takes database 0, which is the only one"),
    command(
        "multi",
        CommandKind::Multi,
        1,
        0,
        "Keeps the commands that follow, until EXEC or DISCARD",
    ),
    command("exec", CommandKind::Exec, 1, 0, "Answers what was kept, one behind the other"),
    command("discard", CommandKind::Discard, 1, 0, "Forgets what was kept"),
];

/// How much of what a client sent is shown back to it.
const SHOWN_BYTES: usize = 128;
