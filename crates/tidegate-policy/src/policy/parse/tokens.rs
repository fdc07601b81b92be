//! Parses token files.

use std::collections::HashMap;
use std::ops::Range;

use tidegate_core::Bucket;
use toml::de::DeValue;

use super::diagnostic_sink::DiagnosticSink;
use super::reader::TableReader;
use super::rule::read_until;
use super::{BoundedText, read_toml, readable, render, tables};
use crate::policy::diagnostic::{PolicyErrors, RelatedSpan, Source};
use crate::policy::fields::{TOKEN, TOKENS};
use crate::policy::text::{TextError, quoted};
use crate::policy::tokens::{Credential, RequiredAttribute, Scope, Scopes, Token, TokenFile};

/// The tokens in a file, or all errors in it.
pub(in crate::policy) fn parse(file: &str, bytes: &[u8]) -> Result<TokenFile, PolicyErrors> {
    let BoundedText { text, skipped, shape } = readable(file, bytes)?;
    let mut report = DiagnosticSink::default();
    let table = read_toml(text, &shape, &mut report);
    let mut all = TableReader::new(&mut report, table.get_ref(), 0..0, &TOKENS);
    let spans = tables(&mut all, "token");
    if spans.len() > MOST_TOKENS {
        let span = spans[MOST_TOKENS].span.clone();
        report.error(span, format!("the file has more than {MOST_TOKENS} tokens"));
    }
    let mut tokens = Vec::new();
    for it in spans.iter().take(MOST_TOKENS) {
        let mut reader = TableReader::new(&mut report, it.table, it.span.clone(), &TOKEN);
        tokens.extend(read(&mut reader));
    }
    compare(&tokens, &mut report);
    if report.has_errors() {
        let (diagnostics, left_out) = render(&Source::new(file, text, skipped), report);
        return Err(PolicyErrors::new(diagnostics, left_out));
    }
    Ok(TokenFile { tokens })
}

fn read(table: &mut TableReader<'_, '_>) -> Option<Token> {
    let errors_before = table.report.errors();
    let name = table.parsed("name", read_name);
    let credential = read_credential(table);
    let scopes = read_scopes(table);
    let domains = read_texts(table, "domains");
    let attributes = read_attributes(table);
    let limit = read_limit(table);
    let until_ns = read_until(table);
    if table.report.errors() > errors_before {
        return None;
    }
    Some(Token {
        name: name?,
        credential: credential?,
        scopes,
        domains,
        attributes,
        limit,
        until_ns,
        span: table.span(),
    })
}

/// A name, which goes into logs and headers as it is.
fn read_name(text: &str) -> Result<Box<str>, TextError> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.len() <= 64 && text.bytes().all(is_of_name) {
        Ok(text.into())
    } else {
        Err(TextError::new(format!("{} is not a name of a token", quoted(text)))
            .hint("write 1 to 64 letters, digits, '.', '_' and '-'"))
    }
}

fn read_credential(table: &mut TableReader<'_, '_>) -> Option<Credential> {
    let kinds = ["sha256", "subject", "user", "group"];
    let given: Vec<_> = kinds.into_iter().filter(|kind| table.value(kind).is_some()).collect();
    match *given {
        ["sha256"] => table.parsed("sha256", read_sha256).map(Credential::Sha256),
        ["subject"] => table.text("subject").map(|text| Credential::Subject(text.into())),
        ["user"] => table.parsed("user", |text| read_id(text, "uid:")).map(Credential::User),
        ["group"] => table.parsed("group", |text| read_id(text, "gid:")).map(Credential::Group),
        [] => {
            table.report.error(table.span(), "the token has no credential").hint = Some(
                "add `sha256`, `subject`, `user` or `group`; `tidegate token new` makes a secret"
                    .into(),
            );
            None
        }
        [.., last] => {
            let hint = "write a [[token]] with the same name for each";
            table.refuse(last, "the token has more than one credential", hint);
            None
        }
    }
}

/// The name of a user or group, or its number after a prefix.
fn read_id(text: &str, prefix: &str) -> Result<Box<str>, TextError> {
    match text.strip_prefix(prefix) {
        Some(number) if number.parse::<u32>().is_err() => {
            Err(TextError::new(format!("{} is not {prefix} and a number", quoted(text)))
                .hint(format!("write a name, or {prefix}1000")))
        }
        _ => Ok(text.into()),
    }
}

fn read_sha256(text: &str) -> Result<[u8; 32], TextError> {
    let wrong = || {
        TextError::new("`sha256` is not 64 hexadecimal digits")
            .hint("`printf %s SECRET | sha256sum` prints them")
    };
    let mut digest = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    if digest == EMPTY_DIGEST {
        return Err(TextError::new("`sha256` is that of an empty secret")
            .hint("the secret was not set when its SHA-256 was made"));
    }
    Ok(digest)
}

fn read_scopes(table: &mut TableReader<'_, '_>) -> Scopes {
    let mut scopes = Vec::new();
    for value in table.list("scopes").unwrap_or_default() {
        let Some(text) = table.text_in("scopes", value) else { continue };
        let scope = text.parse::<Scope>().map_err(|error| {
            TextError::new(format!("{} is not a scope", quoted(text))).hint(error.to_string())
        });
        scopes.extend(table.or_report_at(value.span(), scope));
    }
    let scopes: Scopes = scopes.into_iter().collect();
    if scopes.is_empty() && matches!(table.value("scopes"), Some(it) if is_empty_list(it.get_ref()))
    {
        table.refuse("scopes", "the token may do nothing", "add a scope");
    }
    scopes
}

fn is_empty_list(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Array(list) if list.is_empty())
}

/// A list of texts, which may be absent but not empty: an empty one could be meant as none or as all.
fn read_texts(table: &mut TableReader<'_, '_>, field: &'static str) -> Vec<Box<str>> {
    if matches!(table.value(field), Some(it) if is_empty_list(it.get_ref())) {
        let hint = format!("remove it to allow all {field}");
        table.refuse(field, format!("`{field}` is empty"), hint);
    }
    table.texts(field)
}

fn read_attributes(table: &mut TableReader<'_, '_>) -> Vec<RequiredAttribute> {
    let Some(value) = table.value("attributes") else { return Vec::new() };
    let DeValue::Table(attributes) = value.get_ref() else {
        table.wrong_kind::<()>("attributes", value.span(), "a table", value.get_ref());
        return Vec::new();
    };
    if attributes.is_empty() {
        table.refuse("attributes", "`attributes` is empty", "remove it to allow all requests");
    }
    let mut required = Vec::new();
    for (name, value) in attributes.iter() {
        let values = match value.get_ref() {
            DeValue::Array(list) if !list.is_empty() => {
                list.iter().filter_map(|it| table.text_in(name.get_ref(), it)).collect()
            }
            _ => table.text_in(name.get_ref(), value).into_iter().collect::<Vec<_>>(),
        };
        let values = values.into_iter().map(Into::into).collect();
        required.push(RequiredAttribute { name: (&**name.get_ref()).into(), values });
    }
    required
}

/// A rate such as `"100/s"`, or a table with a rate and a burst.
fn read_limit(table: &mut TableReader<'_, '_>) -> Option<Bucket> {
    let span = table.span_of("limit");
    let (rate, burst) = match table.value("limit")?.get_ref() {
        DeValue::String(_) => (table.rate("limit")?, None),
        _ => {
            let mut limit = table.table("limit")?;
            (limit.rate("rate")?, limit.integer("burst"))
        }
    };
    let bucket = Bucket::try_new(rate, burst.unwrap_or(rate.count()));
    table.or_report_at(span, bucket.map_err(|error| TextError::new(error.to_string())))
}

/// Rejects tokens that contradict each other.
fn compare(tokens: &[Token], report: &mut DiagnosticSink) {
    let mut credentials: HashMap<&Credential, &Token> = HashMap::new();
    let mut names: HashMap<&str, &Token> = HashMap::new();
    for token in tokens {
        if let Some(other) = credentials.insert(&token.credential, token) {
            let message = "another token has the same credential";
            report_pair(report, &token.span, &other.span, message);
        }
        if let Some(other) = names.insert(&token.name, token)
            && other.limit != token.limit
        {
            let message = format!(
                "the tokens {} have different limits; what they may do together is one limit",
                quoted(&token.name)
            );
            report_pair(report, &token.span, &other.span, &message);
        }
    }
}

fn report_pair(
    report: &mut DiagnosticSink,
    span: &Range<usize>,
    other: &Range<usize>,
    message: &str,
) {
    let note = RelatedSpan { span: other.clone(), text: "the other one is here" };
    report.error(span.clone(), message).note = Some(note);
}

/// The SHA-256 of nothing.
const EMPTY_DIGEST: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];
/// The most tokens in a file.
const MOST_TOKENS: usize = 10_000;
