//! The parts of a commit over several servers: one for each key.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::shared::RecordKey;

use crate::batch::{Pending, Times};
use crate::frame::Cell;
use crate::intent::{After, Intent, Member, Phase};

/// One key of a commit.
pub(super) struct Part {
    pub(super) key: RecordKey,
    pub(super) expected: Cell,
    /// `None` if the value is only compared.
    pub(super) intent: Option<Arc<Intent>>,
    pub(super) state: PartState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartState {
    Unsent,
    /// Its response is awaited, or it is to be sent again.
    Sent,
    Laid,
    /// It is not there, and never will be.
    Lost,
}

/// The parts of a commit over these keys, which are in order; the first is the primary.
pub(super) fn parts(pending: Vec<(RecordKey, Pending)>, stamp: u64, times: Times) -> Vec<Part> {
    let member = |(key, pending): &(RecordKey, Pending)| Member {
        key: *key,
        expected: pending.expected.stamp,
    };
    let members: Arc<[Member]> = pending.iter().map(member).collect();
    let is_write = pending.iter().any(|(_, pending)| pending.writes());
    let after = |pending: &Pending| match &pending.change {
        None => After::Unchanged,
        Some(change) => {
            let Cell { expires_ms, record, .. } = change.cell(stamp, times);
            After::Changed { expires_ms, record }
        }
    };
    let afters: Vec<After> = pending.iter().map(|(_, pending)| after(pending)).collect();
    let expires_ms = expiry(&pending, &afters, times);
    let parts = pending.into_iter().zip(afters);
    let part = |((key, pending), after): ((RecordKey, Pending), After)| {
        let before = pending.expected.clone();
        let members = Arc::clone(&members);
        let intent = is_write.then(|| {
            Arc::new(Intent { phase: Phase::Laid, stamp, expires_ms, members, before, after })
        });
        Part { key, expected: pending.expected, intent, state: PartState::Unsent }
    };
    parts.map(part).collect()
}

/// When the intents expire: not before any value that was or will be there.
fn expiry(pending: &[(RecordKey, Pending)], afters: &[After], times: Times) -> u64 {
    let before = pending.iter().filter(|(_, pending)| pending.expected.stamp.is_some());
    let before = before.map(|(_, pending)| pending.expected.expires_ms);
    let after = afters.iter().filter_map(|after| match after {
        After::Unchanged => None,
        After::Changed { expires_ms, .. } => Some(*expires_ms),
    });
    let least = std::iter::once(times.after(Duration::ZERO));
    before.chain(after).chain(least).reduce(later).unwrap_or(0)
}

/// The later of two expiries; 0 is never.
fn later(first: u64, second: u64) -> u64 {
    if first == 0 || second == 0 { 0 } else { first.max(second) }
}
