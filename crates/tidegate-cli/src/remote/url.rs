//! The URL of a daemon.

use std::fmt;

use http::Uri;

use crate::call_error::CallError;
use crate::format;

/// The URL of a daemon, in its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DaemonUrl {
    pub(super) scheme: Scheme,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The host and the port as they were written.
    pub(super) authority: String,
    /// The path before `/admin/v1/`, where a proxy needs one; without a slash at its end.
    pub(super) prefix: String,
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl DaemonUrl {
    pub(super) fn parse(text: &str) -> Result<Self, CallError> {
        let shown = format::visible(text);
        let wrong = |why: &str| {
            CallError::new(format!("`{shown}` is not the URL of a daemon: {why}"))
                .hint("write it as https://HOST:PORT, with the port of its admin listener")
        };
        let (scheme, _) =
            text.split_once("://").ok_or_else(|| wrong("it does not begin with https://"))?;
        let scheme = match &*scheme.to_ascii_lowercase() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return Err(wrong("it does not begin with https://")),
        };
        if text.contains('#') {
            return Err(wrong("it has a fragment"));
        }
        let uri: Uri = text.parse().map_err(|_| wrong("it cannot be parsed"))?;
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            // Not shown: it may be a secret.
            let why = "a URL with a user or password is not accepted";
            return Err(CallError::new(why).hint("give the secret of a token with --token-file"));
        }
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let has_port = authority.as_str().len() > host.len();
        let port = match (authority.port_u16(), scheme) {
            (Some(0), _) => return Err(wrong("port 0 cannot be connected to")),
            (Some(port), _) => port,
            (None, _) if has_port => return Err(wrong("its port is not a number up to 65535")),
            (None, Scheme::Https) => 443,
            (None, Scheme::Http) => 80,
        };
        if bare.is_empty() {
            return Err(wrong("it has no host"));
        }
        Ok(Self {
            scheme,
            host: bare.into(),
            port,
            authority: authority.as_str().into(),
            prefix: uri.path().trim_end_matches('/').into(),
        })
    }
}

impl fmt::Display for DaemonUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::{DaemonUrl, Scheme};

    #[test]
    fn a_url_has_a_scheme_a_host_and_a_port() {
        for (text, scheme, host, port, prefix) in [
            ("https://limits.example:9090", Scheme::Https, "limits.example", 9090, ""),
            ("https://limits.example/", Scheme::Https, "limits.example", 443, ""),
            ("HTTP://127.0.0.1:9090/", Scheme::Http, "127.0.0.1", 9090, ""),
            ("http://localhost", Scheme::Http, "localhost", 80, ""),
            ("https://[::1]:1/a/b/", Scheme::Https, "::1", 1, "/a/b"),
        ] {
            let url = DaemonUrl::parse(text).unwrap();
            assert_eq!((url.scheme, &*url.host, url.port), (scheme, host, port), "{text}");
            assert_eq!(url.prefix, prefix, "{text}");
        }
    }

    #[test]
    fn other_urls_are_rejected_with_a_hint() {
        for (text, why) in [
            ("", "https://"),
            ("localhost:9090", "https://"),
            ("unix:///run/s", "https://"),
            ("https://", "parsed"),
            ("https://:9090", ""),
            ("https://a:99999", "65535"),
            ("https://a:x", ""),
            ("https://a:0", "port 0"),
            ("https://a/?x=1", "query"),
            ("https://a/#x", "fragment"),
            ("https://a b", "parsed"),
        ] {
            let error = DaemonUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("hint"), "{text}: {error}");
        }
        let error = DaemonUrl::parse("https://me:hush@a").unwrap_err().to_string();
        assert!(error.contains("--token-file") && !error.contains("hush"), "{error}");
    }
}
