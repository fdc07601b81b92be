//! Decimal numbers as exact fractions.

use super::gcd;
use crate::error::LimitErrorKind;

/// A positive fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction {
    pub(super) numerator: u64,
    pub(super) denominator: u64,
}

/// Why a text is not a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecimalError {
    NotDecimal,
    Zero,
    TooLarge,
    TooFine,
}

impl From<DecimalError> for LimitErrorKind {
    fn from(error: DecimalError) -> Self {
        match error {
            DecimalError::NotDecimal => Self::NotDecimal,
            DecimalError::Zero => Self::Zero,
            DecimalError::TooLarge => Self::AboveMax { max: u64::MAX.into() },
            DecimalError::TooFine => {
                Self::NotExact { hint: "it has too many digits or is too small; use fewer digits" }
            }
        }
    }
}

/// The fraction of a decimal number: digits, `.digits` and `e[+-]digits`.
pub(super) fn fraction(text: &str) -> Result<Fraction, DecimalError> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, read_exponent(exponent)?),
        None => (text, 0),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let are_digits = whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit());
    if !are_digits || (whole.is_empty() && part.is_empty()) {
        return Err(DecimalError::NotDecimal);
    }
    let mut digits = Digits::default();
    whole.bytes().for_each(|digit| digits.push(digit, false));
    part.bytes().for_each(|digit| digits.push(digit, true));
    digits.scaled(exponent)
}

/// The digits of a number: `value · 10^(zeros - decimals)`.
#[derive(Clone, Copy, Debug, Default)]
struct Digits {
    /// All digits up to the last one that is not zero; `None` when there are too many.
    value: Option<u64>,
    /// Zeros after it that have not been needed yet.
    zeros: i64,
    /// Digits after the point.
    decimals: i64,
    has_digit: bool,
}

impl Digits {
    /// Appends a digit; zeros wait until something else follows them.
    fn push(&mut self, digit: u8, is_after_point: bool) {
        self.decimals = self.decimals.saturating_add(is_after_point.into());
        if digit == b'0' {
            self.zeros = self.zeros.saturating_add(i64::from(self.has_digit));
            return;
        }
        let value = if self.has_digit { self.value } else { Some(0) };
        self.value = value
            .and_then(|value| times_ten_to(value, self.zeros.saturating_add(1)))
            .and_then(|value| value.checked_add(u64::from(digit - b'0')));
        self.has_digit = true;
        self.zeros = 0;
    }

    fn scaled(self, exponent: i64) -> Result<Fraction, DecimalError> {
        if !self.has_digit {
            return Err(DecimalError::Zero);
        }
        let power = exponent.saturating_add(self.zeros).saturating_sub(self.decimals);
        let value = match self.value {
            Some(value) => value,
            None if power < 0 => return Err(DecimalError::TooFine),
            None => return Err(DecimalError::TooLarge),
        };
        if power >= 0 {
            let numerator = times_ten_to(value, power).ok_or(DecimalError::TooLarge)?;
            return Ok(Fraction { numerator, denominator: 1 });
        }
        let denominator = times_ten_to(1, power.saturating_neg()).ok_or(DecimalError::TooFine)?;
        let divisor = gcd(value, denominator);
        Ok(Fraction { numerator: value / divisor, denominator: denominator / divisor })
    }
}

/// `value · 10^power`, unless it does not fit.
fn times_ten_to(value: u64, power: i64) -> Option<u64> {
    10_u64.checked_pow(u32::try_from(power).ok()?)?.checked_mul(value)
}

/// The number after the `e`. A huge one is capped.
fn read_exponent(text: &str) -> Result<i64, DecimalError> {
    let (sign, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecimalError::NotDecimal);
    }
    let append = |number: i64, digit: &u8| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(MAX_EXPONENT)
    };
    Ok(sign * digits.iter().fold(0, append))
}

/// Far more than any power that fits, far less than what overflows.
const MAX_EXPONENT: i64 = 1 << 40;
