//! What the responses of a batch mean: transactions end, or are decided again.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{RedisError, Value};
use tidegate::Outage;
use tidegate::shared::RecordKey;

use super::{Driver, Sent, local_ns, outage_of};
use crate::batch::{Change, Group, Pending};
use crate::cache::Seen;
use crate::commands::{Committed, Encoded, ReadFailure, cell, is_redirection};
use crate::control::ControlCopy;
use crate::frame::Cell;
use crate::locks::lock;
use crate::server_time::{ClockStep, RoundTrip};

impl Driver {
    pub(super) fn receive(&mut self, id: u64, response: Result<Vec<Value>, RedisError>) {
        let Some(mut sent) = self.sent.remove(&id) else { return };
        let responses = match response {
            Ok(responses) => responses,
            Err(error) => {
                self.sent.insert(id, sent);
                return self.lose_link(&error.to_string());
            }
        };
        if sent.is_resend
            && let Some(error) = Encoded::redirection(&responses)
        {
            // What was sent before may have been done, so it stays uncertain.
            self.sent.insert(id, sent);
            return self.refused(&error);
        }
        let trip = RoundTrip { sent_ns: sent.sent_ns, back_ns: local_ns() };
        self.observe_time(&sent, &responses, trip);
        self.take_control(&sent, &responses);
        self.take_reads(&mut sent, &responses);
        let groups = std::mem::take(&mut sent.batch.groups);
        for (number, group) in groups.into_iter().enumerate() {
            let of_batch = (&group, &sent.batch);
            let committed = sent.encoded.committed(number, of_batch, &responses, sent.stamp);
            for key in &group.keys {
                self.busy.remove(key);
            }
            if self.edits.on_its_way == Some(sent.stamp)
                && group.keys.iter().any(RecordKey::is_control)
            {
                self.edited((group, &sent), committed);
            } else {
                self.finish((group, &sent), committed);
            }
        }
    }

    pub(super) fn observe_time(&self, sent: &Sent, responses: &[Value], trip: RoundTrip) {
        let Some(Value::Array(parts)) = sent.encoded.time.and_then(|at| responses.get(at)) else {
            return;
        };
        let part = |at: usize| match parts.get(at) {
            Some(Value::BulkString(digits)) => {
                std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
            }
            _ => None,
        };
        let (Some(seconds), Some(micros)) = (part(0), part(1)) else { return };
        let server_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        match self.inbox.clock.observe(server_us, trip) {
            Some(ClockStep::Forward(by)) => {
                self.inbox.counters.clock_forward.add(1);
                tracing::warn!(?by, "the clock of the store was set forward; it counts as time");
            }
            Some(ClockStep::Back(by)) => {
                self.inbox.counters.clock_back.add(1);
                tracing::warn!(
                    ?by,
                    "the clock of the store was set back; nothing refills meanwhile"
                );
            }
            None => {}
        }
    }

    /// Takes over the record of the policy.
    pub(super) fn take_control(&mut self, sent: &Sent, responses: &[Value]) {
        let Some(value) = sent.encoded.control.and_then(|at| responses.get(at)) else { return };
        let inbox = Arc::clone(&self.inbox);
        let mut known = lock(&inbox.known);
        let cell = match value {
            Value::Int(_) => {
                if let Some(copy) = &mut known.control {
                    copy.read_ns = copy.read_ns.max(sent.sent_ns);
                }
                return;
            }
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.scripts_are_gone = true;
                self.wants_control = true;
                return;
            }
            value => cell(value),
        };
        let copy = match cell {
            Ok(cell) => ControlCopy::read(cell, sent.sent_ns).map_err(|_| ReadFailure::Foreign),
            Err(failure) => Err(failure),
        };
        match copy {
            Ok(copy) => {
                self.control_is_foreign = false;
                let was_there = known.control.as_ref().is_some_and(|old| old.cell.record.is_some());
                if was_there && copy.cell.record.is_none() {
                    self.inbox.counters.flushed.add(1);
                    tracing::error!(
                        "all records of the store are gone; the policy is put there again"
                    );
                    known.cache.clear();
                }
                known.control = Some(copy);
            }
            Err(ReadFailure::Foreign) => {
                drop(known);
                self.control_is_foreign = true;
                self.complain(|| {
                    tracing::error!("the record of the policy is not of this program")
                });
                let key = RecordKey::control();
                for job in std::mem::take(&mut self.waiting) {
                    self.fail(job, Outage::Corrupt(key));
                }
            }
            Err(ReadFailure::Refused(error)) => {
                drop(known);
                self.refused(&error);
            }
        }
    }

    pub(super) fn take_reads(&mut self, sent: &mut Sent, responses: &[Value]) {
        let reads = std::mem::take(&mut sent.batch.reads);
        if reads.is_empty() {
            return;
        }
        let mut failed: HashMap<RecordKey, ReadFailure> = HashMap::new();
        {
            let mut known = lock(&self.inbox.known);
            for (key, cell) in reads.into_iter().zip(sent.encoded.read(responses)) {
                self.busy.remove(&key);
                match cell {
                    Ok(cell) => known.cache.insert(key, Seen { cell, at_ns: sent.sent_ns }),
                    Err(failure) => drop(failed.insert(key, failure)),
                }
            }
        }
        let mut again = Vec::new();
        for job in std::mem::take(&mut sent.batch.readers) {
            match job.needs.iter().find_map(|key| Some((*key, failed.get(key)?))) {
                None => again.push(job),
                Some((key, ReadFailure::Foreign)) => self.fail(job, Outage::Corrupt(key)),
                Some((_, ReadFailure::Refused(error))) => {
                    self.refused(error);
                    if is_redirection(error) {
                        again.push(job);
                    } else {
                        self.fail(job, Outage::Unavailable);
                    }
                }
            }
        }
        self.wait_first(again);
    }

    /// The server has refused a command.
    pub(super) fn refused(&mut self, error: &str) {
        self.complain(|| tracing::warn!(error, "the store refuses a command"));
        if is_redirection(error) {
            // Not at once if that was the last thing that happened: a slot may be on its way.
            let connect_after_ns = self.connect_after_ns;
            self.lose_link(error);
            self.connect_after_ns = self.connect_after_ns.max(connect_after_ns);
        }
    }

    /// Ends the transactions of a group, or decides them again.
    pub(super) fn finish(&mut self, (group, sent): (Group, &Sent), committed: Committed) {
        match committed {
            Committed::Yes => {
                self.remember(&group, sent);
                self.inbox.counters.commits.add(group.jobs.len());
                group.jobs.into_iter().for_each(|job| job.transaction.complete());
            }
            Committed::No(found) => {
                self.inbox.counters.conflicts.add(1);
                let foreign = found.iter().find(|(_, cell)| cell.is_err()).map(|(key, _)| *key);
                let mut known = lock(&self.inbox.known);
                for (key, cell) in found {
                    match cell {
                        Ok(cell) => known.cache.insert(key, Seen { cell, at_ns: sent.sent_ns }),
                        Err(_) => known.cache.remove(&key),
                    }
                }
                drop(known);
                let is_unknown =
                    sent.is_resend && outage_of(&group, &sent.batch.pending) == Outage::Unknown;
                match (foreign, is_unknown) {
                    (Some(key), _) => {
                        group.jobs.into_iter().for_each(|job| self.fail(job, Outage::Corrupt(key)));
                    }
                    (None, true) => {
                        group.jobs.into_iter().for_each(|job| self.fail(job, Outage::Unknown));
                    }
                    (None, false) => self.wait_first(group.jobs),
                }
            }
            Committed::NoScript => {
                self.scripts_are_gone = true;
                self.wait_first(group.jobs);
            }
            Committed::Refused(error) => {
                self.refused(&error);
                if is_redirection(&error) {
                    return self.wait_first(group.jobs);
                }
                let outage = match sent.is_resend {
                    true => outage_of(&group, &sent.batch.pending),
                    false => Outage::Unavailable,
                };
                group.jobs.into_iter().for_each(|job| self.fail(job, outage));
            }
        }
    }

    /// What was committed is what the server has now.
    pub(super) fn remember(&self, group: &Group, sent: &Sent) {
        let mut known = lock(&self.inbox.known);
        for key in &group.keys {
            let Some(Pending { expected, change }) = sent.batch.pending.get(key) else { continue };
            let cell = match change {
                Some(Change { record, .. }) => {
                    Cell { stamp: Some(sent.stamp), record: record.clone() }
                }
                None => expected.clone(),
            };
            known.cache.insert(*key, Seen { cell, at_ns: sent.sent_ns });
        }
    }
}
