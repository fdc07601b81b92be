//! Reads from time to time what changes while the server runs: its replicas, its log, its keys.

use std::sync::atomic::Ordering;

use redis::{RedisError, Value};

use super::send::exchange;
use super::{Driver, Event, local_ns};
use crate::link::{appendfsync, read_appendfsync};
use crate::locks::lock;

/// What is read beside the batches.
#[derive(Default)]
pub(super) struct ServerPoll {
    /// The number of the one that is on its way.
    id: Option<u64>,
    /// When it was last sent.
    sent_ns: u64,
    /// Where what was read of the nodes is in its responses.
    nodes_at: Option<usize>,
}

impl Driver {
    pub(super) fn next_poll_ns(&self) -> Option<u64> {
        let is_due = self.link.is_some() && self.server_poll.id.is_none();
        is_due.then(|| self.server_poll.sent_ns.saturating_add(EVERY_NS))
    }

    /// Reads what the server says of itself, when it is time.
    pub(super) fn send_poll(&mut self) {
        let now_ns = local_ns();
        if self.next_poll_ns().is_none_or(|at_ns| now_ns < at_ns) {
            return;
        }
        let own = self.announcement(now_ns);
        let id = self.next_number();
        let Some(link) = &self.link else { return };
        let mut pipeline = redis::pipe();
        pipeline.cmd("INFO").arg("replication").arg("persistence");
        // What was refused once is not sent again: servers log it.
        if link.server.can_read_settings {
            pipeline.add_command(read_appendfsync());
        }
        if link.server.can_count {
            pipeline.cmd("DBSIZE");
        }
        let nodes_at = own.filter(|_| link.server.can_announce).map(|own| {
            let at = pipeline.len();
            self.nodes.announce(&mut pipeline, &own, now_ns);
            at
        });
        let connection = link.connection.clone();
        self.server_poll = ServerPoll { id: Some(id), sent_ns: now_ns, nodes_at };
        self.events.push(Box::pin(async move {
            Event::ServerPoll(id, exchange(connection, pipeline, 0).await)
        }));
    }

    pub(super) fn take_poll(&mut self, id: u64, responses: Result<Vec<Value>, RedisError>) {
        if self.server_poll.id != Some(id) {
            return;
        }
        self.server_poll.id = None;
        let nodes_at = self.server_poll.nodes_at.take();
        let responses = match responses {
            Ok(responses) => responses,
            Err(error) => return self.lose_link(&error.to_string()),
        };
        let Some(link) = &mut self.link else { return };
        let info = match responses.first() {
            Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Some(Value::VerbatimString { text, .. } | Value::SimpleString(text)) => text.clone(),
            _ => return,
        };
        let mut others = responses.iter().skip(1);
        let settings = link.server.can_read_settings.then(|| others.next()).flatten();
        link.server.update(&info, settings.and_then(appendfsync));
        let keys = link.server.can_count.then(|| others.next()).flatten();
        link.server.keys = match keys {
            Some(Value::Int(keys)) => u64::try_from(*keys).ok(),
            _ => None,
        };
        let is_refused = |it: &Value| matches!(it, Value::ServerError(it) if it.code() == "NOPERM");
        if keys.is_some_and(is_refused) && std::mem::replace(&mut link.server.can_count, false) {
            tracing::warn!(
                "the keys of the store cannot be counted, so max_keys has no effect: grant +dbsize"
            );
        }
        self.inbox.keys.store(link.server.keys.unwrap_or(0), Ordering::Relaxed);
        lock(&self.inbox.known).server = Some(link.server.clone());
        if let Some(nodes) = nodes_at.and_then(|at| responses.get(at..)) {
            self.take_nodes(nodes);
        }
    }
}

/// How often it is read.
const EVERY_NS: u64 = 250_000_000;
