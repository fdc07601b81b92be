//! Which web pages may connect.

use axum::http::{HeaderMap, header};

/// The origins of web pages that may connect. Clients that are no browsers send no origin.
///
/// An entry is an origin such as `https://app.example:8443`, or a host such as `app.example`, which
/// means any scheme and port; `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    patterns: Vec<String>,
}

impl AllowedOrigins {
    /// The origins of a list; `None` if an entry is not one.
    #[must_use]
    pub fn from_list(text: &str) -> Option<Self> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let patterns: Vec<_> = entries.map(str::to_ascii_lowercase).collect();
        patterns.iter().all(|pattern| is_pattern(pattern)).then_some(Self { patterns })
    }

    /// Whether a request may connect: it has no origin, or that of the relay itself, or a listed
    /// one.
    pub(crate) fn allow(&self, headers: &HeaderMap, relay_host: &str) -> bool {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (None, _) => return true,
            (Some(origin), None) => origin,
            (Some(_), Some(_)) => return false,
        };
        let Ok(origin) = origin.to_str() else { return false };
        let origin = origin.to_ascii_lowercase();
        let host = host_of(&origin);
        let is_own =
            host.is_some_and(|host| host == without_port(&relay_host.to_ascii_lowercase()));
        is_own || self.patterns.iter().any(|pattern| is_match(pattern, &origin, host))
    }
}

fn is_match(pattern: &str, origin: &str, host: Option<&str>) -> bool {
    match pattern.contains("://") {
        _ if pattern == "*" => true,
        true => glob(pattern.as_bytes(), origin.as_bytes()),
        false => host.is_some_and(|host| glob(pattern.as_bytes(), host.as_bytes())),
    }
}

/// Whether a text matches a pattern in which `*` stands for any text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut retry) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            // The last `*` takes one more byte.
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    (p, t) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

fn is_pattern(pattern: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"@\\\"'<>?#".contains(&byte);
    let host = pattern.split_once("://").map_or(pattern, |(_, host)| host);
    pattern.len() <= 255
        && pattern.bytes().all(is_allowed)
        && !host.is_empty()
        && !host.contains('/')
        && (pattern.contains("://") || without_port(host) == host)
}

/// The host of an origin, without its port.
fn host_of(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, host)| without_port(host))
}

fn without_port(host: &str) -> &str {
    let end = host.rfind(']').map_or(0, |end| end + 1);
    host[end..].find(':').map_or(host, |colon| &host[..end + colon])
}

#[cfg(test)]
mod tests;
