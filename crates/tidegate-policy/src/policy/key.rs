use std::fmt;

use super::text::{TextError, quoted};

/// The key of a rule: attributes of the request. Without any, all requests share one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub(crate) parts: Vec<KeyPart>,
}

/// One attribute of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The text of an attribute.
    Text(Box<str>),
    /// An address, cut to its network.
    Address {
        /// The attribute; `ip`.
        attribute: Box<str>,
        /// Bits of an IPv4 address that count.
        v4_bits: u8,
        /// Bits of an IPv6 address that count.
        v6_bits: u8,
    },
}

impl Key {
    /// The parts, in order.
    #[must_use]
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Adds a part as a policy file has it: a name, `ip`, `ip/N` (IPv6), `ip4/N` (IPv4), or
    /// `ip/text` for an address that counts as it is written.
    ///
    /// `ip/N` and `ip4/N` make one part. Any other repetition is an error.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), TextError> {
        let part = match text.split_once('/') {
            None if text == "ip" => AddressPrefix::Whole,
            Some(("ip", "text")) => return self.add_text("ip", text),
            Some(("ip", bits)) => AddressPrefix::V6(bits_of(text, bits, 128)?),
            Some(("ip4", bits)) => AddressPrefix::V4(bits_of(text, bits, 32)?),
            None if text == "ip4" => {
                return Err(TextError::new("`ip4` needs a number of bits").hint(
                    "write \"ip\" for whole addresses, or \"ip4/24\" to cut IPv4 addresses",
                ));
            }
            _ => {
                attribute_name(text)?;
                return self.add_text(text, text);
            }
        };
        self.add_address(text, part)
    }

    fn add_text(&mut self, attribute: &str, text: &str) -> Result<(), TextError> {
        let is_known = self.parts.iter().any(|part| part.attribute() == attribute);
        self.parts.push(KeyPart::Text(attribute.into()));
        if is_known { Err(is_repeated(text)) } else { Ok(()) }
    }

    fn add_address(&mut self, text: &str, cut: AddressPrefix) -> Result<(), TextError> {
        if self.parts.iter().any(|part| *part == KeyPart::Text("ip".into())) {
            return Err(is_repeated(text));
        }
        let known = self.parts.iter_mut().find_map(|part| match part {
            KeyPart::Address { v4_bits, v6_bits, .. } => Some((v4_bits, v6_bits)),
            KeyPart::Text(_) => None,
        });
        match (known, cut) {
            (None, cut) => {
                let (v4_bits, v6_bits) = match cut {
                    AddressPrefix::Whole => (V4_BITS, V6_BITS),
                    AddressPrefix::V4(bits) => (bits, V6_BITS),
                    AddressPrefix::V6(bits) => (V4_BITS, bits),
                };
                self.parts.push(KeyPart::Address { attribute: "ip".into(), v4_bits, v6_bits });
            }
            (Some((v4_bits, _)), AddressPrefix::V4(bits)) if *v4_bits == V4_BITS => *v4_bits = bits,
            (Some((_, v6_bits)), AddressPrefix::V6(bits)) if *v6_bits == V6_BITS => *v6_bits = bits,
            (Some(_), _) => return Err(is_repeated(text)),
        }
        Ok(())
    }
}

impl KeyPart {
    /// Its attribute.
    #[must_use]
    pub fn attribute(&self) -> &str {
        match self {
            Self::Text(attribute) | Self::Address { attribute, .. } => attribute,
        }
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(attribute) => f.write_str(attribute),
            Self::Address { attribute, v4_bits, v6_bits } => {
                let v4 = if *v4_bits == V4_BITS { "whole" } else { &format!("/{v4_bits}") };
                write!(f, "{attribute} (IPv4 {v4}, IPv6 /{v6_bits})")
            }
        }
    }
}

/// The part of an address that a key names.
#[derive(Clone, Copy)]
enum AddressPrefix {
    Whole,
    V4(u8),
    V6(u8),
}

/// Rejects invalid names of attributes.
pub(crate) fn attribute_name(name: &str) -> Result<(), TextError> {
    if name.is_empty() {
        return Err(TextError::new("the name of an attribute is empty"));
    }
    if name.chars().any(char::is_control) {
        return Err(TextError::new(format!("{} has a control character", quoted(name))));
    }
    Ok(())
}

fn bits_of(text: &str, bits: &str, most: u8) -> Result<u8, TextError> {
    let number = bits.parse::<u8>().ok().filter(|_| bits.bytes().all(|b| b.is_ascii_digit()));
    number.filter(|bits| (1..=most).contains(bits)).ok_or_else(|| {
        TextError::new(format!("{} has no number of bits from 1 to {most}", quoted(text))).hint(
            "\"ip/56\" cuts IPv6 addresses, \"ip4/24\" cuts IPv4 addresses, \"ip/text\" takes them as \
             they are written, [] is one key for all",
        )
    })
}

fn is_repeated(text: &str) -> TextError {
    TextError::new(format!("{} appears twice in the key", quoted(text)))
}

pub(crate) const V4_BITS: u8 = 32;
pub(crate) const V6_BITS: u8 = 64;
