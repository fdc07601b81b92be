//! Conditions on the values of attributes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::RuleError;
use super::key::attribute_name;
use super::text::{TextError, quoted};
use crate::attributes::Attributes;

/// A condition on one attribute: its value matches one of some patterns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    pub(crate) attribute: Box<str>,
    pub(crate) any_of: Vec<Pattern>,
}

/// A pattern for values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// This exact text.
    Equals(Box<str>),
    /// Text with `*` for any bytes.
    Glob(Box<str>),
    /// An integer from the first to the second, both included.
    Range(i64, i64),
    /// An address in a network.
    Network(IpAddr, u8),
}

/// Addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl Condition {
    /// A condition that an attribute matches one of the patterns, which are written as in a policy
    /// file.
    ///
    /// ```
    /// use tidegate::policy::Condition;
    ///
    /// let local = Condition::new("ip", ["10.0.0.0/8", "127.0.0.1"])?;
    /// # Ok::<(), tidegate::policy::RuleError>(())
    /// ```
    pub fn new<'p>(
        attribute: &str,
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, RuleError> {
        attribute_name(attribute)?;
        let any_of = patterns.into_iter().map(Pattern::read).collect::<Result<_, _>>()?;
        Ok(Self { attribute: attribute.into(), any_of })
    }

    /// A condition of patterns that were checked before they were stored.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_patterns(attribute: Box<str>, any_of: Vec<Pattern>) -> Self {
        Self { attribute, any_of }
    }

    /// The attribute and its value, if only one matches.
    #[doc(hidden)]
    #[must_use]
    pub fn only_value(&self) -> Option<(&str, String)> {
        let value = match &*self.any_of {
            [Pattern::Equals(text)] => text.to_string(),
            [Pattern::Network(address, bits)] if *bits == width(*address) => address.to_string(),
            _ => return None,
        };
        Some((&self.attribute, value))
    }

    /// The attribute it is about.
    #[must_use]
    pub fn attribute(&self) -> &str {
        &self.attribute
    }

    /// The patterns; one of them has to match.
    #[must_use]
    pub fn any_of(&self) -> &[Pattern] {
        &self.any_of
    }

    /// Whether a request meets it. One without the attribute does not.
    #[must_use]
    pub fn holds(&self, attributes: &Attributes<'_>) -> bool {
        attributes.get(&self.attribute).is_some_and(|value| self.allows(value))
    }

    /// Whether the attribute may have this value.
    #[doc(hidden)]
    #[must_use]
    pub fn allows(&self, value: &str) -> bool {
        // An address is read once, however many networks there are.
        let mut address = None;
        self.any_of.iter().any(|pattern| match pattern {
            Pattern::Network(network, bits) => address
                .get_or_insert_with(|| address_of(value))
                .is_some_and(|address| is_within(address, *network, *bits)),
            other => other.matches(value),
        })
    }
}

impl Pattern {
    /// Whether a value matches. Case matters; the time is linear in the value's length.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Self::Equals(text) => **text == *value,
            Self::Glob(glob) => glob_matches(glob, value),
            Self::Range(first, last) => {
                integer(value).is_some_and(|number| (*first..=*last).contains(&number))
            }
            Self::Network(network, bits) => {
                address_of(value).is_some_and(|address| is_within(address, *network, *bits))
            }
        }
    }

    /// Parses a pattern as a policy file has it.
    pub(crate) fn read(text: &str) -> Result<Self, TextError> {
        if let Some(text) = text.strip_prefix('=') {
            return Ok(Self::Equals(text.into()));
        }
        if let Some(range) = read_range(text)? {
            return Ok(Self::Range(*range.start(), *range.end()));
        }
        if let Some(network) = read_network(text)? {
            return Ok(Self::Network(network.address, network.bits));
        }
        Ok(if text.contains('*') { Self::Glob(text.into()) } else { Self::Equals(text.into()) })
    }
}

impl FromStr for Pattern {
    type Err = RuleError;

    /// A range (`1..=9`), a network (`10.0.0.0/8`), a glob (`/search/*`), or else a text. With `=`
    /// in front it is always a text: the rest of it.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::read(text).map_err(RuleError::from)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(text) => {
                // Text that would parse as another pattern is marked.
                let is_plain = Self::read(text).is_ok_and(|read| read == *self);
                f.write_str(if is_plain { "" } else { "=" })?;
                f.write_str(text)
            }
            Self::Glob(text) => f.write_str(text),
            Self::Range(i64::MIN, last) => write!(f, "..={last}"),
            Self::Range(first, i64::MAX) => write!(f, "{first}.."),
            Self::Range(first, last) => write!(f, "{first}..={last}"),
            Self::Network(address, bits) if *bits == width(*address) => write!(f, "{address}"),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl Network {
    /// The lowest address of the network.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits its addresses share.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address lies in it. `::ffff:a.b.c.d` is `a.b.c.d`.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        is_within(address.to_canonical(), self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = RuleError;

    /// A network (`10.0.0.0/8`, `2001:db8::/32`) or a single address.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        let no_network = || {
            TextError::new(format!("{} is not an address or network", quoted(text)))
                .hint("write \"192.0.2.7\", \"10.0.0.0/8\" or \"2001:db8::/32\"")
        };
        Ok(read_network(text)?.ok_or_else(no_network)?)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// The integer in a text: an optional minus and digits, nothing else.
pub(crate) fn integer(text: &str) -> Option<i64> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// The address in a text. `::ffff:a.b.c.d` is `a.b.c.d`.
pub fn address_of(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The leading bits of an address; the others are zero.
pub fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & v4_mask(bits))),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & v6_mask(bits))),
    }
}

/// The mask of an IPv4 network with this many bits.
pub fn v4_mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0)
}

/// The mask of an IPv6 network with this many bits.
pub fn v6_mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0)
}

/// How many bits an address of this family has.
pub(crate) const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

pub(crate) fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    address.is_ipv4() == network.is_ipv4() && masked(address, bits) == network
}

/// The network in a text: `None` if it is something else, an error if it nearly is one.
pub(crate) fn read_network(text: &str) -> Result<Option<Network>, TextError> {
    let (address_text, bits_text) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(raw) = address_text.parse::<IpAddr>() else {
        return if looks_like_network(text) {
            Err(TextError::new(format!("{} is not an address or network", quoted(text)))
                .hint("write \"192.0.2.7\", \"10.0.0.0/8\" or \"2001:db8::/32\""))
        } else {
            Ok(None)
        };
    };
    let address = raw.to_canonical();
    let Some(bits_text) = bits_text else {
        return Ok(Some(Network { address, bits: width(address) }));
    };
    let given = bits_text.parse::<u8>().ok().filter(|_| bits_text.bytes().all(is_digit));
    // An IPv4-mapped IPv6 address has 96 bits in front.
    let bits = given.and_then(|bits| bits.checked_sub(width(raw) - width(address)));
    let Some(bits) = bits.filter(|bits| *bits <= width(address)) else {
        return Err(TextError::new(format!("{} is not a network", quoted(text)))
            .hint(format!("the number of bits is from 0 to {}", width(address))));
    };
    let network = Network { address: masked(address, bits), bits };
    if network.address != address {
        return Err(TextError::new(format!("{} has bits set after its prefix", quoted(text)))
            .hint(format!("did you mean `{network}`, or the single address `{address}`?")));
    }
    Ok(Some(network))
}

/// Only digits and dots like a v4 address, or hex digits and colons like a v6 one.
fn looks_like_network(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    let is_v4 = address.bytes().all(|byte| is_digit(byte) || byte == b'.')
        && (address.matches('.').count() == 3 || (text.contains('/') && address.contains('.')));
    let is_v6 = address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        && address.matches(':').count() >= 2
        && address.contains("::");
    (is_v4 || is_v6) && bits.bytes().all(is_digit)
}

/// The range in a text: `None` if it is something else, an error if it nearly is one.
fn read_range(text: &str) -> Result<Option<RangeInclusive<i64>>, TextError> {
    let Some((first_text, last_text)) = text.split_once("..") else { return Ok(None) };
    let (is_closed, last_text) = match last_text.strip_prefix('=') {
        Some(last) => (true, last),
        None => (false, last_text),
    };
    let (first, last) = (integer(first_text), integer(last_text));
    if first.is_none() && last.is_none() {
        return Ok(None);
    }
    let bad = |why: &str| {
        TextError::new(format!("{} is not a range: {why}", quoted(text)))
            .hint("write \"1..=9\", \"1..10\", \"7..\" or \"..=4\"")
    };
    if (first.is_none() && !first_text.is_empty()) || (last.is_none() && !last_text.is_empty()) {
        return Err(bad("both ends are integers of 64 bits, or left out"));
    }
    if is_closed && last.is_none() {
        return Err(bad("`..=` needs an integer after it"));
    }
    let last = match last {
        None => i64::MAX,
        Some(last) if is_closed => last,
        Some(last) => last.checked_sub(1).ok_or_else(|| bad("it is empty"))?,
    };
    let first = first.unwrap_or(i64::MIN);
    if first > last { Err(bad("it is empty")) } else { Ok(Some(first..=last)) }
}

/// The text before the first `*`, then each piece at its earliest position, then the end.
fn glob_matches(glob: &str, value: &str) -> bool {
    let Some((head, tail)) = glob.split_once('*') else { return glob == value };
    let Some(mut rest) = value.strip_prefix(head) else { return false };
    let (middle, end) = tail.rsplit_once('*').unwrap_or(("", tail));
    for piece in middle.split('*').filter(|piece| !piece.is_empty()) {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(end)
}

const fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit()
}

#[cfg(test)]
mod tests;
