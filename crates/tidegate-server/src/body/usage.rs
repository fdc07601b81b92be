//! What keys have used of their limits: over HTTP, RESP, the local socket, and in the admin API.

use serde::{Serialize, Serializer};
use tidegate::policy::Mode;
use tidegate::report::RuleUsage;
use tidegate_proto::times::reset_after_ms;

/// The response body of `usage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UsageBody<'a> {
    pub(crate) rules: Vec<RuleUsageBody<'a>>,
}

/// What a key has used of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RuleUsageBody<'a> {
    pub(crate) rule: &'a str,
    /// `shadow` where denials are not enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<&'static str>,
    pub(crate) used: u64,
    pub(crate) held: u64,
    /// `None` where an override lifts the limit.
    pub(crate) limit: Option<u64>,
    pub(crate) remaining: Option<u64>,
    /// Units used or held beyond the limit; absent where there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) debt: u64,
    pub(crate) share: Option<ShareNumber>,
    /// `None` if it is unknown.
    pub(crate) reset_after_ms: Option<u64>,
}

/// A share in millionths, which is encoded as a number with up to six decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareNumber(pub(crate) u64);

impl<'a> UsageBody<'a> {
    pub(crate) fn new(usage: &'a [RuleUsage]) -> Self {
        Self { rules: usage.iter().map(RuleUsageBody::new).collect() }
    }
}

impl<'a> RuleUsageBody<'a> {
    pub(crate) fn new(usage: &'a RuleUsage) -> Self {
        Self {
            rule: usage.rule.name(),
            mode: (usage.mode == Mode::Shadow).then(|| usage.mode.name()),
            used: usage.used,
            held: usage.held,
            limit: usage.limit,
            remaining: usage.remaining,
            debt: usage.debt,
            share: usage.share_ppm().map(ShareNumber),
            reset_after_ms: reset_after_ms(usage.reset),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(units: &u64) -> bool {
    *units == 0
}

impl ShareNumber {
    /// The share of a text such as `0.8`; `None` if it is none, or has more than six decimals.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || decimals.len() > 6 || !is_digits(whole) || !is_digits(decimals) {
            return None;
        }
        let millionths: u64 = format!("{decimals:0<6}").parse().ok()?;
        whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(millionths).map(Self)
    }
}

impl Serialize for ShareNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        // The nearest number to that text is printed with its digits again.
        serializer.serialize_f64(text.parse().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::ShareNumber;

    #[test]
    fn shares_are_numbers_with_six_decimals() {
        for (ppm, text) in [
            (0, "0.0"),
            (1, "1e-6"),
            (300_000, "0.3"),
            (333_333, "0.333333"),
            (1_000_000, "1.0"),
            (2_500_000, "2.5"),
        ] {
            assert_eq!(serde_json::to_string(&ShareNumber(ppm)).unwrap(), text);
        }
    }

    #[test]
    fn shares_are_read_in_integers() {
        for (text, ppm) in
            [("0.8", 800_000), ("1", 1_000_000), ("0.000001", 1), ("2.5", 2_500_000), ("0", 0)]
        {
            assert_eq!(ShareNumber::parse(text), Some(ShareNumber(ppm)), "{text}");
        }
        for wrong in
            ["", ".5", "-1", "0.0000001", "1e3", "0,8", "80%", "99999999999999999999", "+1", "NaN"]
        {
            assert_eq!(ShareNumber::parse(wrong), None, "{wrong}");
        }
    }
}
