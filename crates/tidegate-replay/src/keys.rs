//! Keys as rules count them: their hashes, their names, and how many there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tidegate::policy::{Key, KeyPart};
use tidegate::{hash::KeyedHash, policy::Attributes};

use crate::estimate::DistinctEstimate;

/// The hash of a key: which attributes it has, and their values as they count. Rules with the same
/// attributes in their keys have the same keys.
pub(crate) fn key_hash(key: &Key, attributes: &Attributes<'_>, hash: &KeyedHash) -> u64 {
    hash.hash_one(HashedKey { key, attributes })
}

struct HashedKey<'a> {
    key: &'a Key,
    attributes: &'a Attributes<'a>,
}

impl Hash for HashedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for part in self.key.parts() {
            let name = part.attribute().as_bytes();
            state.write_usize(name.len());
            state.write(name);
            match (self.attributes.get(part.attribute()), part) {
                (None, _) => state.write_u8(0),
                (Some(value), KeyPart::Address { v4_bits, v6_bits, .. }) => {
                    match network(value, *v4_bits, *v6_bits) {
                        Some((IpAddr::V4(v4), bits)) => {
                            state.write_u8(1);
                            state.write_u32(v4.to_bits());
                            state.write_u8(bits);
                        }
                        Some((IpAddr::V6(v6), bits)) => {
                            state.write_u8(2);
                            state.write(&v6.octets());
                            state.write_u8(bits);
                        }
                        None => write_text(value, state),
                    }
                }
                (Some(value), KeyPart::Text(_)) => write_text(value, state),
            }
        }
    }
}

fn write_text(value: &str, state: &mut impl Hasher) {
    state.write_u8(3);
    state.write_usize(value.len());
    state.write(value.as_bytes());
}

/// The network of an address, as keys have it; `None` if the text is no address.
fn network(text: &str, v4_bits: u8, v6_bits: u8) -> Option<(IpAddr, u8)> {
    Some(match text.parse::<IpAddr>().ok()?.to_canonical() {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(v4_bits.into())).unwrap_or(0);
            (IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask)), v4_bits)
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(v6_bits.into())).unwrap_or(0);
            (IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)), v6_bits)
        }
    })
}

/// The values of a key as they count, in the order of its parts; whole addresses without their length.
pub(crate) fn key_values(key: &Key, attributes: &Attributes<'_>) -> Box<[Option<Box<str>>]> {
    let value = |part: &KeyPart| {
        let value = attributes.get(part.attribute())?;
        let KeyPart::Address { v4_bits, v6_bits, .. } = part else { return Some(value.into()) };
        Some(match network(value, *v4_bits, *v6_bits) {
            Some((address @ IpAddr::V4(_), 32)) | Some((address @ IpAddr::V6(_), 128)) => {
                address.to_string().into()
            }
            Some((address, bits)) => format!("{address}/{bits}").into(),
            None => value.into(),
        })
    };
    key.parts().iter().map(value).collect()
}

/// How often each key was seen, exactly for as many keys as fit, and how many keys there are.
///
/// Keys are counted in scopes: those of a rule, and those of several rules together.
#[derive(Debug)]
pub(crate) struct KeyTable {
    most: usize,
    keys: HashMap<u64, SeenKey, BuildHasherDefault<HashIsKey>>,
    scopes: Vec<Scope>,
    /// Whether there were more keys than fit.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenKey {
    requests: u32,
    scope: u32,
    is_denied: bool,
}

/// The keys of a scope.
#[derive(Debug, Default)]
struct Scope {
    keys: u64,
    denied: u64,
    /// Once there are more keys than fit.
    estimates: Option<[DistinctEstimate; 2]>,
}

impl KeyTable {
    pub(crate) fn new(most: usize, scopes: usize) -> Self {
        let scopes = (0..scopes).map(|_| Scope::default()).collect();
        Self { most, keys: HashMap::default(), scopes, is_full: false }
    }

    /// Whether there were more keys than fit, so that counts are estimates.
    pub(crate) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Counts a request of a key in a scope.
    #[inline]
    pub(crate) fn see(&mut self, scope: u32, hash: u64, is_denied: bool) {
        let hash = in_scope(scope, hash);
        let room = self.keys.len() < self.most;
        let Some(counts) = self.scopes.get_mut(scope as usize) else { return };
        match self.keys.entry(hash) {
            Entry::Occupied(mut known) => {
                let seen = known.get_mut();
                seen.requests = seen.requests.saturating_add(1);
                if is_denied && !seen.is_denied {
                    seen.is_denied = true;
                    counts.denied += 1;
                    if let Some([_, denied]) = &mut counts.estimates {
                        denied.add(hash);
                    }
                }
                return;
            }
            Entry::Vacant(vacant) if room => {
                vacant.insert(SeenKey { requests: 1, scope, is_denied });
                counts.keys += 1;
                counts.denied += u64::from(is_denied);
                return;
            }
            Entry::Vacant(_) => {}
        }
        self.start_estimating();
        let Some(counts) = self.scopes.get_mut(scope as usize) else { return };
        let [keys, denied] = counts.estimates.get_or_insert_default();
        keys.add(hash);
        if is_denied {
            denied.add(hash);
        }
    }

    /// Gives the estimates all keys that are known.
    fn start_estimating(&mut self) {
        if std::mem::replace(&mut self.is_full, true) {
            return;
        }
        for scope in &mut self.scopes {
            scope.estimates = (scope.keys > 0).then(Default::default);
        }
        for (hash, seen) in &self.keys {
            let scope = self.scopes.get_mut(seen.scope as usize);
            let Some([keys, denied]) = scope.and_then(|scope| scope.estimates.as_mut()) else {
                continue;
            };
            keys.add(*hash);
            if seen.is_denied {
                denied.add(*hash);
            }
        }
    }

    /// How many keys a scope has.
    pub(crate) fn keys(&self, scope: u32) -> u64 {
        let scope = &self.scopes[scope as usize];
        scope.estimates.as_ref().map_or(scope.keys, |[keys, _]| keys.count().max(scope.keys))
    }

    /// How many of them were denied at least once.
    pub(crate) fn denied(&self, scope: u32) -> u64 {
        let scope = &self.scopes[scope as usize];
        scope
            .estimates
            .as_ref()
            .map_or(scope.denied, |[_, denied]| denied.count().max(scope.denied))
    }

    /// How many requests a key had; `None` if it is not known.
    pub(crate) fn requests(&self, scope: u32, hash: u64) -> Option<u32> {
        self.keys.get(&in_scope(scope, hash)).map(|seen| seen.requests)
    }
}

/// A hash that differs from scope to scope. Each of its bits depends on all bits, as estimates need it.
#[inline]
fn in_scope(scope: u32, hash: u64) -> u64 {
    let mut hash = hash ^ u64::from(scope).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    hash ^ (hash >> 32)
}

/// The hash of a hash is the hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
