//! The limits of a rule: for which keys, from when, until when.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_policy::policy::Condition;

use crate::any_limit::AnyLimit;

/// A limit that is in force for some keys and some time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// `None`: it is the rule's common limit.
    pub(crate) keys: Option<Keys>,
    /// Of two overrides that match, the one with the lower rank counts.
    pub(crate) rank: i64,
    /// `None`: unlimited.
    pub(crate) limit: Option<AnyLimit>,
    /// The version that it came with.
    pub(crate) from: u32,
    /// The version that it went with.
    pub(crate) to: Option<u32>,
    /// When it ends, by the time of day.
    pub(crate) until: Option<Timestamp>,
}

/// The keys of an override.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keys {
    pub(crate) conditions: Arc<[Condition]>,
    /// The hash of the only key that meets the conditions, if there is only one.
    pub(crate) only: Option<u64>,
}

/// A key, as far as overrides need it.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub(crate) hash: u64,
    /// Whether it meets the conditions of an override.
    pub(crate) meets: &'a dyn Fn(&[Condition]) -> bool,
}

/// Spans in the order in which they were made, indexed by the keys that they name: finding those of
/// a key does not take longer when other keys have overrides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    spans: Vec<Arc<Span>>,
    /// Overrides that name a key: the hash of the key, and their index.
    named: Vec<(u64, usize)>,
    /// Overrides by pattern.
    patterns: Vec<usize>,
    common: Vec<usize>,
}

/// The indexes of some spans.
pub(super) type SpanIndexes = SmallVec<[usize; 4]>;

impl Spans {
    pub(super) fn push(&mut self, span: Span) {
        let index = self.spans.len();
        match &span.keys {
            None => self.common.push(index),
            Some(Keys { only: None, .. }) => self.patterns.push(index),
            Some(Keys { only: Some(hash), .. }) => {
                let entry = (*hash, index);
                let at = self.named.partition_point(|known| *known < entry);
                self.named.insert(at, entry);
            }
        }
        self.spans.push(Arc::new(span));
    }

    /// Ends a span, unless an edit has already.
    pub(super) fn end(&mut self, index: usize, tag: u32) {
        let span = &mut self.spans[index];
        if span.to.is_none() {
            Arc::make_mut(span).to = Some(tag);
        }
    }

    /// The common limits, oldest first.
    pub(super) fn common(&self) -> &[usize] {
        &self.common
    }

    /// The overrides that match a key, by rank.
    pub(super) fn overrides_of(&self, key: KeyRef<'_>) -> SpanIndexes {
        let mut found: SpanIndexes = self.matching(key).collect();
        found.sort_by_key(|index| (self.spans[*index].rank, *index));
        found
    }

    /// The next end of an override that concerns a key, by the time of day.
    pub(super) fn next_end(&self, key: KeyRef<'_>, wall: Timestamp) -> Option<Timestamp> {
        // Also of those that an edit has dropped: where the edit waits, they count.
        let ends = self.matching(key).filter_map(|index| self.spans[index].until);
        ends.filter(|until| *until > wall).min()
    }

    fn matching(&self, key: KeyRef<'_>) -> impl Iterator<Item = usize> {
        let first = self.named.partition_point(|(hash, _)| *hash < key.hash);
        let named = self.named[first..].iter().take_while(move |(hash, _)| *hash == key.hash);
        let meets = move |index: &usize| {
            self.spans[*index].keys.as_ref().is_some_and(|keys| (key.meets)(&keys.conditions))
        };
        named.map(|(_, index)| *index).chain(self.patterns.iter().copied().filter(meets))
    }

    /// Whether some override does not name its key.
    pub(super) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Memory in use, in bytes, for overrides of usual sizes.
    pub(super) fn bytes(&self) -> usize {
        let of_span = size_of::<Arc<Span>>() + size_of::<Span>() + size_of::<Condition>();
        self.spans.len() * (of_span + size_of::<(u64, usize)>())
    }
}

impl FromIterator<Arc<Span>> for Spans {
    fn from_iter<I: IntoIterator<Item = Arc<Span>>>(spans: I) -> Self {
        let mut all = Self { spans: spans.into_iter().collect(), ..Self::default() };
        for (index, span) in all.spans.iter().enumerate() {
            match &span.keys {
                None => all.common.push(index),
                Some(Keys { only: None, .. }) => all.patterns.push(index),
                Some(Keys { only: Some(hash), .. }) => all.named.push((*hash, index)),
            }
        }
        all.named.sort_unstable();
        all
    }
}

impl Deref for Spans {
    type Target = [Arc<Span>];

    fn deref(&self) -> &Self::Target {
        &self.spans
    }
}
