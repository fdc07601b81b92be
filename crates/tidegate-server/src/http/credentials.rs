//! The secret that comes with a request.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::access::AccessDenial;

/// Where the secret of a client may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretHeaders {
    /// `Authorization: Bearer …`, or `Tidegate-Token`.
    Both,
    /// `Tidegate-Token` alone: in requests of proxies `Authorization` belongs to another client.
    TokenOnly,
}

/// The secret in the headers of a request; `None` if there is none. A secret that is sent twice is an
/// error.
pub(crate) fn secret(
    headers: &HeaderMap,
    places: SecretHeaders,
) -> Result<Option<&[u8]>, AccessDenial> {
    let token = one(headers, TIDEGATE_TOKEN, "the header Tidegate-Token appears twice")?;
    if places == SecretHeaders::TokenOnly {
        return Ok(token);
    }
    let name = AUTHORIZATION.as_str();
    let bearer = one(headers, name, "the header Authorization appears twice")?.and_then(bearer);
    match (token, bearer) {
        (Some(_), Some(_)) => Err(AccessDenial::Ambiguous(
            "the headers Authorization and Tidegate-Token both have a token: send one of them",
        )),
        (token, bearer) => Ok(token.or(bearer)),
    }
}

/// The value of a header that may appear once.
fn one<'h>(
    headers: &'h HeaderMap,
    name: &str,
    twice: &'static str,
) -> Result<Option<&'h [u8]>, AccessDenial> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(AccessDenial::Ambiguous(twice)),
        (first, None) => Ok(first.map(HeaderValue::as_bytes)),
    }
}

/// The token after the scheme `Bearer`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(6)?;
    let (space, token) = token.split_first()?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && *space == b' ' && !token.is_empty()).then_some(token)
}

const TIDEGATE_TOKEN: &str = "tidegate-token";

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::{SecretHeaders, secret};
    use crate::access::AccessDenial;

    fn read(pairs: &[(&'static str, &str)], places: SecretHeaders) -> Result<Option<String>, ()> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        match secret(&headers, places) {
            Ok(secret) => Ok(secret.map(|it| String::from_utf8(it.to_vec()).unwrap())),
            Err(AccessDenial::Ambiguous(_)) => Err(()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_secret_comes_in_one_of_two_headers() {
        let both = |pairs: &[(&'static str, &str)]| read(pairs, SecretHeaders::Both);
        assert_eq!(both(&[]), Ok(None));
        assert_eq!(both(&[("authorization", "Bearer abc")]), Ok(Some("abc".into())));
        assert_eq!(both(&[("authorization", "bearer  abc ")]), Ok(Some("abc".into())));
        assert_eq!(both(&[("tidegate-token", "abc")]), Ok(Some("abc".into())));
        for none in ["Basic YTpi", "Bearer", "Bearer ", "abc", ""] {
            assert_eq!(both(&[("authorization", none)]), Ok(None), "{none}");
        }
        let other = [("authorization", "Basic YTpi"), ("tidegate-token", "abc")];
        assert_eq!(both(&other), Ok(Some("abc".into())));
        let twice = [("authorization", "Bearer abc"), ("authorization", "Bearer abc")];
        assert_eq!(both(&twice), Err(()));
        assert_eq!(both(&[("tidegate-token", "a"), ("tidegate-token", "a")]), Err(()));
        assert_eq!(both(&[("tidegate-token", "a"), ("authorization", "Bearer a")]), Err(()));
    }

    #[test]
    fn authorization_of_a_proxied_request_is_ignored() {
        let alone = |pairs: &[(&'static str, &str)]| read(pairs, SecretHeaders::TokenOnly);
        assert_eq!(alone(&[("authorization", "Bearer abc")]), Ok(None));
        assert_eq!(alone(&[("authorization", "Basic YTpi")]), Ok(None));
        let both = [("authorization", "Basic YTpi"), ("tidegate-token", "abc")];
        assert_eq!(alone(&both), Ok(Some("abc".into())));
    }
}
