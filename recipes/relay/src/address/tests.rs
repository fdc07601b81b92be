use super::{address_of, base58};

/// The examples of the Internet draft on base58, and edges.
#[test]
fn base58_matches_the_draft() {
    let cases: [(&[u8], &str); 7] = [
        (b"", ""),
        (b"\0", "1"),
        (b"\0\0\0", "111"),
        (b"Hello World!", "2NEpo7TZRRrLZSi2U"),
        (
            b"The quick brown fox jumps over the lazy dog.",
            "USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z",
        ),
        (&[0, 0, 0x28, 0x7f, 0xb4, 0xcd], "11233QC4"),
        (&[255; 4], "7YXq9G"),
    ];
    for (bytes, text) in cases {
        assert_eq!(base58(bytes), text, "{bytes:?}");
    }
}

#[test]
fn address_is_a_key_and_a_host() {
    let address = address_of(&[0; 32], "relay.example");
    assert!(address.starts_with(&format!("pinch:{}", "1".repeat(32))), "{address}");
    assert!(address.ends_with("@relay.example"), "{address}");
    assert_ne!(address, address_of(&[1; 32], "relay.example"));
}
