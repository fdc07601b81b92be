//! The `[server]` table.

use tidegate_table::table::WhenFull;
use toml::de::DeValue;

use super::reader::TableReader;
use crate::policy::pattern::read_network;
use crate::policy::server::{Listen, Secret, ServerConfig, Unmatched};
use crate::policy::text::{TextError, quoted};
use crate::request_path::EncodedSlash;

pub(super) fn read(table: &mut TableReader<'_, '_, '_>) -> ServerConfig {
    let mut server = ServerConfig {
        http: table.parsed("http", read_address),
        grpc: table.parsed("grpc", read_address),
        resp: table.parsed("resp", read_address),
        admin: table.parsed("admin", read_address),
        unix: table.text("unix").map(|path| match path {
            "off" => Listen::Off,
            path => Listen::At(path.into()),
        }),
        admin_token: table.text("admin_token").map(|token| Secret(token.into())),
        admin_read_token: table.text("admin_read_token").map(|token| Secret(token.into())),
        resp_password: table.text("resp_password").map(|password| Secret(password.into())),
        unix_users: read_names(table, "unix_users"),
        unix_groups: read_names(table, "unix_groups"),
        unix_user_rate: table.rate("unix_user_rate"),
        unix_rate: table.rate("unix_rate"),
        headers: table.choice("headers").map(Into::into),
        user_header: table.parsed("user_header", read_header_name),
        encoded_slash: match table.choice("encoded_slash") {
            Some("keep") => EncodedSlash::Keep,
            _ => EncodedSlash::Decode,
        },
        merge_domains: table.boolean("merge_domains").unwrap_or(false),
        quota_mode: table.boolean("quota_mode").unwrap_or(false),
        response_metadata: table.boolean("response_metadata").unwrap_or(false),
        hides_keys: table.choice("log_keys") == Some("hashed"),
        max_connections: table.integer("max_connections"),
        max_connections_per_peer: table.integer("max_connections_per_peer"),
        max_received_bytes: table.integer("max_received_bytes"),
        max_unsent_bytes: table.integer("max_unsent_bytes"),
        store: table.parsed("store", read_store),
        ..ServerConfig::default()
    };
    for value in table.list("trusted_proxies").unwrap_or_default() {
        let Some(text) = table.text_in("trusted_proxies", value) else { continue };
        let network =
            read_network(text).and_then(|network| network.ok_or_else(|| no_network(text)));
        server.trusted_proxies.extend(table.or_report_at(value.span(), network));
    }
    if let Some(max_keys) = table.integer("max_keys") {
        server.max_keys = max_keys;
    }
    if let Some(max_holds) = table.integer("max_holds") {
        server.max_holds = max_holds;
    }
    if let Some(max_idempotency_keys) = table.integer("max_idempotency_keys") {
        server.max_idempotency_keys = max_idempotency_keys;
    }
    server.when_full = match table.choice("when_full") {
        Some("deny") => WhenFull::Deny,
        Some("allow") => WhenFull::Allow,
        _ => WhenFull::Share,
    };
    if table.choice("unmatched") == Some("deny") {
        server.unmatched = Unmatched::Deny;
    }
    if let Some(enforce_ppm) = read_enforce(table) {
        server.enforce_ppm = enforce_ppm;
    }
    server
}

fn read_names(table: &mut TableReader<'_, '_, '_>, field: &'static str) -> Vec<Box<str>> {
    let names = table.list(field).unwrap_or_default();
    names.iter().filter_map(|name| table.text_in(field, name).map(Into::into)).collect()
}

/// The name of an HTTP header, in lower case.
fn read_header_name(text: &str) -> Result<Box<str>, TextError> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if text.bytes().all(is_of_name) {
        Ok(text.to_ascii_lowercase().into())
    } else {
        Err(TextError::new(format!("{} is not a header name", quoted(text)))
            .hint("write \"x-user\""))
    }
}

fn read_address(text: &str) -> Result<Listen, TextError> {
    if text == "off" {
        return Ok(Listen::Off);
    }
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(' '));
    let port = port.and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(_) => Ok(Listen::At(text.into())),
        None => Err(TextError::new(format!("{} is not an address with a port", quoted(text)))
            .hint("write \"127.0.0.1:8080\", \"[::1]:8080\" or \"off\"")),
    }
}

fn read_store(text: &str) -> Result<Box<str>, TextError> {
    let is_known = text == "memory"
        || ["file:", "redis://", "rediss://"]
            .iter()
            .any(|kind| text.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()));
    if is_known {
        Ok(text.into())
    } else {
        Err(TextError::new(format!("{} is not a store", quoted(text)))
            .hint("write \"memory\" or \"file:PATH\""))
    }
}

fn no_network(text: &str) -> TextError {
    TextError::new(format!("{} is not an address or network", quoted(text)))
        .hint("write \"10.0.0.0/8\" or \"192.0.2.7\"")
}

/// Millionths of the keys.
fn read_enforce(table: &mut TableReader<'_, '_, '_>) -> Option<u32> {
    let value = table.value("enforce")?;
    let text = match value.get_ref() {
        DeValue::Float(float) => float.as_str(),
        DeValue::Integer(integer) => integer.as_str(),
        _ => {
            return table.choice("enforce").map(|word| match word {
                "all" => ServerConfig::ENFORCE_ALL_PPM,
                _ => 0,
            });
        }
    };
    let problem = || {
        TextError::new(format!("{} is not a share of the keys", quoted(text)))
            .hint("write \"all\", \"none\", or a fraction from 0.0 to 1.0 with up to six decimals")
    };
    table.or_report("enforce", millionths(text).ok_or_else(problem))
}

/// A decimal fraction from 0 to 1, exactly, in millionths.
fn millionths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = whole.strip_prefix('+').unwrap_or(whole);
    let fraction = fraction.trim_end_matches('0');
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) || fraction.len() > 6 || whole.len() > 1 {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let fraction: u32 = format!("{fraction:0<6}").parse().ok()?;
    Some(whole * ServerConfig::ENFORCE_ALL_PPM + fraction)
        .filter(|ppm| *ppm <= ServerConfig::ENFORCE_ALL_PPM)
}
