//! Addresses of clients, derived from their keys.

use sha2::{Digest, Sha256};

/// The address of a public key at a relay: `pinch:` base58(key ‖ checksum) `@` host.
///
/// The checksum is the first four bytes of the key's SHA-256.
#[must_use]
pub fn address_of(public_key: &[u8; 32], host: &str) -> String {
    let checksum = Sha256::digest(public_key);
    let mut bytes = [0; 36];
    bytes[..32].copy_from_slice(public_key);
    bytes[32..].copy_from_slice(&checksum[..4]);
    format!("pinch:{}@{host}", base58(&bytes))
}

/// Bytes as a number in base 58, most significant digit first; each leading zero byte is a `1`.
fn base58(bytes: &[u8]) -> String {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    // Least significant digit first.
    let mut digits: Vec<usize> = Vec::with_capacity(bytes.len() * 2);
    for byte in &bytes[zeros..] {
        let mut carry = usize::from(*byte);
        for digit in &mut digits {
            carry += *digit * 256;
            *digit = carry % 58;
            carry /= 58;
        }
        while carry > 0 {
            digits.push(carry % 58);
            carry /= 58;
        }
    }
    let ones = std::iter::repeat_n(ALPHABET[0], zeros);
    let rest = digits.iter().rev().map(|digit| ALPHABET[*digit]);
    ones.chain(rest).map(char::from).collect()
}

/// Digits and letters without `0`, `O`, `I` and `l`.
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

#[cfg(test)]
mod tests;
