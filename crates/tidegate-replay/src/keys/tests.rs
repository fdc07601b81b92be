use std::hash::BuildHasher;

use tidegate::policy::{Key, Policy};
use tidegate::{hash::KeyedHash, policy::Attributes};

use super::{KeyTable, key_hash, key_values};

fn key(parts: &str) -> Key {
    let text = format!("[[rule]]\nname = 'a'\nkey = [{parts}]\ncooldown = '1s'");
    Policy::from_toml(&text).unwrap_or_else(|error| panic!("{error}")).rules()[0].key().clone()
}

#[test]
fn keys_are_the_same_where_the_engine_counts_them_as_one() {
    let hash = KeyedHash::new();
    let of = |parts: &str, attributes: &[(&str, &str)]| {
        let attributes = Attributes::new(attributes);
        (key_hash(&key(parts), &attributes, &hash), key_values(&key(parts), &attributes))
    };
    let same = [
        ("'ip'", [("ip", "192.0.2.1")], [("ip", "::ffff:192.0.2.1")], Some("192.0.2.1")),
        ("'ip'", [("ip", "2001:db8::1")], [("ip", "2001:db8:0:0:1::2")], Some("2001:db8::/64")),
        ("'ip4/24'", [("ip", "192.0.2.1")], [("ip", "192.0.2.200")], Some("192.0.2.0/24")),
        ("'ip'", [("ip", "a.example")], [("ip", "a.example")], Some("a.example")),
        ("'user'", [("user", "")], [("user", "")], Some("")),
        ("'user'", [("x", "")], [("y", "")], None),
    ];
    for (parts, a, b, name) in same {
        assert_eq!(of(parts, &a), of(parts, &b), "{parts}");
        assert_eq!(of(parts, &a).1[0].as_deref(), name, "{parts}");
    }
    let different = [
        ("'ip'", [("ip", "192.0.2.1")], [("ip", "192.0.2.2")]),
        ("'ip'", [("ip", "2001:db8::1")], [("ip", "2001:db8:0:1::1")]),
        ("'ip/text'", [("ip", "2001:db8::1")], [("ip", "2001:db8::2")]),
        ("'user'", [("user", "")], [("x", "")]),
    ];
    for (parts, a, b) in different {
        assert_ne!(of(parts, &a).0, of(parts, &b).0, "{parts}");
    }
    let two = |a: &str, b: &str| of("'a', 'b'", &[("a", a), ("b", b)]).0;
    assert_ne!(two("x", "yz"), two("xy", "z"));
    assert_ne!(of("'a'", &[("a", "x")]).0, of("'b'", &[("b", "x")]).0);
}

#[test]
fn counts_are_exact_up_to_the_bound_and_estimates_beyond() {
    let keyed = KeyedHash::new();
    let hashes: Vec<u64> = (0..20_000_u64).map(|number| keyed.hash_one(number)).collect();
    for most in [40_000, 20_000, 1_000, 1] {
        let mut table = KeyTable::new(most, 2);
        for _ in 0..2 {
            for (number, hash) in (0_u32..).zip(&hashes) {
                table.see(number % 2, *hash, number % 10 == 0);
            }
        }
        assert_eq!(table.is_full(), most < 20_000);
        let (keys, denied) = (table.keys(0) + table.keys(1), table.denied(0) + table.denied(1));
        if table.is_full() {
            assert!(
                keys.abs_diff(20_000) < 1_500 && denied.abs_diff(2_000) < 200,
                "{keys} {denied}"
            );
            assert!(table.keys.len() <= most);
        } else {
            assert_eq!((keys, denied), (20_000, 2_000));
            assert_eq!(table.requests(0, hashes[0]), Some(2));
            assert_eq!(table.requests(1, hashes[0]), None);
        }
    }
}
