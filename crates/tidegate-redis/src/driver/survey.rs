//! Reads from time to time what changes while servers run: their replicas, their logs, their keys.

use std::sync::atomic::Ordering;

use redis::{RedisError, Value};

use super::send::exchange;
use super::{Driver, Event, local_ns};
use crate::facts::ServerFacts;
use crate::link::{appendfsync, read_appendfsync};
use crate::locks::lock;

impl Driver {
    pub(super) fn next_survey_ns(&self) -> Option<u64> {
        let lanes = self.lanes.all.iter();
        let due = lanes.filter(|lane| lane.link.is_some() && lane.survey.id.is_none());
        due.map(|lane| lane.survey.sent_ns.saturating_add(EVERY_NS)).min()
    }

    /// Reads what the servers say of themselves, when it is time.
    pub(super) fn send_surveys(&mut self) {
        let now_ns = local_ns();
        if self.next_survey_ns().is_none_or(|at_ns| now_ns < at_ns) {
            return;
        }
        let mut announcement = self.announcement(now_ns);
        for (number, lane) in self.lanes.all.iter_mut().enumerate() {
            let is_due = now_ns >= lane.survey.sent_ns.saturating_add(EVERY_NS);
            let Some(link) = lane.link.as_ref().filter(|_| lane.survey.id.is_none() && is_due)
            else {
                continue;
            };
            let mut pipeline = redis::pipe();
            pipeline.cmd("INFO").arg("replication").arg("persistence");
            // What was refused once is not sent again: servers log it.
            if link.server.can_read_settings {
                pipeline.add_command(read_appendfsync());
            }
            if link.server.can_count {
                pipeline.cmd("DBSIZE");
            }
            let own = announcement.take_if(|(at, _)| *at == number && link.server.can_announce);
            lane.survey.nodes_at = own.map(|(_, own)| {
                let at = pipeline.len();
                self.nodes.announce(&mut pipeline, &own, now_ns);
                at
            });
            let count = pipeline.len();
            self.last_number += 1;
            let (id, connection) = (self.last_number, link.connection.clone());
            (lane.survey.id, lane.survey.sent_ns) = (Some(id), now_ns);
            self.events.push(Box::pin(async move {
                Event::Survey(id, number, exchange(connection, (pipeline, count), false).await)
            }));
        }
    }

    pub(super) fn take_survey(
        &mut self,
        id: u64,
        number: usize,
        responses: Result<Vec<Value>, RedisError>,
    ) {
        let lane = self.lanes.all.get_mut(number).filter(|lane| lane.survey.id == Some(id));
        let Some(lane) = lane else { return };
        lane.survey.id = None;
        let nodes_at = lane.survey.nodes_at.take();
        let responses = match responses {
            Ok(responses) => responses,
            Err(error) => return self.lose_lane(number, &error.to_string()),
        };
        let Some(link) = &mut lane.link else { return };
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
        self.publish_facts();
        if let Some(nodes) = nodes_at.and_then(|at| responses.get(at..)) {
            self.take_nodes(number, nodes);
        }
    }

    /// What is known of all servers together: that of the record of the policy, with what the others
    /// have less.
    fn publish_facts(&mut self) {
        let control = self.lanes.of_control().unwrap_or(0);
        let of_lane = |number: usize| Some(&self.lanes.all.get(number)?.link.as_ref()?.server);
        let Some(mut facts) = of_lane(control).cloned() else { return };
        let others = (0..self.lanes.all.len()).filter(|number| *number != control);
        others.filter_map(of_lane).for_each(|other: &ServerFacts| facts.join(other));
        self.inbox.keys.store(facts.keys.unwrap_or(0), Ordering::Relaxed);
        lock(&self.inbox.known).server = Some(facts);
    }
}

/// How often it is read.
const EVERY_NS: u64 = 250_000_000;
