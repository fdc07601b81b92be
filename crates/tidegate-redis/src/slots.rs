//! The slots of a cluster: which one a name is in, and which node has it.

use redis::Value;

/// A host and a port.
pub(crate) type Host = (String, u16);

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16_384;

/// Which node has which slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotMap {
    pub(crate) hosts: Vec<Host>,
    /// For each slot the number of its host, if it has one.
    pub(crate) owners: Vec<Option<u16>>,
}

impl SlotMap {
    /// Reads the response to `CLUSTER SLOTS`, as sent by a node: ranges of slots, each with its
    /// primary and replicas.
    pub(crate) fn read(response: &Value, from: &Host) -> Option<Self> {
        let Value::Array(ranges) = response else { return None };
        let mut map = Self { hosts: Vec::new(), owners: vec![None; SLOTS] };
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), primary, ..] = &**parts else { return None };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let Some(host) = host(primary, from) else { continue };
            let known = map.hosts.iter().position(|it| *it == host);
            let number = known.unwrap_or_else(|| {
                map.hosts.push(host);
                map.hosts.len() - 1
            });
            if map.hosts.len() > MOST_NODES {
                return None;
            }
            map.owners.get_mut(first..=last)?.fill(Some(u16::try_from(number).ok()?));
        }
        (!map.hosts.is_empty()).then_some(map)
    }
}

/// The address of a node. Without a host, it is another port of the node that has named it.
fn host(node: &Value, from: &Host) -> Option<Host> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = &**parts else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    let port = u16::try_from(*port).ok()?;
    match host {
        // A node that the others do not know the address of.
        "?" => None,
        "" => Some((from.0.clone(), port)),
        host => Some((host.to_owned(), port)),
    }
}

/// Where a node sends a client: a slot, if it says so, and the node that has it. Without a host, it
/// is another port of the node.
pub(crate) fn moved(error: &str, from: &Host) -> Option<(usize, Host)> {
    let mut words = error.split(' ');
    if words.next() != Some("MOVED") {
        return None;
    }
    let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
    Some((slot, redirected(words.next()?, from)?))
}

/// The address in a redirection.
pub(crate) fn redirected(address: &str, from: &Host) -> Option<Host> {
    let (host, port) = address.rsplit_once(':')?;
    let host = if host.is_empty() { &from.0 } else { host };
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

/// The slot of a name: of what is between its first `{` and the next `}`, unless that is nothing.
pub(crate) fn slot_of(name: &str) -> usize {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(name);
    usize::from(crc16(hashed.as_bytes())) % SLOTS
}

/// CRC-16 with the polynomial 0x1021, from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        CRC_OF_BYTE[usize::from((crc >> 8) ^ u16::from(*byte))] ^ (crc << 8)
    })
}

const CRC_OF_BYTE: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// More nodes than a cluster can have.
const MOST_NODES: usize = 1_024;

#[cfg(test)]
mod tests;
