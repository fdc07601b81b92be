use http::Request;

use super::{
    Attribute, Header, KeySource, PathParam, host, method, path, path_with_encoded_slashes,
};

fn parts(request: http::request::Builder) -> http::request::Parts {
    request.body(()).unwrap().into_parts().0
}

/// The value of an attribute, or the message of its error.
type Value<'a> = Result<Option<&'a str>, &'a str>;

/// Values of a header, the attribute's value, and the key.
type Case<'a> = (&'a [&'a [u8]], Value<'a>, Option<&'a str>);

#[test]
fn header_is_ambiguous_if_it_appears_twice() {
    let header = Header::new("X-User");
    let twice = "the header `x-user` appears twice";
    let table: [Case<'_>; 6] = [
        (&[b"ada"], Ok(Some("ada")), Some("ada")),
        (&["zoë".as_bytes()], Ok(Some("zoë")), Some("zoë")),
        (&[b""], Ok(Some("")), Some("")),
        (&[], Ok(None), None),
        (&[b"ada", b"ada"], Err(twice), None),
        (&[b"a\xff"], Ok(Some("a%ff")), Some("a%ff")),
    ];
    for (values, expected, key) in table {
        let request =
            values.iter().fold(Request::get("/"), |it, value| it.header("x-user", *value));
        let parts = parts(request);
        let value = header.value(&parts).map_err(|error| error.to_string());
        assert_eq!(value.as_ref().map(Option::as_deref).map_err(|error| &**error), expected);
        assert_eq!(header.key(&parts).as_deref(), key);
    }
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
        let parts = parts(request);
        assert_eq!(host().value(&parts).unwrap().as_deref(), expected, "{uri} {header:?}");
    }
    let twice = parts(Request::get("/").header("host", "a").header("host", "b"));
    assert_eq!(host().value(&twice).unwrap_err().to_string(), "the header `host` appears twice");
    let bytes = parts(Request::get("/").header("host", &b"A\xff:80"[..]));
    assert_eq!(host().value(&bytes).unwrap().as_deref(), Some("a%ff"));
}

#[test]
fn methods_are_as_sent_and_paths_in_their_normal_form() {
    let put = parts(Request::put("//a%2fb/../%63?d=e"));
    assert_eq!(method().value(&put).unwrap().as_deref(), Some("PUT"));
    assert_eq!(path().value(&put).unwrap().as_deref(), Some("/a/c"));
    let kept = path_with_encoded_slashes();
    assert_eq!(kept.value(&put).unwrap().as_deref(), Some("/c"));
    let kept = kept.value(&parts(Request::get("/a%2fb"))).unwrap().map(|it| it.into_owned());
    assert_eq!(kept.as_deref(), Some("/a%2Fb"));
    for uri in ["/%00", "/%zz"] {
        assert!(path().value(&parts(Request::get(uri))).is_err(), "{uri}");
    }
}

#[test]
fn parameters_are_found_in_the_normal_form_of_a_path() {
    let room = PathParam::of("/rooms/{room}", "room");
    let value = |uri: &str| {
        let parts = parts(Request::get(uri));
        let value = room.value(&parts);
        value.map(|value| value.map(|it| it.into_owned())).map_err(|error| error.to_string())
    };
    for uri in ["/rooms/red", "//rooms/red", "/x/../rooms/red", "/%72ooms/re%64"] {
        assert_eq!(value(uri), Ok(Some("red".into())), "{uri}");
    }
    assert_eq!(value("/rooms/a%2Fb"), Ok(Some("a/b".into())));
    assert_eq!(value("/rooms/%ff"), Ok(Some("%ff".into())));
    assert_eq!(value("/halls/red"), Ok(None));
    assert!(value("/rooms/%zz").is_err());
    assert_eq!(room.key(&parts(Request::get("/rooms/%zz"))), None, "denied: it has no key");
}
