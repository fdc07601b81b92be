//! Whether one rule matches everything that another one matches.

use super::pattern::is_within;
use super::{Condition, Matcher, Pattern};
use crate::attributes::NamedAttributes;

/// The work left for the comparisons of one policy. Beyond it the result is no.
#[derive(Debug)]
pub(crate) struct WorkBudget(u64);

impl WorkBudget {
    pub(crate) const fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// Uses some steps; false if there are not enough left.
    pub(crate) const fn spend(&mut self, steps: u64) -> bool {
        match self.0.checked_sub(steps) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }
}

/// Whether every request that meets `narrow` meets `wide`. A no may be wrong, a yes is not.
pub(crate) fn covers(wide: &[Condition], narrow: &[Condition], effort: &mut WorkBudget) -> bool {
    wide.iter().all(|wide| {
        let narrow = narrow.iter().find(|narrow| narrow.attribute == wide.attribute);
        narrow.is_some_and(|narrow| condition_covers(wide, narrow, effort))
    })
}

fn condition_covers(wide: &Condition, narrow: &Condition, effort: &mut WorkBudget) -> bool {
    narrow.any_of.iter().all(|narrow| {
        wide.any_of.iter().any(|wide| effort.spend(1) && pattern_covers(wide, narrow))
    })
}

fn pattern_covers(wide: &Pattern, narrow: &Pattern) -> bool {
    match (wide, narrow) {
        (wide, narrow) if wide == narrow => true,
        (Pattern::Glob(glob), _) if glob.bytes().all(|byte| byte == b'*') => true,
        (Pattern::Glob(_) | Pattern::Range(..), Pattern::Equals(text)) => wide.matches(text),
        (Pattern::Glob(wide), Pattern::Glob(narrow)) => {
            let head = wide.strip_suffix('*').filter(|head| !head.contains('*'));
            head.is_some_and(|head| narrow.starts_with(head))
        }
        (Pattern::Range(first, last), Pattern::Range(low, high)) => first <= low && high <= last,
        (Pattern::Network(wide, wide_bits), Pattern::Network(narrow, narrow_bits)) => {
            wide_bits <= narrow_bits && is_within(*narrow, *wide, *wide_bits)
        }
        _ => false,
    }
}

/// Finds which of some lists of conditions cover another: those must hold for any request that
/// meets the other, so for an example of one. That spares comparing each with each.
pub(crate) struct Subsumption<'r> {
    lists: Vec<&'r [Condition]>,
    matcher: Matcher,
    /// The most steps of one lookup.
    steps: u64,
}

impl<'r> Subsumption<'r> {
    pub(crate) fn new(lists: Vec<&'r [Condition]>) -> Self {
        let matcher = Matcher::of_conditions(lists.iter().copied());
        let steps = u64::try_from(matcher.worst_case().candidates()).unwrap_or(u64::MAX);
        Self { lists, matcher, steps: steps.saturating_add(1) }
    }

    /// The lists that cover this one, in their order.
    pub(crate) fn of(&self, narrow: &[Condition], effort: &mut WorkBudget) -> Vec<usize> {
        if !effort.spend(self.steps) {
            return Vec::new();
        }
        let example: Vec<(&str, String)> = narrow
            .iter()
            .filter_map(|condition| {
                Some((&*condition.attribute, example(condition.any_of.first()?)))
            })
            .collect();
        let example =
            NamedAttributes::new(example.iter().map(|(attribute, value)| (*attribute, &**value)));
        let found = self.matcher.find(&example.attributes());
        found.iter().filter(|at| covers(self.lists[*at], narrow, effort)).collect()
    }
}

/// A value that matches the pattern.
fn example(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Equals(text) => text.to_string(),
        Pattern::Glob(glob) => glob.replace('*', ""),
        Pattern::Range(first, _) => first.to_string(),
        Pattern::Network(address, _) => address.to_string(),
    }
}

#[cfg(test)]
mod tests;
