//! Requests that a page in a browser may have sent, unknown to its user.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::HOST;

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

#[cfg(test)]
mod tests {
    use super::is_known;

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
