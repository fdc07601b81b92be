use std::collections::HashMap;

use super::{NumberedHashes, SLACK, SPREAD};

/// Inserts and removes as in a map, and compares.
#[test]
fn numbers_are_found_as_in_a_map() {
    let (mut hashes, mut model) = (NumberedHashes::default(), HashMap::new());
    let mut random = 1_u64;
    for step in 1..20_000_u64 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Small ones, ones that become small as more are inserted, and hashes.
        let number = match random >> 62 {
            0 => step,
            1 => (random >> 32) % 2_000,
            2 => (random >> 32) % 100_000,
            _ => random,
        };
        if random & 0x100_0000 == 0 {
            assert_eq!(hashes.remove(number), model.remove(&number));
        } else {
            hashes.insert(number, step);
            model.insert(number, step);
        }
    }
    for number in (0..100_000).chain(model.keys().copied()) {
        assert_eq!(hashes.get(number), model.get(&number).copied(), "{number}");
    }
}

#[test]
fn large_numbers_take_no_space_for_those_before() {
    let mut hashes = NumberedHashes::default();
    for number in [u64::MAX, 1 << 40, 1 << 20] {
        hashes.insert(number, 7);
        assert_eq!(hashes.get(number), Some(7));
    }
    assert!(hashes.listed.is_empty());
    let many = 5_000;
    (0..many).for_each(|number| hashes.insert(100 * number, 9));
    assert!(hashes.listed.len() <= SLACK + SPREAD * hashes.inserted);
}
