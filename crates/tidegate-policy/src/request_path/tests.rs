use proptest::prelude::*;

use super::{EncodedSlash, PathError, normalized_path};

fn decoded(uri: &str) -> String {
    normalized_path(uri.as_bytes(), EncodedSlash::Decode).unwrap().into_owned()
}

#[test]
fn other_ways_to_write_a_path_have_its_normal_form() {
    let table = [
        // Nothing to do.
        ("/", "/"),
        ("/sign-up", "/sign-up"),
        ("/a/b_c.d~e", "/a/b_c.d~e"),
        ("*", "*"),
        // The query.
        ("/sign-up?next=/x//%00", "/sign-up"),
        ("/sign-up#part", "/sign-up"),
        ("/sign-up?", "/sign-up"),
        ("", "/"),
        ("?x", "/"),
        // Unreserved characters, once.
        ("/%73ign-up", "/sign-up"),
        ("/%73%69%67%6e%2D%75%70", "/sign-up"),
        ("/%7Euser/%5f", "/~user/_"),
        ("/%2573ign-up", "/%2573ign-up"),
        ("/%25252e", "/%25252e"),
        // Other escapes, in upper case.
        ("/a%3ab%c3%a9", "/a%3Ab%C3%A9"),
        ("/a%20b", "/a%20b"),
        ("/%3f%23", "/%3F%23"),
        // Bytes that need an escape.
        ("/a b|c\"<>^`{}", "/a%20b%7Cc%22%3C%3E%5E%60%7B%7D"),
        ("/café", "/caf%C3%A9"),
        ("/a\tb\u{7f}", "/a%09b%7F"),
        // Slashes.
        ("//sign-up", "/sign-up"),
        ("///a////b//", "/a/b/"),
        ("/x%2Fsign-up", "/x/sign-up"),
        ("%2fsign-up", "/sign-up"),
        ("/x%5csign-up", "/x/sign-up"),
        ("\\x\\sign-up", "/x/sign-up"),
        ("/%2f%5C\\/sign-up", "/sign-up"),
        // Dot segments.
        ("/x/../sign-up", "/sign-up"),
        ("/./sign-up", "/sign-up"),
        ("/x/%2e%2E/sign-up", "/sign-up"),
        ("/x%2f..%2fsign-up", "/sign-up"),
        ("/x//../sign-up", "/sign-up"),
        ("/../../sign-up", "/sign-up"),
        ("/a/b/../../../c", "/c"),
        ("/a/.", "/a/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/..", "/"),
        ("/...", "/..."),
        ("/.well-known/x", "/.well-known/x"),
        ("/a./b..", "/a./b.."),
        // What stays.
        ("/Sign-Up", "/Sign-Up"),
        ("/sign-up/", "/sign-up/"),
        ("/sign-up;x=1", "/sign-up;x=1"),
        ("/a/..;/b", "/a/..;/b"),
        ("/a!$&'()*+,;=:@", "/a!$&'()*+,;=:@"),
        ("/a%21", "/a%21"),
        // Whole URIs, and paths without a slash.
        ("http://example.com/sign-up", "/sign-up"),
        ("HTTPS://user@[::1]:80//sign-up?x", "/sign-up"),
        ("http://example.com", "/"),
        ("http://example.com?/x", "/"),
        ("http:\\\\x/y", "http:/x/y"),
        ("1http://x/y", "1http:/x/y"),
        ("sign-up", "sign-up"),
        ("x/../sign-up", "sign-up"),
        ("../sign-up", "sign-up"),
        ("x/..", "/"),
        (".", "/"),
    ];
    for (uri, path) in table {
        assert_eq!(decoded(uri), path, "{uri}");
        assert_eq!(decoded(path), path, "{uri}, twice");
    }
}

#[test]
fn encoded_slashes_can_be_kept() {
    let table = [
        ("/a%2fb", "/a%2Fb"),
        ("/a%5cb", "/a%5Cb"),
        ("/a\\b", "/a/b"),
        ("/a%2F..%2Fb", "/a%2F..%2Fb"),
        ("/a/%2e%2e/b", "/b"),
        ("//a%2F%2Fb", "/a%2F%2Fb"),
    ];
    for (uri, path) in table {
        assert_eq!(normalized_path(uri.as_bytes(), EncodedSlash::Keep).unwrap(), path, "{uri}");
    }
}

#[test]
fn a_nul_and_broken_escapes_are_rejected() {
    let table: [(&[u8], PathError); 11] = [
        (b"/sign-up%00", PathError::Nul),
        (b"/sign-up\0", PathError::Nul),
        (b"/%00/../sign-up", PathError::Nul),
        (b"/%", PathError::BrokenEscape),
        (b"/%7", PathError::BrokenEscape),
        (b"/%7?", PathError::BrokenEscape),
        (b"/%zz", PathError::BrokenEscape),
        (b"/%+1", PathError::BrokenEscape),
        (b"/%u0073ign-up", PathError::BrokenEscape),
        (b"/%%373", PathError::BrokenEscape),
        (b"/%\xc3\xa9", PathError::BrokenEscape),
    ];
    for (uri, error) in table {
        for slashes in [EncodedSlash::Decode, EncodedSlash::Keep] {
            assert_eq!(normalized_path(uri, slashes), Err(error), "{}", uri.escape_ascii());
        }
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_escaped_like_the_client_could_have() {
    let path = normalized_path(b"/caf\xe9", EncodedSlash::Decode).unwrap();
    assert_eq!((&*path, &*decoded("/caf%e9")), ("/caf%E9", "/caf%E9"));
}

/// Texts of the bytes that matter, and of any bytes.
fn uris() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "/", "//", ".", "..", "%2e", "%2F", "%5c", "\\", "%73", "%25", "%c3", "a", "A", ";", "%",
            "é", "http:", "://", ":", "?", "*", " ",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_normal_path_stays_as_it_is(uri in uris(), keep in any::<bool>()) {
        let slashes = if keep { EncodedSlash::Keep } else { EncodedSlash::Decode };
        if let Ok(path) = normalized_path(&uri, slashes) {
            let again = normalized_path(path.as_bytes(), slashes);
            prop_assert_eq!(again.as_deref(), Ok(&*path));
            prop_assert!(!path.is_empty() && path.is_ascii() && !path.contains("//"));
            let is_dots = |segment: &str| matches!(segment, "." | "..");
            prop_assert!(!path.split('/').any(is_dots), "{}", path);
            prop_assert!(!path.contains(['\\', '?', '#', ' ']));
        }
    }

    #[test]
    fn an_escaped_letter_makes_no_difference(uri in "/[a-z./]{0,12}", at in 1_usize..13) {
        let at = at.min(uri.len() - 1);
        let byte = uri.as_bytes()[at];
        let escaped = format!("{}%{byte:02x}{}", &uri[..at], &uri[at + 1..]);
        prop_assert_eq!(decoded(&uri), decoded(&escaped));
    }
}
