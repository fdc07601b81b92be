//! The ids of holds, and whose holds they are.

use std::fmt;
use std::str::FromStr;

use tidegate_core::Timestamp;

/// The id of a hold: a reservation or a lease.
///
/// 128 bits that cannot be guessed. Where it has an [`Owner`], 32 of them depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(crate) [u64; 2]);

impl HoldId {
    /// Set in the first word of an id whose hold is stored.
    pub(crate) const LIMITED: u64 = 1 << 63;

    /// The id of a hold that is stored, of random bits.
    pub(crate) fn stored([first, second]: [u64; 2], owner: Option<Owner>) -> Self {
        let id = Self([first | Self::LIMITED, second]);
        owner.map_or(id, |owner| owner.mark(id))
    }

    /// The id of a reservation that no rule limits. It is not stored.
    pub(crate) const fn unlimited(fence: u64, expires: Timestamp) -> Self {
        Self([fence & !Self::LIMITED, expires.as_nanos()])
    }

    /// When a reservation expires that no rule limits; `None` for all others.
    pub(crate) fn expiry_of_unlimited(self) -> Option<Timestamp> {
        (self.0[0] & Self::LIMITED == 0).then(|| Timestamp::from_nanos(self.0[1]))
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}

/// This text is not the id of a hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HoldIdError;

impl fmt::Display for HoldIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of a reservation or lease has 32 hexadecimal digits")
    }
}

tidegate_core::debug_as_displayed!(HoldIdError);

impl std::error::Error for HoldIdError {}

impl FromStr for HoldId {
    type Err = HoldIdError;

    fn from_str(text: &str) -> Result<Self, HoldIdError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let half = |range| u64::from_str_radix(&text[range], 16).map_err(|_| HoldIdError);
        if is_hex { Ok(Self([half(0..16)?, half(16..32)?])) } else { Err(HoldIdError) }
    }
}

/// The client that a hold or an idempotency key belongs to, where an engine serves several: see
/// [`Request::owner`](crate::Request::owner).
///
/// ```
/// use tidegate::policy::Policy;
/// use tidegate::hold::Owner;
/// use tidegate::{Engine, Request};
///
/// let engine = Engine::new(Policy::from_toml(r#"
///     [[rule]]
///     name   = "calls"
///     bucket = { rate = "1/s", burst = 10 }
/// "#)?);
/// let (billing, search) = (Owner::new("billing"), Owner::new("search"));
/// let hold = engine.reserve(&Request::new("default", &[]).owner(billing))?.into_report().hold();
/// let hold = hold.expect("allowed");
/// assert!(billing.owns(hold) && !search.owns(hold));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u64);

impl Owner {
    /// The owner with this name, which is the same in every process.
    ///
    /// Names come from those who run the engine. Two of them that were chosen to collide would be one owner.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let fold = |hash: u64, byte: u8| mixed(hash ^ u64::from(byte)).wrapping_add(STEP);
        Self(mixed(name.bytes().fold(STEP ^ name.len() as u64, fold)))
    }

    /// Whether a hold was made by a request with this owner.
    ///
    /// The id itself says so: 32 of its bits depend on the owner and on all others. Of the holds of other
    /// owners, one in 2^32 passes. A reservation that no rule limits has no owner, and nothing to settle.
    #[must_use]
    pub fn owns(self, id: HoldId) -> bool {
        id.expiry_of_unlimited().is_some() || self.mark(id) == id
    }

    /// The id with the mark of this owner.
    pub(crate) fn mark(self, id: HoldId) -> HoldId {
        let HoldId([first, second]) = id;
        let rest = second & !MARK;
        HoldId([first, rest | mixed(self.0 ^ mixed(first ^ mixed(rest))) & MARK])
    }
}

/// A permutation of 64 bits in which every bit of the result depends on every bit of the number.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The bits of an id's second word that depend on its owner.
const MARK: u64 = 0xffff_ffff;
/// The odd number next to 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{HoldId, Owner};
    use tidegate_core::Timestamp;

    #[test]
    fn only_the_owner_owns_a_marked_id() {
        let names = ["", "a", "b", "ab", "ba", "a\0", "gateway", "gatewaz", "Gateway"];
        for name in names {
            for number in 0..1_000_u64 {
                let id = HoldId([number | HoldId::LIMITED, number.wrapping_mul(super::STEP)]);
                let marked = Owner::new(name).mark(id);
                assert_eq!(marked.0[0], id.0[0]);
                for other in names {
                    assert_eq!(Owner::new(other).owns(marked), name == other, "{name:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn a_mark_depends_on_every_bit_of_the_id() {
        let owner = Owner::new("gateway");
        let marks: HashSet<u64> = (0..96)
            .map(|bit| {
                let (first, second) = if bit < 64 { (1 << bit, 0) } else { (0, 1 << (bit - 32)) };
                owner.mark(HoldId([first, second])).0[1] & super::MARK
            })
            .collect();
        assert_eq!(marks.len(), 96);
    }

    #[test]
    fn a_hold_without_limits_has_no_owner() {
        let id = HoldId::unlimited(7, Timestamp::from_nanos(9));
        assert!(Owner::new("a").owns(id) && Owner::new("b").owns(id));
    }
}
