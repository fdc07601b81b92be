//! Names for rules whose file gives them none, or gives one to several.

use std::collections::{HashMap, HashSet};

/// The names that are taken, by domain.
#[derive(Default)]
pub(super) struct UniqueNames(HashMap<String, Taken>);

#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    /// The number to try next for a name that is taken, so that a thousand of them are not a million
    /// tries.
    numbers: HashMap<String, u64>,
}

impl UniqueNames {
    /// Takes a name that no rule of the domain has yet: what is wanted, else that with `apart` behind
    /// it, else that with a number. All of them are short, and what tells them apart is never cut off.
    pub(super) fn take(&mut self, domain: &str, wanted: &str, apart: &str) -> String {
        if !self.0.contains_key(domain) {
            self.0.insert(domain.to_owned(), Taken::default());
        }
        let taken = self.0.get_mut(domain).unwrap_or_else(|| unreachable!("it is put there"));
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

/// Without what a name must not have.
fn clean(text: &str) -> String {
    let end = text.floor_char_boundary(MOST_BYTES + 1);
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A text that is cut so far that what must be behind it has room.
fn shortened(text: &str, behind: &str) -> String {
    if text.len() + behind.len() <= MOST_BYTES {
        return format!("{text}{behind}");
    }
    let end = text.floor_char_boundary(MOST_BYTES - CUT.len_utf8() - behind.len());
    format!("{}{CUT}{behind}", &text[..end])
}

/// Below what the name of a rule may have.
const MOST_BYTES: usize = 123;
/// Where something was cut off.
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
            let name = names.take("d", wanted, " (b)");
            assert!(name.len() <= MOST_BYTES && !name.chars().any(char::is_control), "{name:?}");
            assert!(seen.insert(name.clone()), "{name:?} twice");
        }
        for name in ["a", "a (b)", "a 2", "a 2 (b)"] {
            assert!(seen.contains(name), "{name}");
        }
        assert_eq!(names.take("other", "a", ""), "a");
    }

    #[test]
    fn many_of_one_name_do_not_take_long() {
        let mut names = UniqueNames::default();
        let last = (0..100_000).map(|_| names.take("d", "a", "")).last();
        assert_eq!(last.as_deref(), Some("a 100000"));
    }
}
