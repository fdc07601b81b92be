//! Commits over several servers: begins them, counts their parts, and ends them.

use std::collections::HashMap;

use smallvec::smallvec;
use tidegate_engine::Outage;
use tidegate_engine::shared::RecordKey;

use super::send::Sending;
use super::{Driver, Sent, extract};
use crate::batch::{Batch, Group, Job, Pending, Times};
use crate::cache::Seen;
use crate::commands::{Committed, is_redirection};
use crate::intent::Found;
use crate::key_map::{KeyMap, KeySet};
use crate::locks::lock;
use crate::settle::{Laid, Withdrawal};

mod parts;
mod settling;

use parts::{Part, PartState, parts};
use settling::{End, Settling};
pub(super) use settling::{Settled, Visited};

/// Commits over several servers, by the stamps of their intents.
#[derive(Default)]
pub(super) struct Several {
    open: HashMap<u64, Commit>,
    settling: HashMap<u64, Settling>,
    /// The keys of intents of other writers that are being settled.
    visits: KeySet,
}

/// A commit whose intents are being laid, or a comparison of values on several servers.
struct Commit {
    jobs: Vec<Job>,
    parts: Vec<Part>,
    now_ms: u64,
    /// Whether the keys are taken one after the other, in their order.
    is_ordered: bool,
    failure: Option<Outage>,
    /// Whether another writer came before.
    has_conflict: bool,
    /// Whether an intent may have been laid though it is not there any more.
    is_uncertain: bool,
    /// How many connections there had been when it began.
    connects: u64,
}

impl Several {
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.settling.is_empty()
    }

    pub(super) fn is_open(&self, stamp: u64) -> bool {
        self.open.contains_key(&stamp)
    }

    /// Whether no more commits may begin.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() + self.settling.len() >= MOST_COMMITS
    }

    /// The transactions of all commits.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &Job> {
        let settling = self.settling.values().flat_map(|it| match &it.end {
            End::Commit => &[][..],
            End::Withdraw { jobs, .. } => jobs,
        });
        self.open.values().flat_map(|commit| &commit.jobs).chain(settling)
    }
}

impl Commit {
    fn is_write(&self) -> bool {
        self.parts.iter().any(|part| part.intent.is_some())
    }

    fn laid(&self, are_wanted: impl Fn(&Part) -> bool) -> Laid {
        let intent = |part: &Part| part.intent.as_deref().filter(|_| are_wanted(part)).cloned();
        self.parts.iter().map(|part| (part.key, intent(part))).collect()
    }
}

/// A part to be sent to a server.
type PartToSend = (usize, Group, Pending);

impl Driver {
    /// Begins a commit, or a comparison, over several servers. Returns what is sent to each of them.
    pub(super) fn begin(
        &mut self,
        group: Group,
        pending: &mut KeyMap<Pending>,
        now_ms: u64,
    ) -> Vec<PartToSend> {
        let Group { jobs, mut keys, stamp, .. } = group;
        keys.sort_unstable();
        let pending: Vec<(RecordKey, Pending)> =
            keys.iter().filter_map(|key| Some((*key, pending.remove(key)?))).collect();
        let times = Times { now_ms, kept_longer: self.inbox.settings.kept_longer };
        let is_ordered = jobs.iter().any(|job| job.lost_rounds >= ORDERED_AFTER);
        let parts = parts(pending, stamp, times);
        let commit = Commit {
            jobs,
            parts,
            now_ms,
            is_ordered,
            failure: None,
            has_conflict: false,
            is_uncertain: false,
            connects: self.barriers.connects(),
        };
        self.several.open.insert(stamp, commit);
        self.next_parts(stamp)
    }

    /// The parts that can be sent now. Those whose server is gone are lost.
    fn next_parts(&mut self, stamp: u64) -> Vec<PartToSend> {
        let Some(commit) = self.several.open.get_mut(&stamp) else { return Vec::new() };
        let is_ordered = commit.is_ordered && commit.is_write();
        let mut to_send = Vec::new();
        for part in commit.parts.iter_mut().filter(|part| part.state == PartState::Unsent) {
            let lane = self.lanes.of(&part.key).filter(|number| {
                self.lanes.all.get(*number).is_some_and(|lane| lane.link.is_some())
            });
            let Some(lane) = lane else {
                part.state = PartState::Lost;
                self.busy.remove(&part.key);
                continue;
            };
            part.state = PartState::Sent;
            let mut group = Group::new(stamp);
            (group.keys, group.part_of) = (smallvec![part.key], Some(stamp));
            let mut pending = Pending::new(part.expected.clone(), None);
            pending.intent.clone_from(&part.intent);
            to_send.push((lane, group, pending));
            if is_ordered {
                break;
            }
        }
        to_send
    }

    /// A part has its response.
    pub(super) fn take_part(&mut self, (group, sent): (Group, &mut Sent), committed: Committed) {
        let (Some(stamp), Some(key)) = (group.part_of, group.keys.first().copied()) else { return };
        if !self.several.is_open(stamp) {
            // It was given up. The intent is settled when it is next met.
            return;
        }
        if committed == Committed::NoScript
            && let Some(lane) = self.lanes.all.get_mut(sent.lane)
        {
            lane.scripts_are_gone = true;
        }
        let error = match &committed {
            Committed::Refused(error) => Some(error.clone()),
            _ => None,
        };
        let is_done = matches!(committed, Committed::Yes | Committed::No(_));
        if sent.is_resend && !is_done {
            // What was sent before may have been done.
            self.keep_uncertain(group, &mut sent.batch.pending, sent.now_ms);
        } else {
            self.count_part((stamp, key), committed, sent);
        }
        if let Some(error) = error {
            self.refused(sent.lane, &error, Some(key));
        }
    }

    fn count_part(&mut self, (stamp, key): (u64, RecordKey), committed: Committed, sent: &Sent) {
        let Some(commit) = self.several.open.get_mut(&stamp) else { return };
        let found = match committed {
            Committed::Yes => return self.end_part(stamp, key, PartState::Laid),
            Committed::No(found) => {
                commit.has_conflict = true;
                commit.is_uncertain |= sent.is_resend && commit.is_write();
                found.into_iter().next().map(|(_, found)| found)
            }
            Committed::Refused(error) => {
                if !is_redirection(&error) {
                    commit.failure = commit.failure.or(Some(Outage::Unavailable));
                }
                None
            }
            Committed::NoScript => None,
        };
        self.busy.remove(&key);
        match found {
            Some(Ok(Found::Cell(cell))) => {
                let seen = Seen { cell, at_ns: sent.sent_ns };
                lock(&self.inbox.known).cache.insert(key, seen);
            }
            Some(Ok(Found::Intent(intent))) => self.meet(key, *intent),
            Some(Err(_)) => {
                lock(&self.inbox.known).cache.remove(&key);
                commit.failure = Some(Outage::Corrupt(key));
            }
            None => {}
        }
        self.end_part(stamp, key, PartState::Lost);
    }

    /// A comparison whose response is lost: nothing was changed.
    pub(super) fn part_is_lost(&mut self, stamp: u64, group: &Group) {
        if let Some(key) = group.keys.first() {
            self.busy.remove(key);
            self.end_part(stamp, *key, PartState::Lost);
        }
    }

    fn end_part(&mut self, stamp: u64, key: RecordKey, state: PartState) {
        let commit = self.several.open.get_mut(&stamp);
        if let Some(part) = commit.and_then(|it| it.parts.iter_mut().find(|part| part.key == key)) {
            part.state = state;
        }
        self.conclude(stamp);
    }

    /// Ends a commit if all of its parts have ended; goes on with the next one if they are ordered.
    fn conclude(&mut self, stamp: u64) {
        let Some(commit) = self.several.open.get(&stamp) else { return };
        let has = |state: PartState| commit.parts.iter().any(|part| part.state == state);
        if has(PartState::Sent) {
            return;
        }
        let is_lost = has(PartState::Lost);
        if !is_lost && has(PartState::Unsent) {
            for (lane, group, pending) in self.next_parts(stamp) {
                let Some(commit) = self.several.open.get(&stamp) else { return };
                let now_ms = commit.now_ms;
                let mut batch = Batch::default();
                batch.add_part(group, pending);
                self.send(batch, Sending { lane, now_ms, is_resend: false });
            }
            // The server of the next part may be gone.
            return self.conclude_unsent(stamp);
        }
        let Some(commit) = self.several.open.remove(&stamp) else { return };
        match (is_lost, commit.is_write()) {
            (false, true) => self.end_committed(stamp, commit),
            (false, false) => self.end_compared(commit),
            (true, _) => self.end_lost(stamp, commit),
        }
    }

    fn conclude_unsent(&mut self, stamp: u64) {
        let is_lost = self.several.open.get(&stamp).is_some_and(|commit| {
            let parts = &commit.parts;
            parts.iter().any(|part| part.state == PartState::Lost)
                && !parts.iter().any(|part| part.state == PartState::Sent)
        });
        if is_lost {
            self.conclude(stamp);
        }
    }

    /// All intents are laid: it is committed. What is left to do is not waited for.
    fn end_committed(&mut self, stamp: u64, commit: Commit) {
        let laid = commit.laid(|_| true);
        self.inbox.counters.commits.add(commit.jobs.len());
        self.inbox.counters.spread_commits.add(1);
        let keys: Vec<RecordKey> = laid.iter().map(|(key, _)| *key).collect();
        let since = Some(commit.connects);
        commit.jobs.into_iter().for_each(|job| self.complete(job, &keys, since));
        self.settle(stamp, Settling::new(laid, keys, End::Commit));
    }

    /// All values were those that were expected.
    fn end_compared(&mut self, commit: Commit) {
        commit.parts.iter().for_each(|part| {
            self.busy.remove(&part.key);
        });
        self.inbox.counters.commits.add(commit.jobs.len());
        let keys: Vec<RecordKey> = commit.parts.iter().map(|part| part.key).collect();
        let since = Some(commit.connects);
        commit.jobs.into_iter().for_each(|job| self.complete(job, &keys, since));
    }

    /// An intent could not be laid: what was there before is put back, and it is decided again.
    fn end_lost(&mut self, stamp: u64, mut commit: Commit) {
        if commit.has_conflict {
            self.inbox.counters.conflicts.add(1);
            let rounds = commit.jobs.iter_mut().map(|job| &mut job.lost_rounds);
            rounds.for_each(|rounds| *rounds = rounds.saturating_add(1));
        }
        let laid = commit.laid(|part| part.state == PartState::Laid);
        // Those that are lost can be used by others already.
        let is_busy = |part: &&Part| part.state != PartState::Lost;
        let keys: Vec<RecordKey> =
            commit.parts.iter().filter(is_busy).map(|part| part.key).collect();
        let Commit { jobs, failure, is_uncertain, .. } = commit;
        if laid.iter().all(|(_, intent)| intent.is_none()) {
            keys.iter().for_each(|key| {
                self.busy.remove(key);
            });
            return self.end_jobs(jobs, failure.or(is_uncertain.then_some(Outage::Unknown)));
        }
        let how = if is_uncertain { Withdrawal::Uncertain } else { Withdrawal::Lost };
        self.settle(stamp, Settling::new(laid, keys, End::Withdraw { jobs, how, failure }));
    }

    fn end_jobs(&mut self, jobs: Vec<Job>, failure: Option<Outage>) {
        match failure {
            Some(outage) => jobs.into_iter().for_each(|job| self.fail(job, outage)),
            None => self.wait_first(jobs),
        }
    }

    /// Ends transactions whose time is over. A commit that none of them waits for is given up.
    pub(super) fn expire_several(&mut self, now_ns: u64) {
        let mut late = Vec::new();
        let mut given_up = Vec::new();
        for (stamp, commit) in &mut self.several.open {
            let outage = if commit.is_write() { Outage::Unknown } else { Outage::Unavailable };
            let jobs = extract(&mut commit.jobs, |job| job.due_ns <= now_ns);
            late.extend(jobs.into_iter().map(|job| (job, outage)));
            if commit.jobs.is_empty() {
                given_up.push(*stamp);
            }
        }
        for settling in self.several.settling.values_mut() {
            if let End::Withdraw { jobs, how, .. } = &mut settling.end {
                let outage = match how {
                    Withdrawal::Lost => Outage::Unavailable,
                    Withdrawal::Uncertain => Outage::Unknown,
                };
                let jobs = extract(jobs, |job| job.due_ns <= now_ns);
                late.extend(jobs.into_iter().map(|job| (job, outage)));
            }
        }
        for (job, outage) in late {
            self.fail(job, outage);
        }
        for stamp in given_up {
            self.give_up(stamp);
        }
    }

    /// No transaction waits for a commit any more, and it is not known whether all intents are laid.
    fn give_up(&mut self, stamp: u64) {
        let Some(commit) = self.several.open.remove(&stamp) else { return };
        let laid = commit.laid(|part| matches!(part.state, PartState::Sent | PartState::Laid));
        let is_busy = |part: &&Part| part.state != PartState::Lost;
        let keys = commit.parts.iter().filter(is_busy).map(|part| part.key).collect();
        let how = Withdrawal::Uncertain;
        let end = End::Withdraw { jobs: Vec::new(), how, failure: None };
        self.settle(stamp, Settling::new(laid, keys, end));
    }
}

/// How many commits over several servers there are at once.
const MOST_COMMITS: usize = 1_024;

/// After so many lost rounds a commit takes its keys one after the other.
const ORDERED_AFTER: u8 = 2;
