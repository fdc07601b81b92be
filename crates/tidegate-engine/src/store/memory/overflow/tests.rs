//! What can only be seen from inside: sizes and classes.

use super::*;

#[test]
fn cells_take_a_bounded_number_of_bytes() {
    assert!(size_of::<Option<OverflowCell>>() <= 208);
}

#[test]
fn a_joined_class_has_the_keys_of_both() {
    for (of, other_of) in [(16, 16), (16, 4), (2, 8), (1, 16)] {
        for (number, other) in (0..of).flat_map(|it| (0..other_of).map(move |other| (it, other))) {
            let (a, b) = (Class::of(number, of), Class::of(other, other_of));
            let both = a.joining(b);
            assert!(both.includes(a) && both.includes(b) && both.of <= of.min(other_of));
            assert!((0..16).filter(|it| a.has(*it) || b.has(*it)).all(|it| both.has(it)));
        }
    }
}
