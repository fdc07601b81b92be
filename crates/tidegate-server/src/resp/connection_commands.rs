//! Commands about the connection itself.

use tidegate_proto::resp::{Replies, Version, integer};

use super::commands::{self, CommandKind, CommandSpec, unknown_subcommand};
use super::session::{AuthState, Session, wrong_count};
use crate::access::{AccessDenial, Principal};
use crate::listener::Listener;

/// Handles one of them. The arguments are those after the command's name.
pub(super) fn handle<'a>(
    session: &mut Session,
    command: &'static CommandSpec,
    mut arguments: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    out: &mut Vec<u8>,
) {
    let mut replies = Replies::new(out, session.version);
    match command.verb {
        CommandKind::Ping => match (arguments.next(), arguments.next()) {
            (None, _) => replies.simple("PONG"),
            (Some(text), None) => replies.bulk(text),
            _ => wrong_count(command, &mut replies),
        },
        CommandKind::Echo => replies.bulk(arguments.next().unwrap_or_default()),
        CommandKind::Quit => {
            replies.simple("OK");
            session.auth = AuthState::Leaving;
        }
        CommandKind::Auth => match (arguments.next(), arguments.next(), arguments.next()) {
            (Some(password), None, _) => auth(session, b"default", password, &mut replies),
            (Some(user), Some(password), None) => {
                auth(session, user, password, &mut replies);
            }
            _ => replies.error("ERR", "syntax error"),
        },
        CommandKind::Hello => hello(session, arguments, out),
        CommandKind::Command => commands::command(arguments, &mut replies),
        CommandKind::Client => client(session, arguments, &mut replies),
        CommandKind::Info => replies.bulk(info(session).as_bytes()),
        CommandKind::Reset => {
            session.reset();
            Replies::new(out, session.version).simple("RESET");
        }
        CommandKind::Select => match arguments.next().map(integer) {
            Some(Some(0)) => replies.simple("OK"),
            Some(Some(_)) => replies.error("ERR", "DB index is out of range"),
            _ => replies.error("ERR", "value is not an integer or out of range"),
        },
        // All others are handled elsewhere.
        _ => commands::unknown([command.name.as_bytes()].into_iter(), &mut replies),
    }
}

fn auth(session: &mut Session, user: &[u8], password: &[u8], replies: &mut Replies<'_>) {
    match authenticate(session, user, password) {
        Ok(()) => replies.simple("OK"),
        Err((code, message)) => replies.error(code, message),
    }
}

/// Authenticates a client by the secret of a token, or returns an error.
///
/// The user is the name of the token; `default`, as clients send it without one, is any name.
fn authenticate(
    session: &mut Session,
    user: &[u8],
    secret: &[u8],
) -> Result<(), (&'static str, &'static str)> {
    let daemon = &session.daemon;
    if !daemon.access.needs_tokens() {
        return Err((
            "ERR",
            "AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ));
    }
    let is_of_user = |principal: &Principal| {
        user == b"default" || principal.name().is_some_and(|name| name.as_bytes() == user)
    };
    let denial = match daemon.access.identify(&session.access, Some(secret), daemon.wall()) {
        Ok(principal) if is_of_user(&principal) => {
            session.access.uses(&principal);
            (session.auth, session.principal) = (AuthState::Trusted, principal);
            return Ok(());
        }
        Ok(_) => AccessDenial::Unknown,
        Err(denial) => denial,
    };
    daemon.access.note(Listener::Resp, session.peer, &denial);
    session.wrong_secrets += 1;
    if session.wrong_secrets >= WRONG_SECRETS_MAX {
        session.auth = AuthState::Leaving;
    }
    Err(("WRONGPASS", "invalid username-password pair or user is disabled."))
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
fn hello<'a>(session: &mut Session, arguments: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    let parsed = parse_hello(session, arguments);
    let mut replies = Replies::new(out, session.version);
    if let Err((code, message)) = parsed {
        replies.error(code, message);
        return;
    }
    replies.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"proto");
    replies.integer(if session.version == Version::Resp3 { 3 } else { 2 });
    replies.bulk(b"id");
    replies.count(session.number);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
}

/// Applies all options, or none of them but `AUTH`.
fn parse_hello<'a>(
    session: &mut Session,
    mut arguments: impl Iterator<Item = &'a [u8]>,
) -> Result<(), (&'static str, &'static str)> {
    let version = match arguments.next().map(integer) {
        None => session.version,
        Some(Some(2)) => Version::Resp2,
        Some(Some(3)) => Version::Resp3,
        Some(Some(_)) => return Err(("NOPROTO", "unsupported protocol version")),
        Some(None) => {
            return Err(("ERR", "Protocol version is not an integer or out of range"));
        }
    };
    let mut name = None;
    while let Some(option) = arguments.next() {
        match (option.to_ascii_uppercase().as_slice(), arguments.next()) {
            (b"AUTH", Some(user)) => match arguments.next() {
                Some(password) => authenticate(session, user, password)?,
                None => return Err(("ERR", "Syntax error in HELLO option 'auth'")),
            },
            (b"SETNAME", Some(wanted)) => name = Some(checked_name(wanted)?),
            _ => return Err(("ERR", "Syntax error in HELLO")),
        }
    }
    if session.auth == AuthState::Unauthenticated {
        return Err((
            "NOAUTH",
            "HELLO must be called with the client already authenticated, otherwise the HELLO \
             <proto> AUTH <user> <pass> option can be used to authenticate the client and select \
             the RESP protocol version at the same time",
        ));
    }
    session.version = version;
    if let Some(name) = name {
        session.name = name;
    }
    Ok(())
}

fn checked_name(name: &[u8]) -> Result<Vec<u8>, (&'static str, &'static str)> {
    if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
        return Err(("ERR", "Client names cannot contain spaces, newlines or special characters."));
    }
    Ok(name.to_vec())
}

/// `CLIENT …`, which client libraries send when they connect.
fn client<'a>(
    session: &mut Session,
    mut arguments: impl ExactSizeIterator<Item = &'a [u8]>,
    replies: &mut Replies<'_>,
) {
    let what = arguments.next().unwrap_or_default();
    match (what.to_ascii_uppercase().as_slice(), arguments.len()) {
        (b"SETNAME", 1) => match checked_name(arguments.next().unwrap_or_default()) {
            Ok(name) => {
                session.name = name;
                replies.simple("OK");
            }
            Err((code, message)) => replies.error(code, message),
        },
        (b"GETNAME", 0) if session.name.is_empty() => replies.null(),
        (b"GETNAME", 0) => replies.bulk(&session.name),
        (b"ID", 0) => replies.count(session.number),
        (b"INFO", 0) => {
            let name = String::from_utf8_lossy(&session.name);
            let version = if session.version == Version::Resp3 { 3 } else { 2 };
            let text = format!("id={} name={name} db=0 resp={version}\n", session.number);
            replies.bulk(text.as_bytes());
        }
        // Accepted without effect: nothing is evicted or tracked, and library names are not stored.
        (b"SETINFO", 2) | (b"NO-EVICT" | b"NO-TOUCH", 1) => replies.simple("OK"),
        (b"SETNAME" | b"GETNAME" | b"ID" | b"INFO" | b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH", _) => {
            let what = String::from_utf8_lossy(what).to_ascii_lowercase();
            replies.error("ERR", &format!("wrong number of arguments for 'client|{what}' command"));
        }
        _ => unknown_subcommand("CLIENT", what, replies),
    }
}

fn info(session: &Session) -> String {
    [
        "# Server".to_owned(),
        format!("redis_version:{REDIS_VERSION}"),
        "redis_mode:standalone".to_owned(),
        format!("tidegate_version:{}", env!("CARGO_PKG_VERSION")),
        format!("process_id:{}", std::process::id()),
        String::new(),
        "# Keys".to_owned(),
        format!("policy_keys:{}", session.daemon.engine.len()),
        format!("cl_throttle_keys:{}", session.daemon.throttles.len()),
        String::new(),
    ]
    .join("\r\n")
}

/// The reported version of Redis: the one that the protocol was tested against.
const REDIS_VERSION: &str = "7.0.0";
/// The longest name of a connection.
const NAME_BYTES_MAX: usize = 256;
/// The number of wrong secrets that closes a connection.
const WRONG_SECRETS_MAX: u32 = 16;
