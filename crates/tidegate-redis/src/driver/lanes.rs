//! The servers of a store, with a connection each, and which keys each of them has.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_engine::shared::RecordKey;

use crate::batch::Readiness;
use crate::link::Link;
use crate::servers::Servers;
use crate::slots::{Host, SLOTS, SlotMap, slot_of};

/// The servers of a store.
pub(super) struct Lanes {
    pub(super) all: Vec<Lane>,
    /// In a cluster, which of them have which slots; else the first one has all keys.
    pub(super) cluster: Option<ClusterSlots>,
    prefix: Arc<str>,
}

/// A server, and the connection to it.
pub(super) struct Lane {
    /// A node of a cluster; `None`: the server that has all keys, which is found anew each time.
    pub(super) host: Option<Host>,
    /// Whether it has any keys.
    pub(super) is_used: bool,
    pub(super) link: Option<Link>,
    pub(super) is_connecting: bool,
    pub(super) connect_after_ns: u64,
    /// Since when there is no connection.
    pub(super) lost_ns: Option<u64>,
    /// How many batches are on their way.
    pub(super) in_flight: usize,
    pub(super) scripts_are_gone: bool,
    pub(super) survey: Survey,
    /// A key that it has: the record of a barrier is in the same slot.
    pub(super) barrier_key: Option<RecordKey>,
}

/// What is read beside the batches.
#[derive(Default)]
pub(super) struct Survey {
    /// The number of the one that is on its way.
    pub(super) id: Option<u64>,
    /// When it was last sent.
    pub(super) sent_ns: u64,
    /// Where what was read of the nodes is in its responses.
    pub(super) nodes_at: Option<usize>,
}

/// Which servers have which slots.
pub(super) struct ClusterSlots {
    /// For each slot the number of its server, if it has one.
    pub(super) owners: Arc<[Option<u16>]>,
    /// Slots that are on their way to another server, and until when nothing is sent for them.
    paused: HashMap<usize, u64>,
    /// It changes with the owners.
    pub(super) generation: u64,
    pub(super) is_refreshing: bool,
    /// When the owners are read again, if they are to be.
    pub(super) refresh_at_ns: Option<u64>,
    /// Since when the record of the policy has no server.
    lost_ns: u64,
}

impl Lane {
    fn new(host: Option<Host>, now_ns: u64) -> Self {
        Self {
            host,
            is_used: true,
            link: None,
            is_connecting: false,
            connect_after_ns: 0,
            lost_ns: Some(now_ns),
            in_flight: 0,
            scripts_are_gone: false,
            survey: Survey::default(),
            barrier_key: None,
        }
    }

    /// Whether it can take more.
    pub(super) fn is_ready(&self) -> bool {
        self.link.is_some() && self.in_flight < MOST_BATCHES
    }
}

impl Lanes {
    /// Of one server, or of the nodes of a cluster, which are not known yet.
    pub(super) fn new(namespace: &str, is_spread: bool, now_ns: u64) -> Self {
        let cluster = is_spread.then(|| ClusterSlots {
            owners: vec![None; SLOTS].into(),
            paused: HashMap::new(),
            generation: 0,
            is_refreshing: false,
            refresh_at_ns: Some(now_ns),
            lost_ns: now_ns,
        });
        let all = if is_spread { Vec::new() } else { vec![Lane::new(None, now_ns)] };
        Self { all, cluster, prefix: format!("{namespace}:").into() }
    }

    fn slot(&self, key: &RecordKey) -> usize {
        slot_of(&format!("{}{key}", self.prefix))
    }

    /// The number of the server that has a key.
    pub(super) fn of(&self, key: &RecordKey) -> Option<usize> {
        match &self.cluster {
            None => Some(0),
            Some(cluster) => cluster.owners.get(self.slot(key))?.map(usize::from),
        }
    }

    /// The number of the server that has a name, which is that of no record.
    pub(super) fn of_name(&self, name: &str) -> Option<usize> {
        match &self.cluster {
            None => Some(0),
            Some(cluster) => cluster.owners.get(slot_of(name))?.map(usize::from),
        }
    }

    /// The number of the server that has all of some keys, if they can be committed at once.
    pub(super) fn of_all(&self, keys: &[RecordKey]) -> Option<usize> {
        let (first, others) = keys.split_first()?;
        if self.cluster.is_some() {
            let slot = self.slot(first);
            if others.iter().any(|key| self.slot(key) != slot) {
                return None;
            }
        }
        self.of(first)
    }

    /// The number of the server that has the record of the policy.
    pub(super) fn of_control(&self) -> Option<usize> {
        self.of(&RecordKey::control())
    }

    /// Whether the server of a key can take more.
    pub(super) fn readiness(
        &self,
        key: &RecordKey,
        (now_ns, deadline_ns): (u64, u64),
    ) -> Readiness {
        let number = match &self.cluster {
            None => Some(0),
            Some(cluster) => {
                let slot = self.slot(key);
                if cluster.paused.get(&slot).is_some_and(|until_ns| *until_ns > now_ns) {
                    return Readiness::Busy;
                }
                cluster.owners.get(slot).copied().flatten().map(usize::from)
            }
        };
        let Some(lane) = number.and_then(|number| self.all.get(number)) else {
            return Readiness::Busy;
        };
        // Without a cluster, all transactions fail at once while there is no connection for long.
        let is_away = lane.lost_ns.is_some_and(|lost_ns| lost_ns + deadline_ns <= now_ns);
        match &lane.link {
            Some(_) if lane.is_ready() => Readiness::Ready,
            None if is_away && self.cluster.is_some() => Readiness::Away,
            _ => Readiness::Busy,
        }
    }

    /// Whether any server can take more.
    pub(super) fn any_is_ready(&self) -> bool {
        self.all.iter().any(Lane::is_ready)
    }

    /// Since when there is no connection to the server that has the record of the policy.
    pub(super) fn lost_ns(&self) -> Option<u64> {
        match (self.of_control(), &self.cluster) {
            (Some(number), _) => self.all.get(number)?.lost_ns,
            (None, Some(cluster)) => Some(cluster.lost_ns),
            (None, None) => None,
        }
    }

    /// Whether all servers that have keys are connected.
    pub(super) fn are_all_connected(&self) -> bool {
        let mut used = self.all.iter().filter(|lane| lane.is_used).peekable();
        used.peek().is_some() && used.all(|lane| lane.link.is_some())
    }

    /// Takes over the owners of the slots. Returns the servers that have none any more.
    pub(super) fn take_map(&mut self, map: &SlotMap, now_ns: u64) -> Vec<usize> {
        let numbers: Vec<Option<u16>> =
            map.hosts.iter().map(|host| u16::try_from(self.lane_of(host, now_ns)).ok()).collect();
        let owner = |host: &Option<u16>| numbers.get(usize::from((*host)?)).copied().flatten();
        self.set_owners(map.owners.iter().map(owner).collect(), now_ns)
    }

    /// Takes over the new owner of one slot.
    pub(super) fn take_moved(&mut self, slot: usize, host: &Host, now_ns: u64) -> Vec<usize> {
        let number = u16::try_from(self.lane_of(host, now_ns)).ok();
        let Some(cluster) = &self.cluster else { return Vec::new() };
        let mut owners = cluster.owners.to_vec();
        if let Some(owner) = owners.get_mut(slot) {
            *owner = number;
        }
        self.set_owners(owners, now_ns)
    }

    fn set_owners(&mut self, owners: Vec<Option<u16>>, now_ns: u64) -> Vec<usize> {
        let control = self.of_control();
        let Some(cluster) = &mut self.cluster else { return Vec::new() };
        if *cluster.owners != *owners {
            cluster.generation += 1;
        }
        let mut is_used = vec![false; self.all.len()];
        for number in owners.iter().flatten() {
            is_used[usize::from(*number)] = true;
        }
        cluster.owners = owners.into();
        if control.is_some()
            && self.of_control().is_none()
            && let Some(it) = &mut self.cluster
        {
            it.lost_ns = now_ns;
        }
        let mut unused = Vec::new();
        for (number, (lane, is_used)) in self.all.iter_mut().zip(is_used).enumerate() {
            if lane.is_used && !is_used {
                unused.push(number);
            }
            if !lane.is_used && is_used {
                lane.lost_ns = lane.link.is_none().then_some(now_ns);
            }
            lane.is_used = is_used;
        }
        unused
    }

    /// The number of a node; one that is not used any more makes room.
    fn lane_of(&mut self, host: &Host, now_ns: u64) -> usize {
        if let Some(known) = self.all.iter().position(|lane| lane.host.as_ref() == Some(host)) {
            return known;
        }
        let new = Lane::new(Some(host.clone()), now_ns);
        let is_free = |lane: &Lane| {
            !lane.is_used && lane.link.is_none() && !lane.is_connecting && lane.in_flight == 0
        };
        match self.all.iter().position(is_free) {
            Some(free) => {
                self.all[free] = new;
                free
            }
            None => {
                self.all.push(new);
                self.all.len() - 1
            }
        }
    }

    /// Sends nothing for the slot of a key for a while, because it is on its way to another server.
    pub(super) fn pause(&mut self, key: &RecordKey, now_ns: u64) {
        let slot = self.slot(key);
        let Some(cluster) = &mut self.cluster else { return };
        cluster.paused.retain(|_, until_ns| *until_ns > now_ns);
        cluster.paused.insert(slot, now_ns + PAUSE_NS);
    }

    /// When the first of the paused slots can be used again.
    pub(super) fn paused_until_ns(&self, now_ns: u64) -> Option<u64> {
        let paused = self.cluster.as_ref()?.paused.values();
        paused.copied().filter(|until_ns| *until_ns > now_ns).min()
    }

    /// What single commands are sent with.
    pub(super) fn servers(&self, at_least_ms: u64) -> Servers {
        let connection = |lane: &Lane| lane.link.as_ref().map(|link| link.connection.clone());
        let sha = |lane: &Lane| lane.link.as_ref().map(|link| link.dialect.commit_sha.clone());
        Servers {
            connections: self.all.iter().map(connection).collect(),
            owners: self.cluster.as_ref().map(|cluster| Arc::clone(&cluster.owners)),
            prefix: Arc::clone(&self.prefix),
            commit_sha: self.all.iter().find_map(sha).unwrap_or_default().into(),
            at_least_ms,
        }
    }
}

/// How many batches are on their way to a server at most.
const MOST_BATCHES: usize = 2;

/// How long nothing is sent for a slot that is on its way to another server.
const PAUSE_NS: u64 = 5_000_000;

#[cfg(test)]
mod tests;
