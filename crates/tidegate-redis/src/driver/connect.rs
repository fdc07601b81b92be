//! Connects to the server, and notices when it is gone.

use std::sync::Arc;

use tidegate_engine::Outage;

use super::server_poll::ServerPoll;
use super::{Driver, Event, Sent, local_ns};
use crate::batch::Group;
use crate::commands::{is_elsewhere, is_redirection};
use crate::error::ConnectFailure;
use crate::link::Link;
use crate::locks::lock;

impl Driver {
    /// Begins to connect if that is due.
    pub(super) fn connect(&mut self) {
        let is_wanted = self.link.is_none() && !self.is_connecting;
        if !is_wanted || local_ns() < self.connect_after_ns {
            return;
        }
        self.is_connecting = true;
        let (route, inbox) = (Arc::clone(&self.route), Arc::clone(&self.inbox));
        self.events.push(Box::pin(async move {
            let link = Link::connect(&route, &inbox.settings).await;
            Event::Connected(link.map(Box::new))
        }));
    }

    pub(super) fn connected(&mut self, link: Result<Box<Link>, ConnectFailure>) {
        self.is_connecting = false;
        self.connect_after_ns = local_ns() + RECONNECT_AFTER_NS;
        let link = match link {
            Ok(link) => *link,
            Err(ConnectFailure(error)) => {
                self.complain(|| tracing::warn!(%error, "cannot connect to the store"));
                *lock(&self.inbox.failure) = Some(error);
                return;
            }
        };
        tracing::info!(server = %link.server, "connected to the store");
        if !matches!(&*link.server.eviction, "" | "noeviction") {
            let policy = &link.server.eviction;
            tracing::warn!(%policy, "the server may evict records: set maxmemory-policy noeviction");
        }
        {
            let mut known = lock(&self.inbox.known);
            known.server = Some(link.server.clone());
            // What the new server has may be another thing.
            if let Some(control) = &mut known.control {
                control.read_ns = 0;
            }
        }
        (self.link, self.lost_ns, self.server_poll) = (Some(link), None, ServerPoll::default());
        self.polled_ns = 0;
        self.barriers.connected();
        self.nodes.announce_soon();
        self.inbox.counters.connects.add(1);
        *lock(&self.inbox.failure) = None;
        self.inbox.set_breaker(false);
        self.resend();
    }

    /// The connection is of no use any more. What was sent over it may have happened.
    pub(super) fn lose_link(&mut self, error: &str) {
        if self.link.take().is_none() {
            return;
        }
        let now_ns = local_ns();
        (self.lost_ns, self.connect_after_ns) = (Some(now_ns), now_ns);
        self.complain(|| tracing::warn!(error, "lost the connection to the store"));
        *lock(&self.inbox.failure) = Some(error.to_owned());
        self.contended.clear();
        // Their responses do not count any more.
        for (_, sent) in std::mem::take(&mut self.sent) {
            self.give_back(sent);
        }
        self.lose_barriers();
    }

    /// A batch whose responses are lost: what writes nothing is done again.
    fn give_back(&mut self, mut sent: Sent) {
        for key in std::mem::take(&mut sent.batch.reads) {
            self.busy.remove(&key);
        }
        self.wait_first(std::mem::take(&mut sent.batch.readers));
        for group in std::mem::take(&mut sent.batch.groups) {
            if sent.batch.outage_of(&group) == Outage::Unknown {
                self.keep_uncertain(group, &mut sent.batch.pending);
            } else {
                self.decide_again(group);
            }
        }
    }

    /// A batch that was not sent: all of it is done again, but what may have happened before.
    pub(super) fn take_back(&mut self, mut sent: Sent) {
        if sent.is_resend {
            return self.give_back(sent);
        }
        for group in std::mem::take(&mut sent.batch.groups) {
            if self.edits.on_its_way == Some(group.stamp) {
                self.edits.on_its_way = None;
            }
            self.decide_again(group);
        }
        self.give_back(sent);
    }

    /// Nothing was changed; it is decided anew.
    fn decide_again(&mut self, group: Group) {
        group.keys.iter().for_each(|key| {
            self.busy.remove(key);
        });
        self.wait_first(group.jobs);
    }

    /// The server has refused a command. Where another one has to do it, that is found anew.
    pub(super) fn refused(&mut self, error: &str) {
        self.complain(|| tracing::warn!(error, "the store refuses a command"));
        if !is_elsewhere(error) {
            *lock(&self.inbox.refusal) = Some(format!("the server refuses a command: {error}"));
        }
        if is_redirection(error) {
            // Not at once if that was the last thing that happened: a slot may be on its way.
            let after_ns = self.connect_after_ns;
            self.lose_link(error);
            self.connect_after_ns = self.connect_after_ns.max(after_ns);
        }
    }

    /// The server has done what it was sent.
    pub(super) fn accepted(&self) {
        *lock(&self.inbox.refusal) = None;
    }
}

/// How long after an attempt to connect the next one begins.
const RECONNECT_AFTER_NS: u64 = 100_000_000;
