use std::fmt;

use super::text::{TextError, quoted};

/// A part of a whole, above 0 and at most 1, exact to six decimals.
///
/// ```
/// use tidegate::policy::Share;
///
/// let quarter = Share::from_millionths(250_000).expect("it is between 0 and 1");
/// assert_eq!(quarter.to_string(), "0.25");
/// assert_eq!(quarter.of(10), 2, "rounded down");
/// assert_eq!(quarter.of(1), 1, "but never to nothing");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// How many millionths the whole has.
    pub const WHOLE_MILLIONTHS: u32 = 1_000_000;

    /// So many millionths; `None` if they are none, or more than the whole.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        match millionths {
            1..=Self::WHOLE_MILLIONTHS => Some(Self(millionths)),
            _ => None,
        }
    }

    /// Its millionths.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The share of a number, rounded down, and at least 1.
    #[must_use]
    pub fn of(self, number: u64) -> u64 {
        let scaled = u128::from(number) * u128::from(self.0) / u128::from(Self::WHOLE_MILLIONTHS);
        u64::try_from(scaled).unwrap_or(number).max(1)
    }

    /// A decimal fraction, exactly.
    pub(crate) fn parse(text: &str) -> Result<Self, TextError> {
        millionths(text).and_then(Self::from_millionths).ok_or_else(|| {
            TextError::new(format!("{} is not a share of the limit", quoted(text)))
                .hint("write a fraction above 0.0 and up to 1.0, with up to six decimals")
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Self::WHOLE_MILLIONTHS => f.write_str("1.0"),
            millionths => f.write_str(format!("0.{millionths:06}").trim_end_matches('0')),
        }
    }
}

/// A decimal fraction from 0 to 1, exactly, in millionths.
pub(crate) fn millionths(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = whole.strip_prefix('+').unwrap_or(whole);
    let fraction = fraction.trim_end_matches('0');
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) || fraction.len() > 6 || whole.len() > 1 {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let fraction: u32 = format!("{fraction:0<6}").parse().ok()?;
    Some(whole * Share::WHOLE_MILLIONTHS + fraction).filter(|it| *it <= Share::WHOLE_MILLIONTHS)
}

#[cfg(test)]
mod tests;
