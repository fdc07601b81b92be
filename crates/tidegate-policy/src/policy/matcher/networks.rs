use std::collections::HashMap;
use std::net::IpAddr;

use tidegate_table::hash::KeyedHash;

use super::Ids;
use crate::policy::pattern::masked;

/// Rules by network: one lookup for each length of prefix in use.
#[derive(Debug)]
pub(super) struct Networks {
    by_network: HashMap<(IpAddr, u8), Ids, KeyedHash>,
    /// Lengths in use, IPv4 and IPv6.
    v4_bits: Vec<u8>,
    v6_bits: Vec<u8>,
}

impl Networks {
    pub(super) fn new(hash: &KeyedHash) -> Self {
        let by_network = HashMap::with_hasher(hash.clone());
        Self { by_network, v4_bits: Vec::new(), v6_bits: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_network.is_empty()
    }

    /// The rules of one network, for adding.
    pub(super) fn at(&mut self, address: IpAddr, bits: u8) -> &mut Ids {
        let lengths = if address.is_ipv4() { &mut self.v4_bits } else { &mut self.v6_bits };
        if !lengths.contains(&bits) {
            lengths.push(bits);
        }
        self.by_network.entry((address, bits)).or_default()
    }

    /// The rules of all networks that contain the address.
    pub(super) fn look_up(&self, address: IpAddr, mut met: impl FnMut(&[u32])) {
        let lengths = if address.is_ipv4() { &self.v4_bits } else { &self.v6_bits };
        for bits in lengths {
            if let Some(ids) = self.by_network.get(&(masked(address, *bits), *bits)) {
                met(ids);
            }
        }
    }
}
