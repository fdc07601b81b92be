//! Finds the servers, connects to them, and notices when one is gone.

use std::sync::Arc;

use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;

use super::lanes::Survey;
use super::{Driver, Event, Sent, local_ns};
use crate::batch::Group;
use crate::error::ConnectFailure;
use crate::link::{CONNECT_TIMEOUT, Link};
use crate::locks::lock;
use crate::slots::{SlotMap, moved};

impl Driver {
    /// Begins to connect where that is due.
    pub(super) fn connect(&mut self) {
        let now_ns = local_ns();
        self.refresh(now_ns);
        for number in 0..self.lanes.all.len() {
            let lane = &mut self.lanes.all[number];
            let is_wanted = lane.is_used && lane.link.is_none() && !lane.is_connecting;
            if !is_wanted || now_ns < lane.connect_after_ns {
                continue;
            }
            lane.is_connecting = true;
            let (route, inbox) = (Arc::clone(&self.route), Arc::clone(&self.inbox));
            let host = lane.host.clone();
            self.events.push(Box::pin(async move {
                let link = Link::connect(&route, &inbox.settings, host.as_ref()).await;
                Event::Connected(number, link.map(Box::new))
            }));
        }
    }

    /// Reads which server has which slots, if that is due.
    fn refresh(&mut self, now_ns: u64) {
        let all = &self.lanes.all;
        let Some(cluster) = &mut self.lanes.cluster else { return };
        if cluster.is_refreshing || cluster.refresh_at_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        (cluster.is_refreshing, cluster.refresh_at_ns) = (true, None);
        let connected = all
            .iter()
            .filter_map(|lane| Some((lane.host.clone()?, lane.link.as_ref()?.connection.clone())));
        let (connected, route) = (connected.collect(), Arc::clone(&self.route));
        let timeout = CONNECT_TIMEOUT.max(self.inbox.settings.deadline);
        self.events
            .push(Box::pin(async move { Event::Slots(route.slots(connected, timeout).await) }));
    }

    /// The owners of the slots may have changed.
    pub(super) fn refresh_soon(&mut self, after_ns: u64) {
        if let Some(cluster) = &mut self.lanes.cluster {
            let at_ns = local_ns() + after_ns;
            cluster.refresh_at_ns = Some(cluster.refresh_at_ns.map_or(at_ns, |it| it.min(at_ns)));
        }
    }

    pub(super) fn take_slots(&mut self, slots: Result<SlotMap, ConnectFailure>) {
        if let Some(cluster) = &mut self.lanes.cluster {
            cluster.is_refreshing = false;
        }
        match slots {
            Ok(map) => {
                let control = self.lanes.of_control();
                let unused = self.lanes.take_map(&map, local_ns());
                self.drop_unused(unused, control);
                if self.lanes.are_all_connected() {
                    *lock(&self.inbox.failure) = None;
                }
            }
            Err(ConnectFailure(error)) => {
                self.complain(|| tracing::warn!(%error, "cannot read the slots of the cluster"));
                *lock(&self.inbox.failure) = Some(error);
            }
        }
        if !self.lanes.are_all_connected() {
            self.refresh_soon(RECONNECT_AFTER_NS);
        }
    }

    /// Servers without keys need no connection.
    fn drop_unused(&mut self, unused: Vec<usize>, control_before: Option<usize>) {
        for number in unused {
            self.lose_lane(number, "the node has no slots any more");
        }
        let control = self.lanes.of_control();
        let is_connected = control
            .is_some_and(|number| self.lanes.all.get(number).is_some_and(|it| it.link.is_some()));
        if control != control_before && is_connected {
            self.found_control();
        }
    }

    pub(super) fn connected(&mut self, number: usize, link: Result<Box<Link>, ConnectFailure>) {
        let Some(lane) = self.lanes.all.get_mut(number) else { return };
        lane.is_connecting = false;
        lane.connect_after_ns = local_ns() + RECONNECT_AFTER_NS;
        let link = match link {
            Ok(link) => *link,
            Err(ConnectFailure(error)) => {
                let error = match &lane.host {
                    Some((host, port)) => format!("the node at {host}:{port}: {error}"),
                    None => error,
                };
                self.complain(|| tracing::warn!(%error, "cannot connect to the store"));
                *lock(&self.inbox.failure) = Some(error);
                return self.refresh_soon(RECONNECT_AFTER_NS);
            }
        };
        if !lane.is_used {
            return;
        }
        tracing::info!(server = %link.server, "connected to the store");
        if !matches!(&*link.server.eviction, "" | "noeviction") {
            let policy = &link.server.eviction;
            tracing::warn!(%policy, "the server may evict records: set maxmemory-policy noeviction");
        }
        let server = link.server.clone();
        (lane.link, lane.lost_ns, lane.in_flight) = (Some(link), None, 0);
        lane.survey = Survey::default();
        self.barriers.connected();
        self.inbox.counters.connects.add(1);
        if self.lanes.are_all_connected() {
            *lock(&self.inbox.failure) = None;
        }
        if self.lanes.of_name(&self.nodes.name) == Some(number) {
            self.nodes.announce_soon();
        }
        if self.lanes.of_control() == Some(number) {
            lock(&self.inbox.known).server = Some(server);
            self.found_control();
        }
        self.resend();
    }

    /// There is a new connection to the server that has the record of the policy.
    fn found_control(&mut self) {
        self.inbox.set_breaker(false);
        // What the new server has may be another thing.
        if let Some(control) = &mut lock(&self.inbox.known).control {
            control.read_ns = 0;
        }
        self.polled_ns = 0;
    }

    /// A connection is of no use any more. What was sent over it may have happened.
    pub(super) fn lose_lane(&mut self, number: usize, error: &str) {
        let Some(lane) = self.lanes.all.get_mut(number) else { return };
        if lane.link.take().is_none() {
            return;
        }
        let now_ns = local_ns();
        (lane.lost_ns, lane.connect_after_ns, lane.in_flight) = (Some(now_ns), now_ns, 0);
        if lane.is_used {
            self.complain(|| tracing::warn!(error, "lost the connection to the store"));
            *lock(&self.inbox.failure) = Some(error.to_owned());
        }
        self.refresh_soon(0);
        self.turns.clear();
        // Their responses do not count any more.
        let ids: Vec<u64> =
            self.sent.iter().filter(|(_, it)| it.lane == number).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(sent) = self.sent.remove(&id) {
                self.give_back(sent);
            }
        }
        self.lose_barriers(number);
    }

    /// A batch whose responses are lost: what writes nothing is done again.
    fn give_back(&mut self, mut sent: Sent) {
        for (key, reader) in std::mem::take(&mut sent.batch.reads) {
            self.busy.remove(&key);
            self.has_read(reader, None);
        }
        let now_ms = sent.now_ms;
        for group in std::mem::take(&mut sent.batch.groups) {
            let is_write = sent.batch.outage_of(&group) == Outage::Unknown;
            match (group.part_of, is_write) {
                (Some(id), false) => self.part_is_lost(id, &group),
                (_, true) => self.keep_uncertain(group, &mut sent.batch.pending, now_ms),
                (None, false) => self.decide_again(group),
            }
        }
    }

    /// Nothing was changed; it is decided anew.
    fn decide_again(&mut self, group: Group) {
        group.keys.iter().for_each(|key| {
            self.busy.remove(key);
        });
        self.wait_first(group.jobs);
    }

    /// A server has refused a command for a key.
    pub(super) fn refused(&mut self, number: usize, error: &str, key: Option<RecordKey>) {
        self.complain(|| tracing::warn!(error, "the store refuses a command"));
        if !crate::commands::is_redirection(error) {
            return;
        }
        let now_ns = local_ns();
        if self.lanes.cluster.is_none() {
            // Not at once if that was the last thing that happened: a slot may be on its way.
            let after_ns = self.lanes.all.get(number).map_or(0, |lane| lane.connect_after_ns);
            self.lose_lane(number, error);
            if let Some(lane) = self.lanes.all.get_mut(number) {
                lane.connect_after_ns = lane.connect_after_ns.max(after_ns);
            }
            return;
        }
        *lock(&self.inbox.failure) = Some(error.to_owned());
        let host = self.lanes.all.get(number).and_then(|lane| lane.host.clone());
        match host.and_then(|host| moved(error, &host)) {
            Some((slot, owner)) => {
                let control = self.lanes.of_control();
                let unused = self.lanes.take_moved(slot, &owner, now_ns);
                self.drop_unused(unused, control);
                self.refresh_soon(REFRESH_AFTER_NS);
            }
            None => self.refused_for_now(number, error, key),
        }
    }

    /// In a cluster: a slot is on its way, or the server is none for clients at present.
    fn refused_for_now(&mut self, number: usize, error: &str, key: Option<RecordKey>) {
        let now_ns = local_ns();
        let code = error.split(' ').next().unwrap_or_default();
        match key {
            Some(key) if ["ASK", "TRYAGAIN", "CLUSTERDOWN"].contains(&code) => {
                self.lanes.pause(&key, now_ns);
            }
            _ => {
                self.lose_lane(number, error);
                if let Some(lane) = self.lanes.all.get_mut(number) {
                    lane.connect_after_ns = now_ns + REFRESH_AFTER_NS;
                }
            }
        }
        self.refresh_soon(REFRESH_AFTER_NS);
    }
}

/// How long after an attempt to connect the next one begins.
const RECONNECT_AFTER_NS: u64 = 100_000_000;

/// How long after a redirection the owners of the slots are read again.
const REFRESH_AFTER_NS: u64 = 20_000_000;
