//! The state of a connection, and the dispatch of its commands.

use std::sync::Arc;

use tidegate_proto::resp::{Arguments, Replies, Version, parse};

use super::commands::{self, CommandKind, CommandSpec};
use super::transaction::{RunningTransaction, Transaction};
use super::{connection_commands, policy_commands, throttle_commands};
use crate::daemon::SharedDaemon;
use crate::listener::Listener;
use tidegate_listen::{BudgetKind, PeerId, Permit};

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) daemon: SharedDaemon,
    pub(super) number: u64,
    pub(super) peer: PeerId,
    /// Counts what the connection holds.
    permit: Arc<Permit>,
    pub(super) version: Version,
    pub(super) name: Vec<u8>,
    pub(super) auth: AuthState,
    /// Commands queued by `MULTI`.
    pub(super) transaction: Option<Transaction>,
    /// Commands that `EXEC` has begun to run.
    pub(super) running: Option<RunningTransaction>,
    /// The number of wrong passwords so far.
    pub(super) wrong_passwords: u32,
}

/// The authentication state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthState {
    /// It has to authenticate first.
    Unauthenticated,
    Trusted,
    /// The connection is closing; no further command is handled.
    Leaving,
}

impl Session {
    pub(super) fn new(
        daemon: &SharedDaemon,
        number: u64,
        (peer, permit): (PeerId, &Arc<Permit>),
    ) -> Self {
        let mut session = Self {
            daemon: Arc::clone(daemon),
            number,
            peer,
            permit: Arc::clone(permit),
            version: Version::default(),
            name: Vec::new(),
            auth: AuthState::Unauthenticated,
            transaction: None,
            running: None,
            wrong_passwords: 0,
        };
        session.reset();
        session
    }

    /// Restores the state of a new connection.
    pub(super) fn reset(&mut self) {
        self.version = Version::default();
        self.name = Vec::new();
        self.transaction = None;
        self.auth = match self.daemon.settings.resp_password {
            Some(_) => AuthState::Unauthenticated,
            None => AuthState::Trusted,
        };
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.auth == AuthState::Leaving
    }

    /// The longest command that this client may send.
    pub(super) fn command_bytes_max(&self) -> usize {
        match self.auth {
            AuthState::Unauthenticated => UNAUTHENTICATED_BYTES_MAX,
            _ => self.daemon.settings.bounds.body_bytes,
        }
    }

    /// Handles the complete commands in `input`, and returns how many bytes they are.
    ///
    /// It returns early when enough replies are ready to be sent.
    pub(super) async fn handle(
        &mut self,
        arguments: &mut Arguments,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> usize {
        self.run(arguments, out).await;
        let mut used = 0;
        while out.len() < REPLIES_BYTES_ENOUGH && !self.is_leaving() && !self.is_executing() {
            let rest = &input[used..];
            match parse(rest, arguments) {
                Ok(Some(bytes)) if arguments.is_empty() => used += bytes,
                Ok(Some(bytes)) if arguments.is_line() => {
                    // Rare: an inline command is rewritten as an array.
                    let array = as_array(arguments, rest);
                    if let Ok(Some(found)) = parse(&array, arguments) {
                        self.handle_some((&array, found), arguments, out).await;
                    }
                    used += bytes;
                }
                Ok(Some(bytes)) => used += self.handle_some((rest, bytes), arguments, out).await,
                Ok(None) => break,
                Err(error) => {
                    self.daemon.metrics.listener(Listener::Resp).malformed.add(1);
                    Replies::new(out, self.version).error("ERR", &error.to_string());
                    self.auth = AuthState::Leaving;
                }
            }
        }
        used
    }

    /// Handles the command in `arguments`, and perhaps some that follow it; returns how many bytes
    /// of the input they were.
    async fn handle_some(
        &mut self,
        (input, bytes): (&[u8], usize),
        arguments: &mut Arguments,
        out: &mut Vec<u8>,
    ) -> usize {
        let name = arguments.in_array(input, 0).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:") {
            // A page can make a browser send HTTP to this port; what follows would be its commands.
            tracing::warn!(listener = "resp", "connection closed: the client sent HTTP");
            self.daemon.metrics.listener(Listener::Resp).malformed.add(1);
            self.auth = AuthState::Leaving;
            return bytes;
        }
        let found = commands::find(name);
        let is_authenticated = self.auth != AuthState::Unauthenticated;
        if is_authenticated
            && (self.transaction.is_some() || found.is_some_and(CommandSpec::is_transacting))
        {
            // Boxed: rare, and a large future.
            if Box::pin(self.transact((found, &input[..bytes]), arguments, out)).await {
                return bytes;
            }
        }
        let mut replies = Replies::new(out, self.version);
        let Some(command) = found else {
            if self.auth == AuthState::Unauthenticated {
                replies.error(NO_AUTH.0, NO_AUTH.1);
            } else {
                commands::unknown(arguments.iter(input), &mut replies);
            }
            return bytes;
        };
        if self.auth == AuthState::Unauthenticated && !command.is_allowed_unauthenticated() {
            replies.error(NO_AUTH.0, NO_AUTH.1);
            return bytes;
        }
        if let CommandKind::Throttle(dialect) = command.verb {
            let since = self.daemon.now();
            let found = (input, bytes);
            let tables = &self.daemon.throttles;
            let outcome =
                throttle_commands::handle(tables, dialect, found, arguments, &mut replies);
            outcome.observe(&self.daemon.metrics, dialect, self.daemon.elapsed(since));
            return outcome.bytes;
        }
        if !command.accepts(arguments.len()) {
            wrong_count(command, &mut replies);
            return bytes;
        }
        match command.verb {
            CommandKind::Check => {
                let found = (input, bytes);
                let context = (&*self.daemon, &*self.permit);
                policy_commands::check(context, found, arguments, &mut replies).await
            }
            CommandKind::Peek
            | CommandKind::Reserve
            | CommandKind::Commit
            | CommandKind::Cancel
            | CommandKind::Explain => {
                let words: Vec<&[u8]> = arguments.iter(input).skip(1).collect();
                let since = self.daemon.now();
                // They wait for the store together with this one.
                self.permit.hold(BudgetKind::Unsent, replies.capacity());
                policy_commands::handle(&self.daemon, command.verb, &words, &mut replies).await;
                self.daemon.observe_durations(Listener::Resp, since, 1);
                bytes
            }
            _ => {
                connection_commands::handle(self, command, arguments.iter(input).skip(1), out);
                bytes
            }
        }
    }
}

/// The error of Redis for a wrong number of arguments.
pub(super) fn wrong_count(command: &CommandSpec, replies: &mut Replies<'_>) {
    let name = command.name;
    replies.error("ERR", &format!("wrong number of arguments for '{name}' command"));
}

fn as_array(arguments: &Arguments, line: &[u8]) -> Vec<u8> {
    let mut array = Vec::new();
    let mut words = Replies::new(&mut array, Version::Resp2);
    words.array(arguments.len());
    arguments.iter(line).for_each(|word| words.bulk(word));
    array
}

/// The bytes of replies that are sent before the next command is handled.
pub(super) const REPLIES_BYTES_ENOUGH: usize = 256 << 10;
/// The longest command of a client that is not authenticated.
const UNAUTHENTICATED_BYTES_MAX: usize = 16 << 10;
const NO_AUTH: (&str, &str) = ("NOAUTH", "Authentication required.");

#[cfg(test)]
mod tests;
