//! The one record that all engines agree on: the policy in force, its edits, the rounds, and the
//! history of all limits.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};

use sha2::{Digest, Sha256};

use super::records::{Kind, RecordKey, Records, Write};
use crate::edits::{Change, ChangeLog, Overlay};
use crate::history::History;
use crate::periods::PeriodClocks;
use crate::store::record::{ByteReader, ByteWriter, EditedItem, Malformed, RuleImage};
use tidegate_policy::policy::Policy;

/// What is in force. Immutable: every edit, and every round that is closed, makes a new one with a
/// larger version.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// 0 before the first policy.
    pub(crate) version: u64,
    /// Distinguishes records of one version.
    stamp: u64,
    pub(crate) policy: Arc<Policy>,
    pub(crate) overlay: Overlay,
    pub(crate) changes: ChangeLog,
    /// Digests of the policies that were replaced, oldest first: an engine that starts with one of
    /// them does not bring it back.
    replaced: Vec<u64>,
    /// How many rounds of each domain were closed. The numbers do not change: the history counts
    /// periods by them, and a decision has to see one number from its start to its end.
    rounds: BTreeMap<Box<str>, Arc<AtomicU64>>,
    pub(crate) history: Arc<History>,
    /// How many cells new keys share while the store is full; `None` before it was full. The number
    /// does not change: a key has to find its cell again.
    pub(super) cells: Option<u64>,
}

impl Control {
    /// What is in force before any policy.
    pub(super) fn none(policy: Arc<Policy>) -> Self {
        Self {
            version: 0,
            stamp: 0,
            policy,
            overlay: Overlay::default(),
            changes: ChangeLog::default(),
            replaced: Vec::new(),
            rounds: BTreeMap::new(),
            history: Arc::default(),
            cells: None,
        }
    }

    /// Whether a policy that an engine starts with replaces the one in force.
    pub(crate) fn gives_way_to(&self, policy: &Policy) -> bool {
        let (own, new) = (self.policy.settings().revision(), policy.settings().revision());
        match (self.version, new.cmp(&own)) {
            (0, _) | (_, Ordering::Greater) => true,
            (_, Ordering::Less) => false,
            (_, Ordering::Equal) => {
                *policy != *self.policy && !self.replaced.contains(&digest(policy))
            }
        }
    }

    pub(crate) fn key() -> RecordKey {
        RecordKey(Kind::Control)
    }

    /// The rounds of a domain that were closed.
    pub(crate) fn rounds(&self, domain: &str) -> Arc<AtomicU64> {
        self.rounds.get(domain).map_or_else(Arc::default, Arc::clone)
    }

    /// The first version is a random number: after the records were lost, those of before do not
    /// come again.
    fn next_version(&self) -> u64 {
        if self.version == 0 { (new_stamp() >> 2) | (1 << 32) } else { self.version + 1 }
    }

    /// The control after an edit.
    pub(crate) fn edited(
        &self,
        policy: Arc<Policy>,
        overlay: Overlay,
        history: History,
        changes: &[Change],
    ) -> Self {
        let mut all = self.changes.clone();
        all.add(changes);
        let mut replaced = self.replaced.clone();
        if self.version != 0 && *policy != *self.policy {
            let (old, new) = (digest(&self.policy), digest(&policy));
            replaced.retain(|it| *it != old && *it != new);
            replaced.push(old);
            let excess = replaced.len().saturating_sub(MOST_REPLACED);
            replaced.drain(..excess);
        }
        Self {
            version: self.next_version(),
            stamp: new_stamp(),
            policy,
            overlay,
            changes: all,
            replaced,
            rounds: self.rounds.clone(),
            history: Arc::new(history),
            cells: self.cells,
        }
    }

    /// The control with a history that says the same, and is shorter.
    pub(super) fn with_history(&self, history: History) -> Self {
        let (version, stamp) = (self.next_version(), new_stamp());
        Self { version, stamp, history: Arc::new(history), ..self.clone() }
    }

    /// The control from when on new keys share cells; `None` if they do so already.
    pub(super) fn with_cells(&self, count: u64) -> Option<Self> {
        let (version, stamp, cells) = (self.next_version(), new_stamp(), Some(count.max(1)));
        let is_new = self.version != 0 && self.cells.is_none();
        is_new.then(|| Self { version, stamp, cells, ..self.clone() })
    }

    /// The control after a round of a domain was closed, and how many there are.
    pub(super) fn with_round_closed(&self, domain: &str, history: History) -> (Self, u64) {
        let closed = self.rounds(domain).load(atomic::Ordering::Acquire) + 1;
        let mut next = Self { version: self.next_version(), stamp: new_stamp(), ..self.clone() };
        next.rounds.insert(domain.into(), Arc::new(AtomicU64::new(closed)));
        // Its periods have to count by the new number.
        next.history = Arc::new(next.rebound(&history));
        (next, closed)
    }

    /// A history whose periods count by the rounds of this control.
    fn rebound(&self, history: &History) -> History {
        let mut bound = History::default();
        let mut period_clocks = PeriodClocks::default();
        for rule in history.rules() {
            let image = RuleImage::of_change(None, rule);
            let rule = image.applied_to(None, |periods, domain| {
                period_clocks.of(periods, domain, |domain| self.rounds(domain))
            });
            if let Some(rule) = rule {
                bound.insert(Arc::new(rule));
            }
        }
        bound
    }

    /// The control in the records that were read, by the one that was seen last, which has the same
    /// bytes mostly.
    pub(super) fn read(
        records: &Records,
        seen: &Arc<Self>,
    ) -> Result<Option<Arc<Self>>, Malformed> {
        let Some(Some(bytes)) = records.get(&Self::key()) else { return Ok(None) };
        let mut from = ByteReader(bytes);
        if from.bytes()? != CONTROL_MAGIC {
            return Err(Malformed);
        }
        let (version, stamp) = (from.number()?, from.word()?);
        if (version, stamp) == (seen.version, seen.stamp) {
            return Ok(Some(Arc::clone(seen)));
        }
        Self::read_rest(version, stamp, from).map(|control| Some(Arc::new(control)))
    }

    fn read_rest(version: u64, stamp: u64, mut from: ByteReader<'_>) -> Result<Self, Malformed> {
        let takes_own_limits = from.byte()? == 1;
        let policy = Policy::from_toml(from.text()?).map_err(|_| Malformed)?;
        let policy = if takes_own_limits { policy.with_request_limits() } else { policy };
        let overlay = Overlay::from_toml(from.text()?).map_err(|_| Malformed)?;
        let listed = from.list(|from| EditedItem::read(from).map(Change::from))?;
        let mut changes = ChangeLog::default();
        changes.add(&listed);
        let replaced = from.list(ByteReader::word)?;
        let rounds = from.list(|from| {
            let domain = Box::from(from.text()?);
            Ok((domain, Arc::new(AtomicU64::new(from.number()?))))
        })?;
        let images = from.list(RuleImage::read)?;
        let cells = from.option(ByteReader::number)?.filter(|count| *count > 0);
        let mut control = Self {
            version,
            stamp,
            overlay,
            changes,
            replaced,
            rounds: rounds.into_iter().collect(),
            cells,
            ..Self::none(Arc::new(policy))
        };
        let mut history = History::default();
        let mut period_clocks = PeriodClocks::default();
        for image in images {
            let rule = image.applied_to(None, |periods, domain| {
                period_clocks.of(periods, domain, |domain| control.rounds(domain))
            });
            history.insert(Arc::new(rule.ok_or(Malformed)?));
        }
        history.mark_forgotten();
        control.history = Arc::new(history);
        Ok(control)
    }

    /// The change that puts it into force; `None` if the policy cannot be written as text.
    pub(super) fn write(&self) -> Option<Write> {
        let text = self.policy.to_toml();
        let is_same = Policy::from_toml(&text).is_ok_and(|policy| policy == *self.policy);
        if !is_same {
            return None;
        }
        let mut out = ByteWriter::default();
        out.bytes(CONTROL_MAGIC);
        out.number(self.version);
        out.word(self.stamp);
        out.byte(u8::from(self.policy.takes_request_limits()));
        out.text(&text);
        out.text(&self.overlay.to_toml());
        out.list(self.changes.iter(), |out, change| EditedItem::from(change).write(out));
        out.list(self.replaced.iter(), |out, digest| out.word(*digest));
        out.list(self.rounds.iter(), |out, (domain, closed)| {
            out.text(domain);
            out.number(closed.load(atomic::Ordering::Acquire));
        });
        let rules: Vec<_> = self.history.rules().collect();
        out.list(rules.into_iter(), |out, rule| RuleImage::of_change(None, rule).write(out));
        out.option(self.cells, ByteWriter::number);
        Some(Write::new(Kind::Control, Some(out.0)))
    }
}

/// What a policy is recognised by.
fn digest(policy: &Policy) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&Sha256::digest(policy.to_toml())[..8]);
    u64::from_le_bytes(word)
}

/// How many policies that were replaced are remembered.
const MOST_REPLACED: usize = 64;

/// A number that no other record has, as far as chance allows.
pub(super) fn new_stamp() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8)
}

const CONTROL_MAGIC: &[u8] = b"tgc1";
