//! The `[server]` table, for the daemon.

use super::reader::TableReader;
use super::tls;
use crate::policy::pattern::read_network;
use crate::policy::server::{Listen, Secret, ServerSettings, StoreAddress};
use crate::policy::text::{TextError, quoted};

pub(super) fn read(table: &mut TableReader<'_, '_>) -> ServerSettings {
    let mut server = ServerSettings {
        http: table.parsed("http", read_address),
        grpc: table.parsed("grpc", read_address),
        resp: table.parsed("resp", read_address),
        admin: table.parsed("admin", read_address),
        unix: table.text("unix").map(|path| match path {
            "off" => Listen::Off,
            path => Listen::At(path.into()),
        }),
        tokens: table.text("tokens").map(Into::into),
        is_open: table.choice("access") == Some("open"),
        hosts: read_hosts(table),
        tls: table.table("tls").map(|mut it| tls::read(&mut it)).unwrap_or_default(),
        unix_users: table.texts("unix_users"),
        unix_groups: table.texts("unix_groups"),
        unix_user_rate: table.rate("unix_user_rate"),
        unix_rate: table.rate("unix_rate"),
        headers: table.choice("headers").map(Into::into),
        user_header: table.parsed("user_header", read_header_name),
        merge_domains: table.boolean("merge_domains").unwrap_or(false),
        response_metadata: table.boolean("response_metadata").unwrap_or(false),
        hides_keys: table.choice("log_keys") == Some("hashed"),
        max_connections: table.integer("max_connections"),
        max_connections_per_peer: table.integer("max_connections_per_peer"),
        max_received_bytes: table.integer("max_received_bytes"),
        max_unsent_bytes: table.integer("max_unsent_bytes"),
        store: table.parsed("store", read_store).map(StoreAddress),
        store_namespace: table.parsed("store_namespace", read_namespace),
        store_secret: table.text("store_secret").map(Secret::new),
        store_password: table.text("store_password").map(Secret::new),
        store_sentinel_user: table.text("store_sentinel_user").map(Into::into),
        store_sentinel_password: table.text("store_sentinel_password").map(Secret::new),
        store_ca: table.text("store_ca").map(Into::into),
        store_cert: table.text("store_cert").map(Into::into),
        store_key: table.text("store_key").map(Into::into),
        store_deadline: table.duration("store_deadline"),
        store_replicas: table.integer("store_replicas").and_then(|it| u32::try_from(it).ok()),
        trusted_proxies: Vec::new(),
    };
    for value in table.list("trusted_proxies").unwrap_or_default() {
        let Some(text) = table.text_in("trusted_proxies", value) else { continue };
        let network =
            read_network(text).and_then(|network| network.ok_or_else(|| no_network(text)));
        server.trusted_proxies.extend(table.or_report_at(value.span(), network));
    }
    server
}

/// Names of hosts, in lower case and without a port.
fn read_hosts(table: &mut TableReader<'_, '_>) -> Vec<Box<str>> {
    let mut hosts = Vec::new();
    for value in table.list("hosts").unwrap_or_default() {
        let Some(text) = table.text_in("hosts", value) else { continue };
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let host = if text.bytes().all(is_of_name) {
            Ok(text.to_ascii_lowercase().into())
        } else {
            Err(TextError::new(format!("{} is not the name of a host", quoted(text)))
                .hint("write \"limits.example.org\", without a port; addresses need no entry"))
        };
        hosts.extend(table.or_report_at(value.span(), host));
    }
    hosts
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
    let is_folder = text.strip_prefix("file:").is_some_and(|path| !path.is_empty());
    let is_shared = |(kind, rest): (&str, &str)| SHARED.contains(&kind) && !rest.is_empty();
    if text == "memory" || is_folder || text.split_once("://").is_some_and(is_shared) {
        return Ok(text.into());
    }
    // The rest of an address may have a password.
    let kind = text.split_once("://").map_or(text, |(kind, _)| kind);
    Err(TextError::new(format!("{} is not a store", quoted(kind)))
        .hint("write \"memory\", \"file:PATH\" or \"redis://HOST:PORT\""))
}

/// How the addresses of shared servers begin.
const SHARED: [&str; 8] = [
    "redis",
    "rediss",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "redis+unix",
    "unix",
];

/// What the names on a shared server begin with.
fn read_namespace(text: &str) -> Result<Box<str>, TextError> {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    if !text.is_empty() && text.len() <= 64 && text.bytes().all(is_of_name) {
        Ok(text.into())
    } else {
        Err(TextError::new(format!("{} is not a namespace", quoted(text)))
            .hint("write 1 to 64 letters, digits, '.', '_', '-' and ':'"))
    }
}

fn no_network(text: &str) -> TextError {
    TextError::new(format!("{} is not an address or network", quoted(text)))
        .hint("write \"10.0.0.0/8\" or \"192.0.2.7\"")
}
