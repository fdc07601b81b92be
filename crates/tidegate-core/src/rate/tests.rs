use std::time::Duration;

use super::Rate;
use crate::LimitErrorKind;

#[test]
fn decimal_rate_is_the_exact_fraction() {
    let cases = [
        ("1", 1, 1),
        ("1.0", 1, 1),
        ("1.5", 3, 2),
        ("0.25", 1, 4),
        (".5", 1, 2),
        ("5.", 5, 1),
        ("10", 10, 1),
        ("0.1", 1, 10),
        ("0.3", 3, 10),
        ("2e-3", 1, 500),
        ("2E3", 2_000, 1),
        ("1.5e+1", 15, 1),
        ("12.50", 25, 2),
        ("0000000000000000000000000000001.5", 3, 2),
        ("1.50000000000000000000000000000000", 3, 2),
        ("100000000000000000000000000000e-29", 1, 1),
        ("0.00000000000000000000000000000001e32", 1, 1),
        ("1.0000000005", 2_000_000_001, 2_000_000_000),
        ("0.000000001", 1, 1_000_000_000),
        ("18446744073709551615", u64::MAX, 1),
    ];
    for (text, count, secs) in cases {
        let rate = Rate::per_second_decimal(text).unwrap();
        assert_eq!((rate.count(), rate.period()), (count, Duration::from_secs(secs)), "{text}");
    }
}

#[test]
fn rate_reads_as_a_count_per_period() {
    assert_eq!(Rate::per_minute(600).to_string(), "600 per 60s");
    assert_eq!(Rate::one_every(Duration::from_millis(1_500)).to_string(), "1 per 1.5s");
}

#[test]
fn rate_rejects_text_that_is_not_a_decimal_number() {
    let texts = [
        "", " ", ".", "e5", "1e", "1e+", "1e5.0", "-1", "+1", "1 ", " 1", "1,5", "1_000", "0x10",
        "inf", "Infinity", "nan", "NaN", "1.5.0", "1e5e5", "1f", "one", "١", "1\0",
    ];
    for text in texts {
        let error = Rate::per_second_decimal(text).unwrap_err();
        assert_eq!(
            (error.field(), error.problem()),
            ("rate", LimitErrorKind::NotDecimal),
            "{text:?}"
        );
    }
}

#[test]
fn rate_rejects_zero_in_any_notation() {
    for text in ["0", "0.0", ".0", "0.", "0e5", "0e-99999999999999999999999", "000.000e+7"] {
        assert_eq!(
            Rate::per_second_decimal(text).unwrap_err().problem(),
            LimitErrorKind::Zero,
            "{text}"
        );
    }
}

#[test]
fn rate_that_does_not_fit_is_an_error_and_not_rounded() {
    for text in ["18446744073709551616", "1e20", "1e300", "1e99999999999999999999999999"] {
        let problem = Rate::per_second_decimal(text).unwrap_err().problem();
        assert!(matches!(problem, LimitErrorKind::AboveMax { .. }), "{text}: {problem:?}");
    }
    let fine =
        ["1e-10", "1e-300", "1e-99999999999999999999999", "1.00000000001", "0.1234567890123"];
    for text in fine {
        let problem = Rate::per_second_decimal(text).unwrap_err().problem();
        let is_reported =
            matches!(problem, LimitErrorKind::NotExact { .. } | LimitErrorKind::AboveMax { .. });
        assert!(is_reported, "{text}: {problem:?}");
    }
}

#[test]
fn rate_with_too_many_digits_is_too_fine_or_too_large() {
    for text in ["0.123456789012345678901", "123456789012345678901e-22"] {
        let problem = Rate::per_second_decimal(text).unwrap_err().problem();
        assert!(matches!(problem, LimitErrorKind::NotExact { .. }), "{text}: {problem:?}");
    }
    for text in ["123456789012345678901", "123456789012345678901e1"] {
        let problem = Rate::per_second_decimal(text).unwrap_err().problem();
        assert!(matches!(problem, LimitErrorKind::AboveMax { .. }), "{text}: {problem:?}");
    }
}

#[test]
fn short_decimals_agree_with_integer_arithmetic() {
    for thousandths in 1..20_000_u64 {
        let text = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
        let rate = Rate::per_second_decimal(&text).unwrap();
        assert_eq!(rate, Rate::new(thousandths, Duration::from_secs(1_000)), "{text}");
    }
}
