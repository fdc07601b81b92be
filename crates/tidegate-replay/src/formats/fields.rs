//! The names of fields in JSON and CSV, format by format.

use tidegate::policy::{EncodedSlash, normalized_path};

use super::{LogFormat, present, request_line, valid};
use crate::attributes::{PlannedAttribute, StandardField};
use crate::record::Draft;

/// A field that may have the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its name; in JSON a dot leads into an object.
    pub(crate) name: Box<str>,
    pub(crate) holds: Holds,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The value.
    Value,
    /// An address with a port.
    AddressAndPort,
    /// Addresses, that of the client first: `X-Forwarded-For`.
    Addresses,
    /// A request line.
    RequestLine,
}

/// The fields that may have the value of an attribute, best first.
pub(crate) fn candidates(format: LogFormat, attribute: &PlannedAttribute) -> Vec<Candidate> {
    let field = &attribute.field;
    let own = Candidate { name: field.name.clone(), holds: Holds::Value };
    let usual = field.standard.map(|standard| usual(format, standard)).unwrap_or_default();
    let usual = usual.iter().map(|&(name, holds)| Candidate { name: name.into(), holds });
    if field.is_given || usual.len() == 0 {
        std::iter::once(own).chain(usual).collect()
    } else {
        usual.collect()
    }
}

fn usual(format: LogFormat, field: StandardField) -> &'static [(&'static str, Holds)] {
    match format {
        LogFormat::Caddy => caddy(field),
        LogFormat::Envoy => envoy(field),
        LogFormat::Traefik => traefik(field),
        _ => generic(field),
    }
}

const fn caddy(field: StandardField) -> &'static [(&'static str, Holds)] {
    use Holds::{AddressAndPort, Value};
    match field {
        StandardField::Ip => &[
            ("request.client_ip", Value),
            ("request.remote_ip", Value),
            ("request.remote_addr", AddressAndPort),
        ],
        StandardField::User => &[("user_id", Value)],
        StandardField::Method => &[("request.method", Value)],
        StandardField::Path => &[("request.uri", Value)],
        StandardField::Host => &[("request.host", Value)],
        StandardField::Status => &[("status", Value)],
        StandardField::Bytes => &[("size", Value)],
        StandardField::Agent => &[("request.headers.User-Agent", Value)],
        StandardField::Referer => &[("request.headers.Referer", Value)],
    }
}

/// The names that Istio and Envoy Gateway use; Envoy itself has no default for JSON.
const fn envoy(field: StandardField) -> &'static [(&'static str, Holds)] {
    use Holds::{AddressAndPort, Addresses, Value};
    match field {
        StandardField::Ip => &[
            ("downstream_remote_address", AddressAndPort),
            ("x_forwarded_for", Addresses),
            ("x-forwarded-for", Addresses),
        ],
        StandardField::User => &[("user", Value), ("username", Value)],
        StandardField::Method => &[("method", Value), (":method", Value)],
        StandardField::Path => &[
            ("path", Value),
            ("x-envoy-origin-path", Value),
            ("x-envoy-original-path", Value),
            (":path", Value),
        ],
        StandardField::Host => &[("authority", Value), (":authority", Value)],
        StandardField::Status => &[("response_code", Value)],
        StandardField::Bytes => &[("bytes_sent", Value)],
        StandardField::Agent => &[("user_agent", Value), ("user-agent", Value)],
        StandardField::Referer => &[("referer", Value)],
    }
}

const fn traefik(field: StandardField) -> &'static [(&'static str, Holds)] {
    use Holds::{AddressAndPort, Value};
    match field {
        StandardField::Ip => &[("ClientHost", Value), ("ClientAddr", AddressAndPort)],
        StandardField::User => &[("ClientUsername", Value)],
        StandardField::Method => &[("RequestMethod", Value)],
        StandardField::Path => &[("RequestPath", Value)],
        StandardField::Host => &[("RequestHost", Value), ("RequestAddr", Value)],
        StandardField::Status => &[("DownstreamStatus", Value)],
        StandardField::Bytes => &[("DownstreamContentSize", Value)],
        StandardField::Agent => &[("request_User-Agent", Value)],
        StandardField::Referer => &[("request_Referer", Value)],
    }
}

const fn generic(field: StandardField) -> &'static [(&'static str, Holds)] {
    use Holds::{AddressAndPort, Addresses, RequestLine, Value};
    match field {
        StandardField::Ip => &[
            ("ip", Value),
            ("remote_addr", Value),
            ("client_ip", Value),
            ("remote_ip", Value),
            ("clientip", Value),
            ("clientIp", Value),
            ("source_ip", Value),
            ("client.ip", Value),
            ("source.ip", Value),
            ("downstream_remote_address", AddressAndPort),
            ("x_forwarded_for", Addresses),
        ],
        StandardField::User => {
            &[("user", Value), ("remote_user", Value), ("username", Value), ("user_id", Value)]
        }
        StandardField::Method => &[
            ("method", Value),
            ("request_method", Value),
            ("http_method", Value),
            ("verb", Value),
            ("request", RequestLine),
        ],
        StandardField::Path => &[
            ("path", Value),
            ("uri", Value),
            ("request_uri", Value),
            ("url", Value),
            ("request_path", Value),
            ("request", RequestLine),
        ],
        StandardField::Host => {
            &[("host", Value), ("http_host", Value), ("server_name", Value), ("authority", Value)]
        }
        StandardField::Status => {
            &[("status", Value), ("status_code", Value), ("response_code", Value), ("code", Value)]
        }
        StandardField::Bytes => &[
            ("bytes", Value),
            ("body_bytes_sent", Value),
            ("bytes_sent", Value),
            ("size", Value),
            ("response_size", Value),
        ],
        StandardField::Agent => &[
            ("agent", Value),
            ("user_agent", Value),
            ("http_user_agent", Value),
            ("userAgent", Value),
        ],
        StandardField::Referer => {
            &[("referer", Value), ("http_referer", Value), ("referrer", Value)]
        }
    }
}

/// The fields that may have the time, best first.
pub(crate) fn time_candidates(format: LogFormat) -> &'static [&'static str] {
    match format {
        LogFormat::Caddy => &["ts"],
        LogFormat::Envoy => &["start_time", "@timestamp"],
        LogFormat::Traefik => &["StartUTC", "StartLocal", "time"],
        _ => &[
            "time",
            "timestamp",
            "ts",
            "@timestamp",
            "datetime",
            "date",
            "time_iso8601",
            "time_local",
            "start_time",
            "StartUTC",
            "msec",
        ],
    }
}

/// Adds a value to a draft as the attribute that it is for.
pub(crate) fn push(
    attribute: &PlannedAttribute,
    encoded_slash: EncodedSlash,
    found: Option<(Holds, &str)>,
    draft: &mut Draft,
) {
    let value = found.and_then(|(holds, text)| {
        let text = text.as_bytes();
        match holds {
            Holds::Value => present(text),
            Holds::AddressAndPort => present(without_port(text)),
            Holds::Addresses => present(first_of_list(text)),
            Holds::RequestLine => {
                let is_method = attribute.field.standard == Some(StandardField::Method);
                request_line(text).map(|(method, path)| if is_method { method } else { path })
            }
        }
    });
    match value.and_then(|value| valid(attribute.field.standard, value)) {
        Some(path) if attribute.is_path => {
            draft.push(normalized_path(path, encoded_slash).ok().as_deref());
        }
        value => draft.push_bytes(value),
    }
}

/// `192.0.2.1:443` and `[2001:db8::1]:443` without the port.
fn without_port(address: &[u8]) -> &[u8] {
    if let Some(rest) = address.strip_prefix(b"[") {
        return memchr::memchr(b']', rest).map_or(address, |end| &rest[..end]);
    }
    match (memchr::memchr(b':', address), memchr::memrchr(b':', address)) {
        (Some(first), Some(last)) if first == last => &address[..first],
        _ => address,
    }
}

fn first_of_list(addresses: &[u8]) -> &[u8] {
    let end = memchr::memchr(b',', addresses).unwrap_or(addresses.len());
    addresses[..end].trim_ascii()
}
