//! What the responses of a batch mean: transactions end, or are decided again.

use std::sync::Arc;

use redis::{RedisError, Value};
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;

use super::{Driver, Sent, local_ns};
use crate::batch::Group;
use crate::cache::Seen;
use crate::commands::{Committed, ReadFailure, cell, is_redirection};
use crate::control::ControlCopy;
use crate::frame::Cell;
use crate::key_map::KeyMap;
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
        let trip = RoundTrip { sent_ns: sent.sent_ns, back_ns: local_ns() };
        self.observe_time(&sent, &responses, trip);
        self.take_control(&sent, &responses);
        self.take_reads(&mut sent, &responses);
        let groups = std::mem::take(&mut sent.batch.groups);
        for (number, group) in groups.into_iter().enumerate() {
            let committed = sent.encoded.committed(number, &group, &sent.batch, &responses);
            self.take_group(group, &mut sent, committed);
        }
    }

    /// A group has its response.
    fn take_group(&mut self, group: Group, sent: &mut Sent, committed: Committed) {
        if sent.is_resend
            && let Committed::Refused(error) = &committed
            && is_redirection(error)
        {
            // What was sent before may have been done, so it stays uncertain.
            self.keep_uncertain(group, &mut sent.batch.pending);
            return self.refused(error);
        }
        if sent.is_resend && committed == Committed::NoScript {
            self.scripts_are_gone = true;
            return self.keep_uncertain(group, &mut sent.batch.pending);
        }
        for key in &group.keys {
            self.busy.remove(key);
        }
        if self.edits.on_its_way == Some(group.stamp)
            && group.keys.iter().any(RecordKey::is_control)
        {
            self.edited(group, sent, committed);
        } else {
            self.finish(group, sent, committed);
        }
    }

    pub(super) fn observe_time(&mut self, sent: &Sent, responses: &[Value], trip: RoundTrip) {
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
        let Some(step) = self.inbox.clock.observe(server_us, trip) else { return };
        let counters = &self.inbox.counters;
        match step {
            ClockStep::Forward(_) => counters.clock_forward.add(1),
            ClockStep::Back(_) => counters.clock_back.add(1),
        }
        if self.step_logs.may_log(trip.back_ns) {
            match step {
                ClockStep::Forward(by) => {
                    tracing::warn!(
                        ?by,
                        "the clock of the store stepped forward; it counts as time"
                    );
                }
                ClockStep::Back(by) => tracing::warn!(
                    ?by,
                    "the clock of the store stepped back; nothing refills until that time comes again"
                ),
            }
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
                if std::mem::take(&mut self.control_is_foreign) {
                    self.accepted();
                }
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
                let error = "the record of the policy is not of this program";
                self.complain(|| tracing::error!("{error}"));
                *lock(&self.inbox.refusal) = Some(error.to_owned());
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

    /// Takes over the records that were read. The transactions that wait for them are decided, or fail.
    pub(super) fn take_reads(&mut self, sent: &mut Sent, responses: &[Value]) {
        let reads = std::mem::take(&mut sent.batch.reads);
        if reads.is_empty() {
            return;
        }
        let mut failures: KeyMap<ReadFailure> = KeyMap::default();
        {
            let mut known = lock(&self.inbox.known);
            for (key, found) in reads.into_iter().zip(sent.encoded.read(responses)) {
                self.busy.remove(&key);
                match found {
                    Ok(cell) => known.cache.insert(key, Seen { cell, at_ns: sent.sent_ns }),
                    Err(failure) => drop(failures.insert(key, failure)),
                }
            }
        }
        let mut again = Vec::new();
        for job in std::mem::take(&mut sent.batch.readers) {
            let mut failed = job.needs.iter().filter_map(|key| Some((*key, failures.get(key)?)));
            let outage = failed.find_map(|(key, failure)| match failure {
                ReadFailure::Foreign => Some(Outage::Corrupt(key)),
                ReadFailure::Refused(error) => {
                    (!is_redirection(error)).then_some(Outage::Unavailable)
                }
            });
            match outage {
                Some(outage) => self.fail(job, outage),
                None => again.push(job),
            }
        }
        self.wait_first(again);
        for failure in failures.into_values() {
            if let ReadFailure::Refused(error) = failure {
                self.refused(&error);
            }
        }
    }

    /// Ends the transactions of a group, or decides them again.
    pub(super) fn finish(&mut self, group: Group, sent: &Sent, committed: Committed) {
        self.contended.committed(&group, &sent.batch.pending, committed == Committed::Yes);
        match committed {
            Committed::Yes => {
                self.remember(&group, sent);
                self.inbox.counters.commits.add(group.jobs.len());
                if sent.batch.outage_of(&group) == Outage::Unknown {
                    self.accepted();
                }
                group.jobs.into_iter().for_each(|job| self.complete(job, None));
            }
            Committed::No(found) => {
                self.inbox.counters.conflicts.add(1);
                let foreign = found.iter().find(|(_, found)| found.is_err()).map(|(key, _)| *key);
                let writes = sent.batch.outage_of(&group) == Outage::Unknown;
                for (key, found) in found {
                    match found {
                        Ok(cell) => {
                            if writes {
                                self.lost(key, &cell, sent);
                            }
                            let seen = Seen { cell, at_ns: sent.sent_ns };
                            lock(&self.inbox.known).cache.insert(key, seen);
                        }
                        Err(_) => lock(&self.inbox.known).cache.remove(&key),
                    }
                }
                match (foreign, sent.is_resend && writes) {
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
                    true => sent.batch.outage_of(&group),
                    false => Outage::Unavailable,
                };
                group.jobs.into_iter().for_each(|job| self.fail(job, outage));
            }
        }
    }

    /// Another node may have written a key before: then turns are taken, if it goes on.
    fn lost(&mut self, key: RecordKey, found: &Cell, sent: &Sent) {
        let expected = sent.batch.pending.get(&key).map(|pending| &pending.expected);
        if expected != Some(found) {
            self.contended.lost(key, found, sent.sent_ns);
        }
    }

    /// What was committed is what the server has now.
    pub(super) fn remember(&self, group: &Group, sent: &Sent) {
        let mut known = lock(&self.inbox.known);
        for key in &group.keys {
            if let Some(pending) = sent.batch.pending.get(key) {
                let cell = pending.after(group.stamp);
                known.cache.insert(*key, Seen { cell, at_ns: sent.sent_ns });
            }
        }
    }
}
