//! A cluster of three primaries with a replica each.

pub use migration::SlotMigration;

use crate::program::Program;
use crate::replication::is_in_sync;
use crate::resp::Reply;
use crate::server::{Mode, Server, ServerBuilder};
use crate::wait;

mod migration;

/// Six nodes. At the start nodes 0, 1 and 2 are primaries of a third of the slots each, and nodes 3, 4 and 5
/// are their replicas.
///
/// A node that does not answer for a second counts as gone, and its replica replaces it.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    /// The name of each node in the cluster.
    ids: Vec<String>,
}

/// Who has a slot, as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SlotView {
    primary: usize,
    replicas: Vec<usize>,
}

impl Cluster {
    /// Starts all nodes, and waits until every node says that the cluster works.
    #[must_use]
    #[track_caller]
    pub fn start(program: Program) -> Self {
        Self::start_with(&Server::builder(program))
    }

    /// Starts all nodes, with the same settings.
    #[must_use]
    #[track_caller]
    pub fn start_with(settings: &ServerBuilder) -> Self {
        let settings = settings
            .clone()
            .mode(Mode::ClusterNode)
            .tls_between_servers()
            .set("cluster-node-timeout", "1000")
            // A replica may replace its primary however long it has not heard from it.
            .set("cluster-replica-validity-factor", "0")
            .set("repl-ping-replica-period", "1");
        let nodes: Vec<_> = (0..PRIMARIES * 2).map(|_| settings.clone().start()).collect();
        let ids = nodes.iter().map(|node| node.command(&["CLUSTER", "MYID"]).text()).collect();
        let cluster = Self { nodes, ids };
        cluster.give_slots();
        cluster.introduce_nodes();
        cluster.attach_replicas();
        wait::until("every node says that the cluster works", || cluster.is_settled());
        cluster
    }

    fn give_slots(&self) {
        for (number, node) in self.nodes.iter().enumerate() {
            // Nodes with the same epoch would have to settle that first.
            let epoch = (number + 1).to_string();
            let _ = node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).success();
        }
        for (number, node) in self.primaries_at_start() {
            let first = number * SLOTS / PRIMARIES;
            let last = (number + 1) * SLOTS / PRIMARIES - 1;
            let words = ["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()];
            let _ = node.command(&words).success();
        }
    }

    fn introduce_nodes(&self) {
        // Every node to every other: faster than waiting for gossip.
        for from in &self.nodes {
            for to in &self.nodes {
                let (port, bus) = (to.address().port().to_string(), to.bus_port().to_string());
                let _ = from.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).success();
            }
        }
        wait::until("every node knows every other", || {
            self.nodes.iter().all(|node| {
                let text = node.command(&["CLUSTER", "NODES"]).text();
                let is_met = |line: &str| !line.contains("handshake") && !line.contains("noaddr");
                self.ids.iter().all(|id| {
                    text.lines().any(|line| line.starts_with(id.as_str()) && is_met(line))
                })
            })
        });
    }

    fn attach_replicas(&self) {
        for (number, replica) in self.nodes.iter().enumerate().skip(PRIMARIES) {
            let primary = &self.ids[number - PRIMARIES];
            wait::until("a node accepts its primary", || {
                replica.command(&["CLUSTER", "REPLICATE", primary]).error().is_none()
            });
        }
    }

    fn primaries_at_start(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.nodes.iter().enumerate().take(PRIMARIES)
    }

    /// Whether all nodes that run agree on the owners of all slots, say that the cluster works, and have
    /// the data of their primaries.
    fn is_settled(&self) -> bool {
        let has_replicas = |slot| {
            let view = self.agreed_view(slot);
            view.is_some_and(|view| !self.all_run() || !view.replicas.is_empty())
        };
        let firsts = (0..PRIMARIES).map(|number| number * SLOTS / PRIMARIES);
        firsts.into_iter().all(|slot| u16::try_from(slot).is_ok_and(has_replicas))
            && self.running().all(|(_, node)| {
                let is_replica = node.info("role").as_deref() == Some("slave");
                node.try_command(&["CLUSTER", "INFO"])
                    .is_ok_and(|reply| reply.text().contains("cluster_state:ok"))
                    && (!is_replica || is_in_sync(node))
            })
    }

    fn all_run(&self) -> bool {
        self.running().count() == self.nodes.len()
    }

    /// Waits until all nodes that run agree on the owners of the slots and say that the cluster works.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    #[track_caller]
    pub fn until_settled(&self) {
        wait::until("every node says that the cluster works", || self.is_settled());
    }

    /// All nodes, also those that were killed.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_running())
    }

    /// The number of the primary that has a slot, on which all nodes that run agree.
    ///
    /// # Panics
    ///
    /// If they do not agree for too long.
    #[must_use]
    #[track_caller]
    pub fn primary_of(&self, slot: u16) -> usize {
        self.view_of(slot).primary
    }

    #[track_caller]
    fn view_of(&self, slot: u16) -> SlotView {
        let mut view = None;
        wait::until("the nodes agree on the owner of a slot", || {
            view = self.agreed_view(slot);
            view.is_some()
        });
        view.expect("was waited for")
    }

    /// The owner of a slot, if all running nodes name the same.
    fn agreed_view(&self, slot: u16) -> Option<SlotView> {
        let mut views = self.running().map(|(_, node)| self.view(node, slot));
        let first = views.next()??;
        views.all(|view| view.is_some_and(|view| view.primary == first.primary)).then_some(first)
    }

    /// The owner of a slot and its replicas, as a node sees it.
    fn view(&self, node: &Server, slot: u16) -> Option<SlotView> {
        let Ok(Reply::Array(ranges)) = node.try_command(&["CLUSTER", "SLOTS"]) else { return None };
        ranges.iter().find_map(|range| {
            let [first, last, members @ ..] = range.array() else { return None };
            if !(first.integer()..=last.integer()).contains(&i64::from(slot)) {
                return None;
            }
            // The address, the port, the name, and more.
            let number = |member: &Reply| {
                let id = member.array().get(2)?.text();
                self.ids.iter().position(|it| *it == id)
            };
            let (primary, replicas) = members.split_first()?;
            let replicas = replicas.iter().filter_map(number).collect();
            Some(SlotView { primary: number(primary)?, replicas })
        })
    }

    /// The slot of a key.
    ///
    /// # Panics
    ///
    /// If no node runs.
    #[must_use]
    #[track_caller]
    pub fn slot_of(&self, key: &str) -> u16 {
        let (_, node) = self.running().next().expect("no node runs");
        let slot = node.command(&["CLUSTER", "KEYSLOT", key]).integer();
        u16::try_from(slot).expect("there are 16384 slots")
    }

    /// Kills the primary of a slot, and returns its number. [`until_replaced`](Self::until_replaced) waits
    /// for the new one.
    #[track_caller]
    pub fn kill_primary(&self, slot: u16) -> usize {
        let primary = self.primary_of(slot);
        self.nodes[primary].kill();
        primary
    }

    /// Waits until another node than this one is the primary of a slot and the cluster works. Returns the
    /// number of the new one.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    #[track_caller]
    pub fn until_replaced(&self, slot: u16, old: usize) -> usize {
        wait::until("a replica replaces its primary", || {
            self.agreed_view(slot).is_some_and(|view| view.primary != old) && self.is_settled()
        });
        self.primary_of(slot)
    }

    /// Makes a replica the primary of a slot, although the primary works. Returns the number of the new one
    /// when it is done.
    ///
    /// # Panics
    ///
    /// If the primary has no replica, or it takes too long.
    #[track_caller]
    pub fn failover(&self, slot: u16) -> usize {
        self.until_settled();
        let view = self.view_of(slot);
        let replica = *view.replicas.first().expect("the primary has no replica");
        let _ = self.nodes[replica].command(&["CLUSTER", "FAILOVER"]).success();
        self.until_replaced(slot, view.primary)
    }

    /// Begins to move a slot to another primary, and returns in the middle of it.
    ///
    /// # Panics
    ///
    /// If the node is no primary, or has the slot.
    #[track_caller]
    pub fn migrate_slot(&self, slot: u16, to: usize) -> SlotMigration<'_> {
        SlotMigration::begin(self, slot, to)
    }
}

const SLOTS: usize = 16_384;
const PRIMARIES: usize = 3;
