//! Whole numbers as the YAML of Go writes them.

/// The whole number in a text: `1000`, `1_000`, `0x3e8`, `0b11`, `0o17` or `017`, `1e3`, `1000.0`.
/// `None` if it is none, or does not fit.
pub(super) fn whole(text: &str) -> Option<u32> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    // A sign is followed by a digit, so `-0` is zero.
    let (is_negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let number = integer(digits).or_else(|| decimal(digits))?;
    (!is_negative || number == 0).then_some(number)
}

/// With the prefix of a base, or octal after a zero.
fn integer(digits: &str) -> Option<u32> {
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &*lower),
    };
    let is_digit = |c: char| c.is_digit(base);
    let number = u32::from_str_radix(digits, base).ok();
    number.filter(|_| digits.chars().all(is_digit))
}

/// With a point or an exponent, if the result is whole.
fn decimal(digits: &str) -> Option<u32> {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let zeros = i64::try_from(all.len() - all.trim_end_matches('0').len()).ok()?;
    let power = i64::from(exponent) - i64::try_from(fraction.len()).ok()? + zeros;
    let factor = 10_u32.checked_pow(u32::try_from(power).ok()?)?;
    significant.parse::<u32>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn numbers_parse_as_in_go() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("1000", 1_000),
            ("+7", 7),
            ("1_000", 1_000),
            ("0x10", 16),
            ("0XfF", 255),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("089", 89),
            ("1e3", 1_000),
            ("1.5E+1", 15),
            ("1000.", 1_000),
            (".5e1", 5),
            ("100e-2", 1),
            ("0.0", 0),
            ("0e99999", 0),
            ("4294967295", u32::MAX),
            ("4294967295.00", u32::MAX),
        ] {
            assert_eq!(whole(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "_",
            "-",
            "+",
            "-1",
            "1.5",
            "1e-1",
            "4294967296",
            "1e10",
            "0x",
            "0x1g",
            "0x+1",
            "1e",
            "e1",
            ".",
            "ten",
            "--1",
            "+-1",
            "1 000",
            "1e999999999999",
            "0x1e1.0",
            "٣",
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
    }
}
