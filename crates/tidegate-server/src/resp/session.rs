//! The state of a connection, and the dispatch of its commands.

use std::sync::Arc;

use tidegate::policy::Scope;
use tidegate_proto::resp::{Arguments, Replies, Version, parse};

use super::commands::{self, CommandKind, CommandSpec};
use super::transaction::{RunningTransaction, Transaction};
use super::{connection_commands, policy_commands, throttle_commands};
use crate::access::{AccessDenial, ConnectionAccess, Principal};
use crate::daemon::{Daemon, SharedDaemon};
use crate::listener::Listener;
use tidegate_listen::tls::ClientCertificate;
use tidegate_listen::{BudgetKind, PeerId, Permit};

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) daemon: SharedDaemon,
    pub(super) number: u64,
    pub(super) peer: PeerId,
    /// Counts what the connection holds.
    pub(super) permit: Arc<Permit>,
    pub(super) version: Version,
    pub(super) name: Vec<u8>,
    pub(super) auth: AuthState,
    /// Who the client is, once it is trusted.
    pub(super) principal: Principal,
    pub(super) access: ConnectionAccess,
    /// Commands queued by `MULTI`.
    pub(super) transaction: Option<Transaction>,
    /// Commands that `EXEC` has begun to run.
    pub(super) running: Option<RunningTransaction>,
    /// The number of wrong secrets so far.
    pub(super) wrong_secrets: u32,
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
        peer: PeerId,
        permit: &Arc<Permit>,
        certificate: Option<&Arc<ClientCertificate>>,
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
            principal: Principal::open(),
            access: daemon.access.connect(permit.state(), certificate),
            wrong_secrets: 0,
        };
        session.reset();
        session
    }

    /// Restores the state of a new connection.
    pub(super) fn reset(&mut self) {
        self.version = Version::default();
        self.name = Vec::new();
        self.transaction = None;
        // A certificate, or nothing, may be enough.
        let daemon = &self.daemon;
        match daemon.access.authenticate(&self.access, None, daemon.wall()) {
            Ok(principal) => (self.auth, self.principal) = (AuthState::Trusted, principal),
            Err(_) => self.auth = AuthState::Unauthenticated,
        }
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
                        self.handle_some(&array, found, arguments, out).await;
                    }
                    used += bytes;
                }
                Ok(Some(bytes)) => used += self.handle_some(rest, bytes, arguments, out).await,
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
        input: &[u8],
        bytes: usize,
        arguments: &mut Arguments,
        out: &mut Vec<u8>,
    ) -> usize {
        if self.principal.is_revoked() {
            self.auth = AuthState::Leaving;
            return bytes;
        }
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
            if Box::pin(self.transact(found, &input[..bytes], arguments, out)).await {
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
            self.daemon.access.note(Listener::Resp, self.peer, &AccessDenial::Missing);
            replies.error(NO_AUTH.0, NO_AUTH.1);
            return bytes;
        }
        if command.verb == CommandKind::Throttle {
            return self.throttle(input, bytes, arguments, &mut replies);
        }
        if !command.accepts(arguments.len()) {
            wrong_count(command, &mut replies);
            return bytes;
        }
        match command.verb {
            CommandKind::Check => {
                policy_commands::check(self, input, bytes, arguments, &mut replies).await
            }
            CommandKind::Peek
            | CommandKind::Reserve
            | CommandKind::Commit
            | CommandKind::Cancel
            | CommandKind::Explain
            | CommandKind::Usage => {
                let words: Vec<&[u8]> = arguments.iter(input).skip(1).collect();
                let since = self.daemon.now();
                // They wait for the store together with this one.
                self.permit.hold(BudgetKind::Unsent, replies.capacity());
                policy_commands::handle(self, command.verb, &words, &mut replies).await;
                self.daemon.observe_durations(Listener::Resp, since, 1);
                bytes
            }
            _ => {
                connection_commands::handle(self, command, arguments.iter(input).skip(1), out);
                bytes
            }
        }
    }

    /// Handles a command with limits of its own, and those like it that follow; returns how many bytes
    /// of the input they were.
    fn throttle(
        &self,
        input: &[u8],
        first_bytes: usize,
        arguments: &mut Arguments,
        replies: &mut Replies<'_>,
    ) -> usize {
        let since = self.daemon.now();
        if let Err(denial) = self.principal.may_everywhere(Scope::Check) {
            reply_denied(&self.daemon, self.peer, &denial, replies);
            return first_bytes;
        }
        let keys = &self.daemon.throttles;
        let outcome = throttle_commands::handle(
            keys,
            &self.principal,
            input,
            first_bytes,
            arguments,
            replies,
        );
        outcome.observe(&self.daemon.metrics, self.daemon.elapsed(since));
        if let Some(denial) = &outcome.denial {
            reply_denied(&self.daemon, self.peer, denial, replies);
        }
        outcome.bytes
    }
}

/// The error of Redis for a wrong number of arguments.
pub(super) fn wrong_count(command: &CommandSpec, replies: &mut Replies<'_>) {
    let name = command.name;
    replies.error("ERR", &format!("wrong number of arguments for '{name}' command"));
}

/// The error for a client that may not do what it requested.
pub(super) fn reply_denied(
    daemon: &Daemon,
    peer: PeerId,
    denial: &AccessDenial,
    replies: &mut Replies<'_>,
) {
    daemon.access.note(Listener::Resp, peer, denial);
    let code = match denial {
        AccessDenial::Owner => "GONE",
        AccessDenial::Limit(_) => "LIMIT",
        denial if denial.is_unauthenticated() => "NOAUTH",
        _ => "NOPERM",
    };
    replies.error(code, &denial.to_string());
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
