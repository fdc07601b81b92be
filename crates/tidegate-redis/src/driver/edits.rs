//! Changes of the policy's record: one at a time, each ahead of the time from which it is in force.

use smallvec::smallvec;
use tidegate_core::Timestamp;
use tidegate_engine::shared::Write;
use tidegate_table::Clock;

use super::send::Sending;
use super::{Driver, Sent, extract};
use crate::batch::{Batch, Change, Group, Job, Pending};
use crate::commands::Committed;
use crate::control::ControlCopy;
use crate::frame::{self, Cell};
use crate::locks::lock;

/// Changes of the policy's record.
#[derive(Default)]
pub(super) struct Edits {
    /// They wait until the one before is in force.
    pub(super) queued: Vec<Job>,
    /// One that is on its way, by the stamp of its batch.
    pub(super) on_its_way: Option<u64>,
    /// They are written, and take force at these times, in microseconds since 1970.
    pub(super) written: Vec<Written>,
}

/// A change that is written.
pub(super) struct Written {
    job: Job,
    force_us: u64,
    /// How many connections there had been then.
    connects: u64,
}

impl Driver {
    /// Writes the record of the policy, to take force ahead of time.
    pub(super) fn edit(&mut self, job: Job, write: Write) {
        let copy = lock(&self.inbox.known).control.clone();
        let (now, latest) = (self.inbox.clock.now(), self.inbox.clock.latest());
        let can_begin = self.edits.on_its_way.is_none() && self.link.is_some();
        let copy = copy.filter(|copy| can_begin && copy.is_settled(now));
        let (Some(copy), Some(after)) = (copy, write.value) else {
            return self.edits.queued.push(job);
        };
        let lead_us = self.lead_ns() / 1_000;
        let force_us = latest.as_nanos() / 1_000 + lead_us + lead_us / 8;
        let record = copy.changed(&after, force_us);
        let change = Change { record: Some(record.into()), keep_for: None };
        let mut group = Group::new(frame::new_stamp());
        self.edits.on_its_way = Some(group.stamp);
        (group.jobs, group.keys) = (vec![job], smallvec![write.key]);
        let pending = Pending { expected: copy.cell, change: Some(change) };
        let batch = Batch::of(group, [(write.key, pending)].into_iter().collect());
        self.send(batch, Sending::First);
    }

    /// An edit has its response.
    pub(super) fn edited(&mut self, group: Group, sent: &Sent, committed: Committed) {
        self.edits.on_its_way = None;
        if committed != Committed::Yes {
            if let Committed::No(_) = &committed {
                // It has to be read again.
                if let Some(copy) = &mut lock(&self.inbox.known).control {
                    copy.read_ns = 0;
                }
            }
            return self.finish(group, sent, committed);
        }
        let change =
            group.keys.first().and_then(|key| sent.batch.pending.get(key)?.change.as_ref());
        let record = change.and_then(|change| change.record.clone());
        let cell = Cell { stamp: Some(group.stamp), record };
        let Ok(copy) = ControlCopy::read(cell, sent.sent_ns) else { return };
        let mut in_force_us = copy.force_us();
        if in_force_us > 0 {
            // Nodes that read it just before know of it by then.
            let latest_us = self.inbox.clock.latest().as_nanos() / 1_000;
            in_force_us = in_force_us.max(latest_us + self.lead_ns() / 1_000);
        }
        lock(&self.inbox.known).control = Some(copy);
        let (force_us, connects) = (in_force_us, self.barriers.connects());
        let written = group.jobs.into_iter().map(|job| Written { job, force_us, connects });
        self.edits.written.extend(written);
        self.finish_edits();
    }

    /// Completes the edits that have taken force, and goes on with those that wait.
    pub(super) fn finish_edits(&mut self) {
        let now_us = self.inbox.clock.now().as_nanos() / 1_000;
        let done = extract(&mut self.edits.written, |it| it.force_us <= now_us);
        self.inbox.counters.commits.add(done.len());
        for Written { job, connects, .. } in done {
            self.complete(job, Some(connects));
        }
        let now = Timestamp::from_nanos(now_us.saturating_mul(1_000));
        let is_settled =
            lock(&self.inbox.known).control.as_ref().is_some_and(|it| it.is_settled(now));
        if self.edits.on_its_way.is_none() && is_settled {
            self.waiting.append(&mut self.edits.queued);
        }
    }
}
