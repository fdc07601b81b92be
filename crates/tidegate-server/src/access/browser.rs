//! Requests that a page in a browser may have sent, unknown to its user.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

use super::AccessDenial;

/// Rejects a `Host` that may have been made to resolve to this machine: a name that is neither
/// localhost nor one of `hosts`. A page can only send the name that it was loaded from.
pub(crate) fn check_host<'h>(
    headers: &HeaderMap,
    hosts: impl Iterator<Item = &'h str>,
) -> Result<(), AccessDenial> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        // Every browser sends one.
        (None, _) => Ok(()),
        (Some(host), None) => match host.to_str() {
            Ok(host) if is_known(host, hosts) => Ok(()),
            _ => Err(AccessDenial::Host),
        },
        (Some(_), Some(_)) => Err(AccessDenial::Host),
    }
}

/// Whether a request has to name the page that it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginRule {
    /// It changes something, and a browser adds the credentials by itself.
    Needed,
    /// Programs other than browsers send none.
    IfSent,
}

/// Rejects requests of pages that this listener has not served: a browser says where a page is from,
/// and no page can change that.
pub(crate) fn check_origin(
    headers: &HeaderMap,
    is_tls: bool,
    rule: OriginRule,
) -> Result<(), AccessDenial> {
    let text = |name: &str| -> Result<Option<&str>, AccessDenial> {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => match value.to_str() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(AccessDenial::OtherOrigin),
            },
            (Some(_), Some(_)) => Err(AccessDenial::OtherOrigin),
        }
    };
    if matches!(text(SEC_FETCH_SITE)?, Some(site) if site != "same-origin" && site != "none") {
        return Err(AccessDenial::OtherOrigin);
    }
    let Some(origin) = text(ORIGIN.as_str())? else {
        return match rule {
            OriginRule::Needed => Err(AccessDenial::OtherOrigin),
            OriginRule::IfSent => Ok(()),
        };
    };
    let host = match origin.split_once("://") {
        Some(("https", host)) => Some(host),
        // A proxy in front may have TLS that this listener does not have, but not the other way round.
        Some(("http", host)) if !is_tls => Some(host),
        _ => None,
    };
    let is_own = host.zip(text(HOST.as_str())?).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
    if is_own { Ok(()) } else { Err(AccessDenial::OtherOrigin) }
}

/// Rejects a request that a page has sent directly where proxies send theirs. A proxy passes on the
/// headers of its client, so the page of a client is named in forwarded requests, too; but only a
/// proxy adds one of `added`: a page cannot without a permission that this listener never gives.
///
/// Over plain HTTP to another machine a browser that loads an image names no page: SECURITY.md says so.
pub(crate) fn check_forwarded(headers: &HeaderMap, added: &[&str]) -> Result<(), AccessDenial> {
    let is_of_page = headers.contains_key(ORIGIN)
        || headers.get(SEC_FETCH_SITE).is_some_and(|site| site.as_bytes() != b"none");
    match is_of_page && !added.iter().any(|name| headers.contains_key(*name)) {
        true => Err(AccessDenial::NotForwarded),
        false => Ok(()),
    }
}

fn is_known<'h>(host: &str, mut hosts: impl Iterator<Item = &'h str>) -> bool {
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    // A name may end with the dot of the root.
    let plain = bare.strip_suffix('.').unwrap_or(bare);
    plain.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok()
        || hosts.any(|known| known.eq_ignore_ascii_case(plain))
}

/// Where the page of a request is from, in relation to its target.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{OriginRule, check_origin, is_known};

    #[test]
    fn only_pages_of_the_same_origin_may_send_requests() {
        let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair =
                |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
            pairs.iter().map(pair).collect()
        };
        let host = ("host", "limits.example:9090");
        let own = [host, ("origin", "http://limits.example:9090")];
        let tls = [host, ("origin", "https://Limits.Example:9090")];
        let check = |pairs: &[_], is_tls, rule| check_origin(&headers(pairs), is_tls, rule).is_ok();
        for rule in [OriginRule::Needed, OriginRule::IfSent] {
            assert!(
                check(&own, false, rule) && check(&tls, false, rule) && check(&tls, true, rule)
            );
            assert!(!check(&own, true, rule));
            for other in [
                "http://limits.example",
                "http://limits.example:9091",
                "http://evil.example:9090",
                "null",
                "",
                "limits.example:9090",
                "ftp://limits.example:9090",
            ] {
                assert!(!check(&[host, ("origin", other)], false, rule), "{other}");
            }
            assert!(!check(&own[1..], false, rule), "no Host");
            for site in ["cross-site", "same-site", "", "x"] {
                assert!(!check(&[own[0], own[1], ("sec-fetch-site", site)], false, rule), "{site}");
            }
            assert!(check(&[own[0], own[1], ("sec-fetch-site", "same-origin")], false, rule));
        }
        assert!(check(&[host], false, OriginRule::IfSent));
        assert!(!check(&[host], false, OriginRule::Needed));
        let mut twice = headers(&own);
        twice.append("origin", HeaderValue::from_static("http://limits.example:9090"));
        assert!(check_origin(&twice, false, OriginRule::IfSent).is_err());
        assert!(!check(&[host, ("sec-fetch-site", "cross-site")], false, OriginRule::IfSent));
    }

    #[test]
    fn only_addresses_localhost_and_listed_names_are_known_hosts() {
        let hosts = ["limits.example", "b"];
        for host in [
            "127.0.0.1:9090",
            "127.0.0.1",
            "[::1]:9090",
            "[::1]",
            "localhost",
            "LOCALHOST:9090",
            "limits.example",
            "Limits.Example.:8080",
            "b:1",
        ] {
            assert!(is_known(host, hosts.into_iter()), "{host}");
        }
        for host in [
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            ":9090",
            "limits.example.evil",
            "evil.limits.example",
            "c",
        ] {
            assert!(!is_known(host, hosts.into_iter()), "{host}");
        }
    }
}
