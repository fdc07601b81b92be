use super::Share;

#[test]
fn share_is_exact_to_six_decimals() {
    for (text, millionths) in [
        ("0.25", 250_000),
        ("0.250000", 250_000),
        ("+0.1", 100_000),
        ("0.000001", 1),
        ("0.333333", 333_333),
        ("1", 1_000_000),
        ("1.0", 1_000_000),
    ] {
        assert_eq!(Share::parse(text).unwrap().millionths(), millionths, "{text}");
    }
}

#[test]
fn share_outside_of_its_range_is_rejected() {
    for text in ["0", "0.0", "-0.25", "1.000001", "2", "0.0000001", "1e-1", "inf", "nan", "", "."] {
        assert!(Share::parse(text).is_err(), "{text}");
    }
    assert_eq!(Share::from_millionths(0), None);
    assert_eq!(Share::from_millionths(1_000_001), None);
}

#[test]
fn share_of_a_number_is_rounded_down_and_at_least_one() {
    let share = |text: &str| Share::parse(text).unwrap();
    assert_eq!(share("0.25").of(100), 25);
    assert_eq!(share("0.25").of(103), 25);
    assert_eq!(share("0.25").of(3), 1);
    assert_eq!(share("0.333333").of(3), 1);
    assert_eq!(share("0.999999").of(2), 1);
    assert_eq!(share("1").of(u64::MAX), u64::MAX);
    assert_eq!(share("0.5").of(u64::MAX), u64::MAX / 2);
}

#[test]
fn share_is_displayed_as_it_is_parsed() {
    for text in ["0.25", "0.000001", "0.333333", "1.0"] {
        assert_eq!(Share::parse(text).unwrap().to_string(), text);
    }
}
