//! Announces this node to the others of the store, beside the polls of the server.

use redis::Value;

use super::send::exchange;
use super::{Driver, local_ns};
use crate::commands::{is_of_all_writes, is_redirection};
use crate::link::CONNECT_TIMEOUT;
use crate::locks::lock;
use crate::nodes::{Announcement, Refused};

impl Driver {
    /// What to announce, if it is time.
    ///
    /// Before there is a policy in the store nothing is written: a process that does not start leaves
    /// nothing behind.
    pub(super) fn announcement(&self, now_ns: u64) -> Option<Announcement> {
        let at_ms = self.inbox.clock.server_ms().filter(|_| self.nodes.is_due(now_ns))?;
        let own = lock(&self.inbox.own_node);
        let is_in_use = || {
            let known = lock(&self.inbox.known);
            known.control.as_ref().is_some_and(|copy| copy.cell.record.is_some())
        };
        if own.has_left || !is_in_use() {
            return None;
        }
        let (name, version) = (own.name.clone(), env!("CARGO_PKG_VERSION").to_owned());
        Some(Announcement { name, version, address: own.address.clone(), at_ms })
    }

    /// Takes over the nodes in the responses.
    pub(super) fn take_nodes(&mut self, responses: &[Value]) {
        let now_ms = self.inbox.clock.server_ms().unwrap_or_default();
        let list = match self.nodes.take(responses, now_ms, local_ns()) {
            Ok(list) => {
                let refusal = lock(&self.inbox.refusal).clone();
                if refusal.is_some_and(|it| is_of_all_writes(&it)) {
                    self.accepted();
                }
                Some(list)
            }
            Err(Refused::ForGood) => {
                tracing::warn!(
                    record = self.nodes.name,
                    "the nodes that share the store cannot be listed: grant +hset, +hdel, +hrandfield \
                     and +pexpire"
                );
                if let Some(link) = &mut self.link {
                    link.server.can_announce = false;
                }
                None
            }
            Err(Refused::Now(error)) => {
                if !is_redirection(&error) {
                    self.complain(|| tracing::warn!(error, "the store refuses to list its nodes"));
                }
                None
            }
        };
        *lock(&self.inbox.nodes) = list;
    }

    /// Removes this node from the record where that is requested.
    pub(super) fn leave_where_requested(&mut self) {
        let requests = std::mem::take(&mut lock(&self.inbox.own_node).leaving);
        if requests.is_empty() {
            return;
        }
        let removal = self.removal();
        tokio::spawn(async move {
            if let Some(removal) = removal {
                removal.await;
            }
            drop(requests);
        });
    }

    /// Removes this node from the record at its end.
    pub(super) async fn leave(&mut self) {
        if let Some(removal) = self.removal() {
            removal.await;
        }
    }

    /// Removes this node from the record, if it is in there and there is a connection.
    fn removal(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let link = self.link.as_ref().filter(|_| self.nodes.is_announced())?;
        let connection = link.connection.clone();
        let mut pipeline = redis::pipe();
        self.nodes.leave(&mut pipeline);
        Some(async move {
            // Without it, the others notice that it is gone after some seconds.
            let _ = tokio::time::timeout(CONNECT_TIMEOUT, exchange(connection, pipeline, 0)).await;
        })
    }
}
