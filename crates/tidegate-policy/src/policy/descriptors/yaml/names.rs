//! Names for rules whose file gives them none, or gives one to several.

use std::collections::{HashMap, HashSet};

use crate::policy::text::char_start;

/// The names in use, by domain.
#[derive(Default)]
pub(super) struct UniqueNames(HashMap<String, Taken>);

#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    /// The next number to try for a name in use, so that a thousand of them do not need a million
    /// tries.
    numbers: HashMap<String, u64>,
}

impl UniqueNames {
    /// Reserves a name that no rule of the domain has yet: the wanted one, else that with `apart`
    /// appended, else that with a number. All are short, and what distinguishes them is never cut
    /// off.
    pub(super) fn reserve(&mut self, domain: &str, wanted: &str, apart: &str) -> String {
        if !self.0.contains_key(domain) {
            self.0.insert(domain.to_owned(), Taken::default());
        }
        let taken = self.0.get_mut(domain).unwrap_or_else(|| unreachable!("it was just inserted"));
        let wanted = clean(wanted);
        let first = shortened(&wanted, "");
        let second = shortened(&format!("{wanted}{}", clean(apart)), "");
        if let Some(name) = [&first, &second].into_iter().find(|it| !taken.names.contains(*it)) {
            taken.names.insert(name.clone());
            return name.clone();
        }
        let number = taken.numbers.entry(first).or_insert(2);
        loop {
            let name = shortened(&wanted, &format!(" {number}"));
            *number += 1;
            if taken.names.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Replaces characters that a name must not have.
fn clean(text: &str) -> String {
    let end = char_start(text, MOST_BYTES + 1);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A text, cut so that `suffix` fits after it.
fn shortened(text: &str, suffix: &str) -> String {
    if text.len() + suffix.len() <= MOST_BYTES {
        return format!("{text}{suffix}");
    }
    let end = char_start(text, MOST_BYTES - CUT.len_utf8() - suffix.len());
    format!("{}{CUT}{suffix}", &text[..end])
}

/// Less than the name of a rule may have.
const MOST_BYTES: usize = 123;
/// Marks a cut.
const CUT: char = '…';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_whatever_is_cut_off() {
        let mut names = UniqueNames::default();
        let long = "é".repeat(100);
        let mut seen = HashSet::new();
        for wanted in ["a", "a", "a", "a 2", "a (b)", &long, &long, &long, "\n", "\t"] {
            let name = names.reserve("d", wanted, " (b)");
            assert!(name.len() <= MOST_BYTES && !name.chars().any(char::is_control), "{name:?}");
            assert!(seen.insert(name.clone()), "{name:?} twice");
        }
        for name in ["a", "a (b)", "a 2", "a 2 (b)"] {
            assert!(seen.contains(name), "{name}");
        }
        assert_eq!(names.reserve("other", "a", ""), "a");
    }

    #[test]
    fn many_of_one_name_do_not_take_long() {
        let mut names = UniqueNames::default();
        let last = (0..100_000).map(|_| names.reserve("d", "a", "")).last();
        assert_eq!(last.as_deref(), Some("a 100000"));
    }
}
