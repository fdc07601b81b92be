use http::Request;

use super::{Attribute, Header, host, method, path};

fn parts(request: http::request::Builder) -> http::request::Parts {
    request.body(()).unwrap().into_parts().0
}

#[test]
fn header_counts_if_it_appears_once() {
    let header = Header::new("X-User");
    let value = |values: &[&[u8]]| {
        let request =
            values.iter().fold(Request::get("/"), |it, value| it.header("x-user", *value));
        header.value(&parts(request)).map(|value| value.into_owned())
    };
    assert_eq!(value(&[b"ada"]).as_deref(), Some("ada"));
    assert_eq!(value(&["zoë".as_bytes()]).as_deref(), Some("zoë"));
    assert_eq!(value(&[b""]).as_deref(), Some(""));
    assert_eq!(value(&[]), None);
    assert_eq!(value(&[b"ada", b"ada"]), None);
    assert_eq!(value(&[b"\xff"]), None);
}

#[test]
#[should_panic(expected = "is not a valid header name")]
fn invalid_header_name_panics() {
    let _ = Header::new("x user");
}

#[test]
fn hosts_have_no_port_and_are_lower_case() {
    let cases = [
        ("/", Some("API.example:8080"), Some("api.example")),
        ("/", Some("[2001:db8::1]:443"), Some("[2001:db8::1]")),
        ("/", Some("[2001:db8::1]"), Some("[2001:db8::1]")),
        ("http://Other.example:1/x", Some("ignored"), Some("other.example")),
        ("/", None, None),
    ];
    for (uri, header, expected) in cases {
        let mut request = Request::get(uri);
        if let Some(header) = header {
            request = request.header("host", header);
        }
        assert_eq!(host().value(&parts(request)).as_deref(), expected, "{uri} {header:?}");
    }
}

#[test]
fn methods_and_paths_are_as_sent() {
    let parts = parts(Request::put("/a%2Fb/../c?d=e"));
    assert_eq!(method().value(&parts).as_deref(), Some("PUT"));
    assert_eq!(path().value(&parts).as_deref(), Some("/a%2Fb/../c"));
}
