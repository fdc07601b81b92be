//! The nodes that share a store: each announces itself in one record of the namespace, and reads the
//! announcements of the others.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Pipeline, Value};

use crate::frame::new_stamp;

/// A store handle of a process that uses the same namespace of the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// Its name: `host:pid`, unless it has set [another](crate::RedisBuilder::node_name).
    pub name: String,
    /// The version of this crate that it uses.
    pub version: String,
    /// The address that it has [set](crate::Redis::set_node_address).
    pub address: Option<String>,
    /// The time since it announced itself, at most 10 s: after that it does not count as present.
    pub seen_ago: Duration,
    /// Whether it is the handle that lists the nodes.
    pub is_self: bool,
}

/// What a node writes of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) address: Option<String>,
    /// The server's time, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

impl Announcement {
    /// The value on the server: `tgn1`, the time (8 bytes), and three texts, each behind its length
    /// (1 byte). No address is an empty one.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(96);
        value.extend_from_slice(&NODE);
        value.extend_from_slice(&self.at_ms.to_le_bytes());
        for text in [&*self.name, &self.version, self.address.as_deref().unwrap_or_default()] {
            // Texts are checked when they are set.
            value.push(u8::try_from(text.len()).unwrap_or_default());
            value.extend_from_slice(text.as_bytes());
        }
        value
    }

    /// `None` for a value that no node has written.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (magic, rest) = value.split_first_chunk::<4>()?;
        let (at_ms, rest) = rest.split_first_chunk::<8>()?;
        if *magic != NODE {
            return None;
        }
        let (name, rest) = text(rest)?;
        let (version, rest) = text(rest)?;
        let (address, rest) = text(rest)?;
        let is_whole = rest.is_empty() && !name.is_empty();
        is_whole.then(|| Self {
            name: name.to_owned(),
            version: version.to_owned(),
            address: (!address.is_empty()).then(|| address.to_owned()),
            at_ms: u64::from_le_bytes(*at_ms),
        })
    }
}

/// The text behind a length, and the rest.
fn text(from: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = from.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    let text = std::str::from_utf8(text).ok()?;
    (text.is_empty() || is_text(text)).then_some((text, rest))
}

/// Whether it can be announced: 1 to 128 bytes that a terminal can show.
pub(crate) fn is_text(text: &str) -> bool {
    (1..=LONGEST_TEXT).contains(&text.len()) && !text.contains(char::is_control)
}

/// The name of this process: its host, and its number there.
pub(crate) fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let host = host.or_else(|| std::env::var("HOSTNAME").ok());
    let host = host.as_deref().map(str::trim).filter(|host| host.len() <= 64 && is_text(host));
    format!("{}:{}", host.unwrap_or("localhost"), std::process::id())
}

/// The nodes as of a reading.
#[derive(Debug)]
pub(crate) struct NodeList {
    /// When it was read, by the local clock.
    pub(crate) read_ns: u64,
    /// With the time since their announcements as of then. Itself first, the others by their names.
    pub(crate) nodes: Vec<Node>,
}

impl NodeList {
    /// The nodes that are present at a time of the local clock; `None` if that is not known any more.
    pub(crate) fn at(&self, now_ns: u64) -> Option<Vec<Node>> {
        let passed = Duration::from_nanos(now_ns.saturating_sub(self.read_ns));
        if passed > PRESENT {
            return None;
        }
        let later = |node: &Node| Node { seen_ago: node.seen_ago + passed, ..node.clone() };
        Some(self.nodes.iter().map(later).filter(|node| node.seen_ago <= PRESENT).collect())
    }
}

/// The record of the nodes, as one of them uses it.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The name of the record on the server.
    pub(crate) name: String,
    /// The field of the record that this node writes.
    id: u64,
    /// The announcements that were last read.
    seen: HashMap<u64, Sighting>,
    /// Fields whose nodes are long gone, to be removed.
    gone: Vec<u64>,
    /// When it is announced next, by the local clock.
    announce_at_ns: u64,
    /// Whether it may be in the record.
    is_announced: bool,
}

/// The last announcement of a node.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    at_ms: u64,
    /// When it was first read, by the local clock.
    since_ns: u64,
}

impl Registry {
    pub(crate) fn new(namespace: &str) -> Self {
        let name = format!("{namespace}:nodes");
        let (id, seen, gone) = (new_stamp(), HashMap::new(), Vec::new());
        Self { name, id, seen, gone, announce_at_ns: 0, is_announced: false }
    }

    /// Whether it is time to announce this node.
    pub(crate) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.announce_at_ns
    }

    /// Whether this node may be in the record.
    pub(crate) const fn is_announced(&self) -> bool {
        self.is_announced
    }

    /// The connection is a new one, perhaps to another server.
    pub(crate) const fn announce_soon(&mut self) {
        self.announce_at_ns = 0;
    }

    /// Announces this node, and reads the others.
    pub(crate) fn announce(&mut self, pipeline: &mut Pipeline, own: &Announcement, now_ns: u64) {
        let name = &self.name;
        pipeline.cmd("HSET").arg(name).arg(field(self.id)).arg(own.encode());
        pipeline.cmd("PEXPIRE").arg(name).arg(GONE.as_millis().to_string());
        // Not `HGETALL`, which has no bound.
        pipeline.cmd("HRANDFIELD").arg(name).arg(MOST_NODES).arg("WITHVALUES");
        if !self.gone.is_empty() {
            // One that stood still for so long may be back since: it announces itself again.
            let removal = pipeline.cmd("HDEL").arg(name);
            self.gone.drain(..).for_each(|id| {
                removal.arg(field(id));
            });
        }
        (self.announce_at_ns, self.is_announced) = (now_ns + ANNOUNCE_EVERY_NS, true);
    }

    /// Removes the announcement of this node.
    pub(crate) fn leave(&self, pipeline: &mut Pipeline) {
        pipeline.cmd("HDEL").arg(&self.name).arg(field(self.id));
    }

    /// The nodes in the responses to [`announce`](Self::announce), at the server's time and at that
    /// of the local clock.
    pub(crate) fn take(
        &mut self,
        responses: &[Value],
        now_ms: u64,
        now_ns: u64,
    ) -> Result<NodeList, Refused> {
        if let Some(Value::ServerError(error)) =
            responses.iter().find(|it| matches!(it, Value::ServerError(_)))
        {
            return Err(match error.code() {
                "NOPERM" => Refused::ForGood,
                _ => Refused::Now(crate::commands::refusal(error)),
            });
        }
        let read = responses.get(READ_AT).map(entries).unwrap_or_default();
        let before = std::mem::take(&mut self.seen);
        let mut nodes = Vec::new();
        for (id, found) in read {
            let known = before.get(&id).filter(|known| known.at_ms == found.at_ms);
            let sighting =
                known.copied().unwrap_or(Sighting { at_ms: found.at_ms, since_ns: now_ns });
            self.seen.insert(id, sighting);
            // The server's clock may have been set back since.
            let unchanged = Duration::from_nanos(now_ns.saturating_sub(sighting.since_ns));
            let seen_ago = Duration::from_millis(now_ms.saturating_sub(found.at_ms)).max(unchanged);
            if seen_ago > GONE {
                self.gone.push(id);
            } else if seen_ago <= PRESENT {
                let Announcement { name, version, address, .. } = found;
                nodes.push(Node { name, version, address, seen_ago, is_self: id == self.id });
            }
        }
        nodes.sort_by(|a, b| {
            (b.is_self, &a.name, &a.address).cmp(&(a.is_self, &b.name, &b.address))
        });
        Ok(NodeList { read_ns: now_ns, nodes })
    }
}

/// Why nodes cannot be listed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The user of the server may not.
    ForGood,
    /// The server says why.
    Now(String),
}

/// The announcements in a response; all other fields and values are left out.
fn entries(response: &Value) -> Vec<(u64, Announcement)> {
    let Value::Array(parts) = response else { return Vec::new() };
    let entry = |key: &Value, value: &Value| match (key, value) {
        (Value::BulkString(key), Value::BulkString(value)) => {
            Some((read_field(key)?, Announcement::decode(value)?))
        }
        _ => None,
    };
    // With RESP 3 each field and its value are an array.
    let pair = |it: &Value| match it {
        Value::Array(pair) => entry(pair.first()?, pair.get(1)?),
        _ => None,
    };
    if matches!(parts.first(), Some(Value::Array(_))) {
        return parts.iter().take(MOST_NODES).filter_map(pair).collect();
    }
    let pairs = parts.chunks_exact(2).take(MOST_NODES);
    pairs.filter_map(|pair| entry(pair.first()?, pair.get(1)?)).collect()
}

fn field(id: u64) -> String {
    format!("{id:016x}")
}

fn read_field(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok().filter(|text| text.len() == 16)?;
    let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    text.bytes().all(is_digit).then(|| u64::from_str_radix(text, 16).ok())?
}

/// What an announcement begins with: what it is, and the version of the form.
const NODE: [u8; 4] = *b"tgn1";

/// Where the announcements are in the responses.
const READ_AT: usize = 2;

/// How many nodes are read at most.
const MOST_NODES: usize = 1_024;

/// How many bytes a name, a version or an address has at most.
const LONGEST_TEXT: usize = 128;

/// How often a node announces itself.
const ANNOUNCE_EVERY_NS: u64 = 2_000_000_000;

/// For how long after its announcement a node counts as present.
const PRESENT: Duration = Duration::from_secs(10);

/// How long after its announcement a node is removed from the record, and the record from the server.
const GONE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
