//! `tidegate token`: creates, lists and revokes the tokens of a file.

use std::fmt::Write as _;
use std::io;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use tidegate::Timestamp;
use tidegate::policy::{Credential, Scope, Token};

use crate::args::{Attribute, CredentialArgs, Format, TokenArgs, TokenCommand};
use crate::format;
use crate::io::{Exit, Io};
use file::{LockedFile, TokenFileError};

mod file;

pub(crate) fn run(args: &TokenArgs, io: &mut Io<'_>) -> io::Result<Exit> {
    let done = match &args.command {
        TokenCommand::List => list(args, io),
        TokenCommand::Revoke { name, sha256 } => revoke(args, name, sha256.as_deref(), io),
        TokenCommand::New { .. } => create(args, io),
    };
    done.or_else(|error| match error {
        CommandError::Output(error) => Err(error),
        CommandError::File(error) => {
            writeln!(io.stderr, "{error}")?;
            Ok(Exit::Error)
        }
    })
}

/// Why a command did not succeed.
enum CommandError {
    Output(io::Error),
    File(TokenFileError),
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<TokenFileError> for CommandError {
    fn from(error: TokenFileError) -> Self {
        Self::File(error)
    }
}

fn create(args: &TokenArgs, io: &mut Io<'_>) -> Result<Exit, CommandError> {
    let TokenCommand::New { name, credential, .. } = &args.command else {
        return Ok(Exit::Error);
    };
    let mut file = LockedFile::open_or_create(&args.file)?;
    let before = file.parse()?;
    let secret = match credential.is_none() {
        true => Some(new_secret()?),
        false => None,
    };
    let entry = entry(&args.command, secret.as_deref());
    let mut text = file.text.clone();
    if !text.is_empty() && !text.ends_with("\n\n") {
        text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
    }
    text.push_str(&entry);
    // The new entry is checked in a file of its own first, so that positions make sense.
    file::parse("the new token", &entry)?;
    file.replace(text)?;
    let is_first = !before.tokens().iter().any(|token| token.name() == name);
    match (args.format, &secret) {
        (Format::Json, _) => {
            let sha256 = secret.as_ref().map(|secret| hex(&sha256_of(secret)));
            writeln!(io.stdout, "{}", json!({ "name": name, "secret": secret, "sha256": sha256 }))?;
        }
        (Format::Text, Some(secret)) => writeln!(io.stdout, "{secret}")?,
        (Format::Text, None) => {}
    }
    let path = format::visible(&args.file.to_string_lossy());
    let what = if is_first { "the token" } else { "another token" };
    writeln!(io.stderr, "added {what} {name} to {path}")?;
    if secret.is_some() {
        writeln!(io.stderr, "  = note: the secret is not stored; it cannot be printed again")?;
    }
    Ok(Exit::Success)
}

impl CredentialArgs {
    const fn is_none(&self) -> bool {
        self.subject.is_none() && self.user.is_none() && self.group.is_none()
    }
}

/// The text of a new entry.
fn entry(command: &TokenCommand, secret: Option<&str>) -> String {
    let TokenCommand::New { name, scopes, domains, attributes, limit, until, credential } = command
    else {
        return String::new();
    };
    let mut text = format!("[[token]]\nname   = {}\n", quoted(name));
    let mut add = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<6} = {value}");
    };
    if let Some(secret) = secret {
        add("sha256", quoted(&hex(&sha256_of(secret))));
    }
    let CredentialArgs { subject, user, group } = credential;
    for (name, value) in [("subject", subject), ("user", user), ("group", group)] {
        if let Some(value) = value {
            add(name, quoted(value));
        }
    }
    add("scopes", list_of(scopes.iter().map(|scope| scope.name())));
    if !domains.is_empty() {
        add("domains", list_of(domains.iter().map(|domain| &**domain)));
    }
    if !attributes.is_empty() {
        add("attributes", table_of(attributes));
    }
    if let Some(limit) = limit {
        add("limit", quoted(limit));
    }
    if let Some(until) = until {
        add("until", until.to_string());
    }
    text
}

fn list(args: &TokenArgs, io: &mut Io<'_>) -> Result<Exit, CommandError> {
    let file = LockedFile::open(&args.file)?.parse()?;
    if args.format == Format::Json {
        let tokens: Vec<_> = file.tokens().iter().map(to_json).collect();
        writeln!(io.stdout, "{}", json!({ "tokens": tokens }))?;
        return Ok(Exit::Success);
    }
    let width = file.tokens().iter().map(|token| token.name().len()).max().unwrap_or(0);
    for token in file.tokens() {
        let (kind, value) = credential(token, SHOWN_DIGITS);
        let scopes: Vec<_> = token.scopes().iter().map(Scope::name).collect();
        let mut line = format!("{:<width$}  {kind} {value}  {}", token.name(), scopes.join(","));
        if token.domains().len() > 0 {
            let domains: Vec<_> = token.domains().map(format::visible).collect();
            let _ = write!(line, "  domains {}", domains.join(","));
        }
        for attribute in token.attributes() {
            let values: Vec<_> = attribute.values().map(format::visible).collect();
            let _ = write!(line, "  {}={}", format::visible(attribute.name()), values.join("|"));
        }
        if let Some(limit) = token.limit() {
            let _ = write!(line, "  limit {}", limit.rate());
        }
        if let Some(until) = until(token) {
            let _ = write!(line, "  until {until}");
        }
        writeln!(io.stdout, "{line}")?;
    }
    Ok(Exit::Success)
}

fn revoke(
    args: &TokenArgs,
    name: &str,
    sha256: Option<&str>,
    io: &mut Io<'_>,
) -> Result<Exit, CommandError> {
    let mut file = LockedFile::open(&args.file)?;
    let parsed = file.parse()?;
    let is_meant = |token: &Token| {
        let digits = credential(token, usize::MAX);
        let has_digits = |wanted: &str| {
            digits.0 == "sha256" && digits.1.starts_with(&wanted.to_ascii_lowercase())
        };
        token.name() == name && sha256.is_none_or(has_digits)
    };
    let revoked: Vec<_> = parsed.tokens().iter().map(is_meant).collect();
    let count = revoked.iter().filter(|is_meant| **is_meant).count();
    let path = format::visible(&args.file.to_string_lossy());
    if count == 0 {
        writeln!(io.stderr, "error: {path} has no such token {}", format::visible(name))?;
        writeln!(io.stderr, "  = hint: `tidegate token list` prints those that there are")?;
        return Ok(Exit::Failure);
    }
    if sha256.is_some() && count > 1 {
        writeln!(io.stderr, "error: {count} tokens begin with these digits; give more of them")?;
        return Ok(Exit::Failure);
    }
    let starts: Vec<_> = parsed.tokens().iter().map(|token| token.span().start).collect();
    let text = file::without(&file.text, &starts, &revoked);
    let kept: Vec<_> = parsed.tokens().iter().zip(&revoked).filter(|(_, it)| !**it).collect();
    let is_as_wanted = file::parse("the file without it", &text)
        .is_ok_and(|after| after.tokens().iter().eq(kept.iter().map(|(token, _)| *token)));
    if !is_as_wanted {
        let why = format!("{path} has tokens in a form that this command cannot edit");
        return Err(TokenFileError::new(format!(
            "{why}\n  = hint: remove the entry by hand, or write each token as a [[token]] table"
        ))
        .into());
    }
    file.replace(text)?;
    match args.format {
        Format::Json => writeln!(io.stdout, "{}", json!({ "revoked": count }))?,
        Format::Text => {
            let s = if count == 1 { "" } else { "s" };
            writeln!(io.stderr, "revoked {count} token{s} {name} in {path}")?;
        }
    }
    Ok(Exit::Success)
}

fn to_json(token: &Token) -> Value {
    let (kind, value) = credential(token, usize::MAX);
    let mut json = json!({
        "name": token.name(),
        kind: value,
        "scopes": token.scopes().iter().map(Scope::name).collect::<Vec<_>>(),
    });
    if token.domains().len() > 0 {
        json["domains"] = token.domains().collect();
    }
    for attribute in token.attributes() {
        json["attributes"][attribute.name()] = attribute.values().collect();
    }
    if let Some(limit) = token.limit() {
        json["limit"] = json!({ "rate": limit.rate().to_string(), "burst": limit.capacity() });
    }
    if let Some(until) = until(token) {
        json["until"] = json!(until);
    }
    json
}

/// The kind of a token's credential and its text, with so many digits of a digest.
fn credential(token: &Token, digits: usize) -> (&'static str, String) {
    match token.credential() {
        Credential::Sha256(digest) => ("sha256", hex(digest).chars().take(digits).collect()),
        Credential::Subject(subject) => ("subject", format::visible(subject)),
        Credential::User(user) => ("user", format::visible(user)),
        Credential::Group(group) => ("group", format::visible(group)),
    }
}

fn until(token: &Token) -> Option<String> {
    token.until_ns().map(|ns| format::exact_time(Timestamp::from_nanos(ns)))
}

/// A secret of 256 random bits.
fn new_secret() -> Result<String, TokenFileError> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| TokenFileError::new("the system gives no random numbers"))?;
    Ok(format!("tg_{}", base64url(&bytes)))
}

/// Bytes in the alphabet of base64 for URLs, without padding.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..=chunk.len() {
            let letter = bits >> (18 - 6 * index) & 63;
            text.push(char::from(ALPHABET[letter as usize]));
        }
    }
    text
}

fn sha256_of(secret: &str) -> Vec<u8> {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text of TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list_of<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    format!("[{}]", texts.map(quoted).collect::<Vec<_>>().join(", "))
}

/// Attributes, each with its value, or its values if it appears more than once.
fn table_of(attributes: &[Attribute]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for Attribute { name, .. } in attributes {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let pairs = names.into_iter().map(|name| {
        let values = attributes.iter().filter(|it| it.name == name).map(|it| &*it.value);
        format!("{} = {}", quoted(name), list_of(values))
    });
    format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}

/// The digits of a digest that a list shows.
const SHOWN_DIGITS: usize = 12;

#[cfg(test)]
mod tests {
    use super::{base64url, new_secret};

    #[test]
    fn base64_is_that_of_urls() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (b"\xfb\xff", "-_8")]
        {
            assert_eq!(base64url(bytes), text);
        }
        let (one, other) = (new_secret().unwrap(), new_secret().unwrap());
        assert_eq!(one.len(), 46);
        assert_ne!(one, other);
    }
}
