//! The migration of a slot, step by step.

use super::Cluster;
use crate::resp::Reply;
use crate::server::Server;
use crate::wait;

/// A slot on its way from one primary to another.
///
/// Until [`finish`](Self::finish) the source answers for keys that it still has, and with `ASK` for all
/// others; the target answers only after `ASKING`. Dropping this value leaves the slot in that state.
#[derive(Debug)]
#[must_use]
pub struct SlotMigration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl<'a> SlotMigration<'a> {
    #[track_caller]
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, to: usize) -> Self {
        let from = cluster.primary_of(slot);
        assert_ne!(from, to, "node {to} has slot {slot} already");
        let migration = Self { cluster, slot, from, to };
        // The target first, so that it knows the slot when the first client is sent to it.
        migration.set_slot(to, "IMPORTING", from);
        migration.set_slot(from, "MIGRATING", to);
        migration
    }

    /// The number of the node that had the slot.
    #[must_use]
    pub const fn from(&self) -> usize {
        self.from
    }

    /// The number of the node that gets it.
    #[must_use]
    pub const fn to(&self) -> usize {
        self.to
    }

    /// Moves some keys, at most this many. Returns how many there were.
    ///
    /// # Panics
    ///
    /// If a node answers with an error.
    #[track_caller]
    pub fn move_keys(&self, count: usize) -> usize {
        let slot = self.slot.to_string();
        let words = ["CLUSTER", "GETKEYSINSLOT", &slot, &count.to_string()];
        let keys = self.source().command(&words).success();
        let keys: Vec<&[u8]> = keys.array().iter().map(key_bytes).collect();
        if keys.is_empty() {
            return 0;
        }
        let port = self.cluster.nodes[self.to].address().port().to_string();
        let timeout_ms = "5000";
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", timeout_ms];
        if let Some(password) = self.source().password() {
            words.extend(["AUTH", password]);
        }
        words.push("KEYS");
        let words: Vec<_> = words.into_iter().map(str::as_bytes).chain(keys.clone()).collect();
        let _ = self.source().command(&words).success();
        keys.len()
    }

    /// Moves the keys that are left, and gives the slot to the target. Returns when all nodes know it.
    ///
    /// # Panics
    ///
    /// If a node answers with an error, or it takes too long.
    #[track_caller]
    pub fn finish(self) {
        while self.move_keys(KEYS_AT_ONCE) > 0 {}
        let primaries = self.cluster.running().filter(|(number, node)| {
            let is_primary = node.info("role").as_deref() == Some("master");
            is_primary && *number != self.to && *number != self.from
        });
        // The target first: it takes a new epoch, and the others follow it.
        self.set_slot(self.to, "NODE", self.to);
        self.set_slot(self.from, "NODE", self.to);
        for (number, _) in primaries {
            self.set_slot(number, "NODE", self.to);
        }
        wait::until("all nodes know the new owner of the slot", || {
            self.cluster.agreed_view(self.slot).is_some_and(|view| view.primary == self.to)
        });
    }

    #[track_caller]
    fn set_slot(&self, node: usize, what: &str, other: usize) {
        let (slot, id) = (self.slot.to_string(), &self.cluster.ids[other]);
        let _ =
            self.cluster.nodes[node].command(&["CLUSTER", "SETSLOT", &slot, what, id]).success();
    }

    fn source(&self) -> &Server {
        &self.cluster.nodes[self.from]
    }
}

fn key_bytes(reply: &Reply) -> &[u8] {
    match reply {
        Reply::Bulk(key) => key,
        other => panic!("the name of a key is a string, not {other:?}"),
    }
}

const KEYS_AT_ONCE: usize = 100;
