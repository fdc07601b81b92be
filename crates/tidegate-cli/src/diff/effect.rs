//! What a new policy does to logged requests, compared with the old one.

use std::collections::HashMap;

use tidegate::policy::Mode;
use tidegate_replay::{ReadSummary, Replay, Totals};

use crate::format;

/// The decisions of both policies on the same requests.
pub(crate) struct Effect {
    pub(crate) old: PolicyEffect,
    pub(crate) new: PolicyEffect,
    pub(crate) unreadable: u64,
    pub(crate) late: u64,
    /// Whether an input was not read to its end.
    pub(crate) is_cut_short: bool,
    /// Whether there were too many keys to list all that differ.
    pub(crate) is_estimate: bool,
    /// The keys whose denials differ, those that differ most first.
    pub(crate) keys: Vec<KeyEffect>,
}

/// What one policy decided.
pub(crate) struct PolicyEffect {
    pub(crate) totals: Totals,
    pub(crate) keys_denied: u64,
}

/// A key whose denials differ.
pub(crate) struct KeyEffect {
    pub(crate) key: Vec<(Box<str>, Option<Box<str>>)>,
    pub(crate) old_denied: u64,
    pub(crate) new_denied: u64,
}

/// How the denials of a key differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyChange {
    Newly,
    NoLonger,
    More,
    Less,
}

impl KeyChange {
    pub(crate) const ALL: [Self; 4] = [Self::Newly, Self::NoLonger, Self::More, Self::Less];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Newly => "newly denied",
            Self::NoLonger => "no longer denied",
            Self::More => "denied more often",
            Self::Less => "denied less often",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Newly => "newly_denied",
            Self::NoLonger => "no_longer_denied",
            Self::More => "more_denied",
            Self::Less => "less_denied",
        }
    }
}

impl Effect {
    pub(crate) fn new(old: &Replay, new: &Replay, summary: &ReadSummary) -> Self {
        let mut denials: HashMap<_, [u64; 2]> = HashMap::new();
        for (index, replay) in [old, new].into_iter().enumerate() {
            let enforced = replay.counts().denied_keys().filter(|key| key.mode == Mode::Enforce);
            for key in enforced {
                denials.entry(key.key).or_default()[index] += key.denied;
            }
        }
        let mut keys: Vec<KeyEffect> = (denials.into_iter())
            .filter(|(_, [old, new])| old != new)
            .map(|(key, [old_denied, new_denied])| KeyEffect { key, old_denied, new_denied })
            .collect();
        keys.sort_by(|a, b| {
            let by = |it: &KeyEffect| std::cmp::Reverse(it.old_denied.abs_diff(it.new_denied));
            by(a).cmp(&by(b)).then_with(|| a.key.cmp(&b.key))
        });
        let is_estimate = |it: &Replay| it.counts().is_estimate() || it.counts().is_pruned();
        Self {
            old: PolicyEffect::new(old),
            new: PolicyEffect::new(new),
            unreadable: summary.unreadable,
            late: summary.late,
            is_cut_short: summary.inputs.iter().any(|input| input.cut_short.is_some()),
            is_estimate: is_estimate(old) || is_estimate(new),
            keys,
        }
    }

    /// The keys that differ in a way.
    pub(crate) fn keys(&self, change: KeyChange) -> impl Iterator<Item = &KeyEffect> {
        self.keys.iter().filter(move |key| key.change() == change)
    }
}

impl PolicyEffect {
    fn new(replay: &Replay) -> Self {
        let counts = replay.counts();
        Self { totals: counts.totals(), keys_denied: counts.keys_denied() }
    }
}

impl KeyEffect {
    pub(crate) const fn change(&self) -> KeyChange {
        match (self.old_denied, self.new_denied) {
            (0, _) => KeyChange::Newly,
            (_, 0) => KeyChange::NoLonger,
            (old, new) if old < new => KeyChange::More,
            _ => KeyChange::Less,
        }
    }

    /// The attributes of the key and their values, on one line.
    pub(crate) fn text(&self) -> String {
        if self.key.is_empty() {
            return "all requests".into();
        }
        let part = |(name, value): &(Box<str>, Option<Box<str>>)| match value {
            Some(value) => format!("{name}={value}"),
            None => format!("{name} is missing"),
        };
        format::visible(&self.key.iter().map(part).collect::<Vec<_>>().join(", "))
    }
}

/// A number before and after, and the difference: `3 → 5 (+2)`.
pub(crate) fn change(old: u64, new: u64) -> String {
    let (before, after) = (format::thousands(old), format::thousands(new));
    let sign = if new >= old { '+' } else { '-' };
    let by = format::thousands(old.abs_diff(new));
    if old == new { after } else { format!("{before} → {after} ({sign}{by})") }
}
