use std::fs;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidegate_redis_servers::Authority;

use super::*;

fn der(path: &std::path::Path) -> Vec<u8> {
    CertificateDer::from_pem_slice(&fs::read(path).unwrap()).unwrap().to_vec()
}

#[test]
fn subjects_are_uri_and_dns_names_and_else_the_common_name() {
    let authority = Authority::new("ca");
    let table: [(&str, &[&str], &[&str]); 5] = [
        ("app", &[], &["app"]),
        ("app", &["IP:127.0.0.1", "email:a@b.example"], &["app"]),
        ("app", &["DNS:a.example"], &["a.example"]),
        ("app", &["URI:spiffe://x/y", "DNS:b.example"], &["spiffe://x/y", "b.example"]),
        // A name that could look like another counts for nothing, and does not bring back the other.
        ("app", &["DNS:a.example b"], &[]),
    ];
    for (common_name, names, expected) in table {
        let certificate = authority.issue(common_name).names(names).write();
        let fields = Fields::of(&der(&certificate.path)).unwrap();
        assert_eq!(fields.subjects, expected, "{common_name} {names:?}");
    }
}

#[test]
fn the_time_of_a_certificate_is_read_in_both_formats() {
    let authority = Authority::new("ca");
    for (from, to, expected) in [
        ("20200101000000Z", "20200229235959Z", (1_577_836_800, 1_583_020_799)),
        ("20491231235959Z", "20600101000000Z", (2_524_607_999, 2_840_140_800)),
    ] {
        let certificate = authority.issue("app").valid(from, to).write();
        let fields = Fields::of(&der(&certificate.path)).unwrap();
        assert_eq!((fields.not_before, fields.not_after), expected);
    }
}

#[test]
fn a_common_name_that_is_ambiguous_or_has_control_characters_is_none() {
    // SET { SEQUENCE { OID 2.5.4.3, UTF8String } }
    let set = |text: &[u8]| {
        let length = u8::try_from(text.len()).unwrap();
        let head = [SET, length + 9, SEQUENCE, length + 7, OBJECT_ID, 3, 0x55, 4, 3, UTF8_STRING];
        [&head[..], &[length], text].concat()
    };
    assert_eq!(common_name(&set(b"app")), Some("app".into()));
    assert_eq!(common_name(&[set(b"a"), set(b"b")].concat()), None);
    assert_eq!(common_name(&set(b"app\0.evil")), None);
    assert_eq!(common_name(&set(b"app\n")), None);
    assert_eq!(common_name(&set(b"\xff")), None);
    assert_eq!(common_name(&set(b"")), None);
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let authority = Authority::new("ca");
    let certificate = authority.issue("app").names(&["DNS:a.example"]).write();
    let good = der(&certificate.path);
    for length in 0..good.len() {
        assert_eq!(Fields::of(&good[..length]), None, "{length}");
    }
    for index in 0..good.len() {
        for value in [0, 1, 0x30, 0x7f, 0x80, 0x84, 0xff] {
            let mut bad = good.clone();
            bad[index] = value;
            let _ = Fields::of(&bad);
        }
    }
}
