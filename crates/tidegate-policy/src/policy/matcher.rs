//! Finds the rules of a domain that a request matches, in a time that does not grow with their
//! number.
//!
//! Each rule is indexed by one of its conditions: the one that the fewest other rules share. The
//! values of a request's attributes are looked up, which finds only rules that are indexed by them;
//! those are then checked in full. Rules that cannot be indexed are checked every time.

use std::collections::HashMap;

use smallvec::SmallVec;
use tidegate_table::hash::KeyedHash;

use super::pattern::address_of;
use super::{Condition, Pattern, Rule};
use crate::attributes::Attributes;
use networks::Networks;
use prefixes::Prefixes;

mod networks;
mod prefixes;

/// Finds the rules of one domain that a request matches. Rules go by their index in the list that
/// it was made from.
#[derive(Debug)]
pub struct Matcher {
    entries: Box<[MatcherRule]>,
    /// The conditions of all rules, each once: shared ones stay in the cache.
    conditions: Box<[Condition]>,
    indexes: Vec<Index>,
    /// The index of an attribute, as rules name it.
    by_name: HashMap<Box<str>, usize, KeyedHash>,
    /// Rules that are not indexed.
    residual: Vec<u32>,
}

/// The rules that a request matches, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches(SmallVec<[u32; 8]>);

/// The most rules that one request can make a [`Matcher`] check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorstCase {
    /// The rules, in their order.
    pub rules: Vec<u32>,
}

#[derive(Debug)]
struct MatcherRule {
    /// The conditions that are left to check when the rule is found.
    open: SmallVec<[u32; 4]>,
    group: Option<u32>,
}

/// The rules that are indexed by one attribute.
#[derive(Debug)]
struct Index {
    attribute: Box<str>,
    equal: HashMap<Box<str>, Ids, KeyedHash>,
    networks: Networks,
    prefixes: Prefixes,
}

/// Rules under one term of an index.
pub(super) type Ids = SmallVec<[u32; 4]>;

impl Matcher {
    /// A matcher for the rules of one domain.
    pub fn new<'r>(rules: impl IntoIterator<Item = &'r Rule>) -> Self {
        let mut groups = HashMap::new();
        let entries = rules.into_iter().map(|rule| {
            let next = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            let group = rule.group.as_deref().map(|name| *groups.entry(name).or_insert(next));
            (&*rule.conditions, group)
        });
        Self::of(entries.collect())
    }

    /// A matcher for lists of conditions, without groups.
    #[doc(hidden)]
    #[must_use]
    pub fn of_conditions<'r>(lists: impl IntoIterator<Item = &'r [Condition]>) -> Self {
        Self::of(lists.into_iter().map(|conditions| (conditions, None)).collect())
    }

    fn of(lists: Vec<(&[Condition], Option<u32>)>) -> Self {
        let mut crowds = HashMap::new();
        for condition in lists.iter().flat_map(|(conditions, _)| *conditions) {
            for term in condition.any_of.iter().filter_map(IndexTerm::of) {
                *crowds.entry((&*condition.attribute, term)).or_insert(0) += 1;
            }
        }
        let (hash, mut indexes) = (KeyedHash::new(), Vec::new());
        let mut by_name: HashMap<Box<str>, usize, _> = HashMap::with_hasher(hash.clone());
        let (mut residual, mut entries) = (Vec::new(), Vec::with_capacity(lists.len()));
        let mut known = KnownConditions::default();
        for (id, (conditions, group)) in (0_u32..).zip(&lists) {
            let indexed = best(conditions, &crowds);
            match indexed {
                None => residual.push(id),
                Some(at) => {
                    let attribute = &conditions[at].attribute;
                    let index = *by_name.entry(attribute.clone()).or_insert_with(|| {
                        indexes.push(Index::new(attribute, &hash));
                        indexes.len() - 1
                    });
                    indexes[index].insert(id, &conditions[at]);
                }
            }
            let proven = indexed.filter(|at| is_proven(&conditions[*at]));
            let ids = conditions.iter().map(|condition| known.id(condition)).enumerate();
            let open = ids.filter(|(at, _)| Some(*at) != proven).map(|(_, id)| id).collect();
            entries.push(MatcherRule { open, group: *group });
        }
        for index in &mut indexes {
            index.prefixes.finish();
        }
        let conditions = known.conditions.into_iter().cloned().collect();
        Self { entries: entries.into(), conditions, indexes, by_name, residual }
    }

    /// The rules that a request matches. Of the rules of one group only the first.
    ///
    /// Up to eight are found without allocating.
    #[must_use]
    pub fn find(&self, attributes: &Attributes<'_>) -> Matches {
        let mut found = SmallVec::new();
        if self.indexes.len() <= FEW_INDEXES {
            for index in &self.indexes {
                if let Some(value) = attributes.get(&index.attribute) {
                    index.look_up(value, |ids| self.retain_matching(ids, attributes, &mut found));
                }
            }
        } else {
            attributes.each(|name, value| {
                if let Some(index) = self.by_name.get(name) {
                    let keep = |ids: &[u32]| self.retain_matching(ids, attributes, &mut found);
                    self.indexes[*index].look_up(value, keep);
                }
            });
        }
        self.retain_matching(&self.residual, attributes, &mut found);
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
            self.first_of_groups(&mut found);
        }
        Matches(found)
    }

    /// Keeps the rules whose conditions hold.
    fn retain_matching(
        &self,
        ids: &[u32],
        attributes: &Attributes<'_>,
        found: &mut SmallVec<[u32; 8]>,
    ) {
        for id in ids {
            let entry = &self.entries[*id as usize];
            if entry.open.iter().all(|one| self.conditions[*one as usize].holds(attributes)) {
                found.push(*id);
            }
        }
    }

    /// Drops all but the first rule of each group. The rules are in order.
    fn first_of_groups(&self, found: &mut SmallVec<[u32; 8]>) {
        let group_of = |id: u32| self.entries[id as usize].group;
        if found.len() <= found.inline_size() {
            let mut seen: SmallVec<[u32; 8]> = SmallVec::new();
            found.retain(|id| {
                group_of(*id).is_none_or(|group| {
                    let is_new = !seen.contains(&group);
                    seen.push(group);
                    is_new
                })
            });
        } else {
            let mut seen = std::collections::HashSet::new();
            found.retain(|id| group_of(*id).is_none_or(|group| seen.insert(group)));
        }
    }

    /// The most rules that one request can make it check, and which.
    #[must_use]
    pub fn worst_case(&self) -> WorstCase {
        let mut worst = vec![(Vec::new(), Vec::new()); self.indexes.len()];
        for condition in &self.conditions {
            let Some(at) = self.by_name.get(&condition.attribute) else { continue };
            let (texts, addresses) = &mut worst[*at];
            for term in condition.any_of.iter().filter_map(IndexTerm::of) {
                let mut met = Vec::new();
                let most = match term {
                    IndexTerm::Equal(text) | IndexTerm::Prefix(text) => {
                        self.indexes[*at].look_up(text, |ids| met.extend_from_slice(ids));
                        &mut *texts
                    }
                    IndexTerm::Network(address, _) => {
                        let networks = &self.indexes[*at].networks;
                        networks.look_up(address, |ids| met.extend_from_slice(ids));
                        &mut *addresses
                    }
                };
                if met.len() > most.len() {
                    *most = met;
                }
            }
        }
        let mut rules = self.residual.clone();
        rules.extend(worst.into_iter().flat_map(|(texts, addresses)| [texts, addresses]).flatten());
        rules.sort_unstable();
        rules.dedup();
        WorstCase { rules }
    }
}

impl Matches {
    /// The rules, in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// The rules, in their order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|id| *id as usize)
    }
}

impl WorstCase {
    /// How many rules they are.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.rules.len()
    }
}

impl Index {
    fn new(attribute: &str, hash: &KeyedHash) -> Self {
        Self {
            attribute: attribute.into(),
            equal: HashMap::with_hasher(hash.clone()),
            networks: Networks::new(hash),
            prefixes: Prefixes::new(),
        }
    }

    fn insert(&mut self, id: u32, condition: &Condition) {
        for pattern in &condition.any_of {
            let ids = match IndexTerm::of(pattern) {
                Some(IndexTerm::Equal(text)) => self.equal.entry(text.into()).or_default(),
                Some(IndexTerm::Network(address, bits)) => self.networks.at(address, bits),
                Some(IndexTerm::Prefix(prefix)) => self.prefixes.at(prefix),
                None => unreachable!("a condition is indexed only if all of its patterns can be"),
            };
            if ids.last() != Some(&id) {
                ids.push(id);
            }
        }
    }

    /// All rules that this value finds.
    fn look_up(&self, value: &str, mut met: impl FnMut(&[u32])) {
        if !self.equal.is_empty()
            && let Some(ids) = self.equal.get(value)
        {
            met(ids);
        }
        if !self.networks.is_empty()
            && let Some(address) = address_of(value)
        {
            self.networks.look_up(address, &mut met);
        }
        self.prefixes.look_up(value, &mut met);
    }
}

/// What a pattern is indexed by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum IndexTerm<'p> {
    Equal(&'p str),
    Network(std::net::IpAddr, u8),
    Prefix(&'p str),
}

impl<'p> IndexTerm<'p> {
    fn of(pattern: &'p Pattern) -> Option<Self> {
        match pattern {
            Pattern::Equals(text) => Some(Self::Equal(text)),
            Pattern::Network(address, bits) => Some(Self::Network(*address, *bits)),
            Pattern::Glob(glob) => {
                let head = glob.split('*').next().unwrap_or_default();
                Some(Self::Prefix(head)).filter(|_| !head.is_empty())
            }
            Pattern::Range(..) => None,
        }
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Equal(_) => 0,
            Self::Network(..) => 1,
            Self::Prefix(_) => 2,
        }
    }
}

/// The condition to index a rule by: the one whose fullest term is the least crowded.
fn best(conditions: &[Condition], crowds: &HashMap<(&str, IndexTerm<'_>), u32>) -> Option<usize> {
    let crowd_of = |condition: &Condition| {
        let mut worst = (0, 0);
        for pattern in &condition.any_of {
            let term = IndexTerm::of(pattern)?;
            let crowd = crowds.get(&(&*condition.attribute, term)).copied().unwrap_or(0);
            worst = worst.max((crowd, term.rank()));
        }
        Some(worst)
    };
    let crowds = conditions.iter().enumerate();
    let crowds = crowds.filter_map(|(at, one)| crowd_of(one).map(|crowd| (crowd, at)));
    crowds.min().map(|(_, at)| at)
}

/// Whether a rule that was found by this condition meets it without a further check.
///
/// A prefix is found by its hash alone, see [`prefixes`].
fn is_proven(condition: &Condition) -> bool {
    condition.any_of.iter().all(|pattern| match pattern {
        Pattern::Equals(_) | Pattern::Network(..) => true,
        Pattern::Glob(glob) => glob.find('*') == Some(glob.len() - 1),
        Pattern::Range(..) => false,
    })
}

/// Conditions by number.
#[derive(Default)]
struct KnownConditions<'r> {
    ids: HashMap<&'r Condition, u32>,
    conditions: Vec<&'r Condition>,
}

impl<'r> KnownConditions<'r> {
    fn id(&mut self, condition: &'r Condition) -> u32 {
        let next = u32::try_from(self.conditions.len()).unwrap_or(u32::MAX);
        let id = *self.ids.entry(condition).or_insert(next);
        if id == next {
            self.conditions.push(condition);
        }
        id
    }
}

/// Up to this many indexes are all tried; with more, only the attributes of the request are looked
/// up.
const FEW_INDEXES: usize = 8;

#[cfg(test)]
mod tests;
