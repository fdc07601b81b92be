//! Conditions on the path of a request, which comes in its [normal form](normalized_path).

use super::text::quoted;
use super::{Condition, Pattern, Policy, Rule};
use crate::request_path::{EncodedSlash, normalized_path};

/// The attribute with the path of a request.
pub const PATH: &str = "path";

impl Condition {
    /// Why a pattern of a condition on `path` never matches: it is not in the normal form, in which
    /// the daemon's proxy checks and the tower layers have paths. `None` if it may match.
    #[must_use]
    pub fn path_problem(&self, slashes: EncodedSlash) -> Option<String> {
        self.path_problem_in(&[slashes])
    }

    /// The same, for a pattern that matches in none of some forms.
    pub(crate) fn path_problem_in(&self, forms: &[EncodedSlash]) -> Option<String> {
        if &*self.attribute != PATH {
            return None;
        }
        self.any_of.iter().find_map(|pattern| problem(pattern, forms))
    }
}

impl Policy {
    /// Other paths that a server may treat like those of the rules, and that the rules do not match:
    /// not mistakes, but worth a look. One note for the whole policy.
    #[must_use]
    pub fn path_note(&self) -> Option<String> {
        let mut exact = self.rules.iter().filter_map(|rule| Some((rule, exact_path(rule)?)));
        let (rule, path) = exact.next()?;
        let more = match exact.count() {
            0 => String::new(),
            more => format!(" The same holds for {more} more."),
        };
        let other_case = match path.to_ascii_uppercase() {
            upper if upper != path => format!("`{upper}`, "),
            _ => String::new(),
        };
        let slash =
            if path.ends_with('/') { path.trim_end_matches('/') } else { &*format!("{path}/") };
        Some(format!(
            "rule {} matches {} only, not {other_case}`{slash}` or `{path};x`: if your server treats \
             them alike, list them, or write a pattern with `*`.{more}",
            quoted(&rule.id.name),
            quoted(path),
        ))
    }
}

/// A path that a rule matches to the letter.
fn exact_path(rule: &Rule) -> Option<&str> {
    let conditions = rule.conditions.iter().filter(|it| &*it.attribute == PATH);
    conditions.flat_map(|it| &it.any_of).find_map(|pattern| match pattern {
        Pattern::Equals(path) if path.starts_with('/') && path.len() > 1 => Some(&**path),
        _ => None,
    })
}

fn problem(pattern: &Pattern, forms: &[EncodedSlash]) -> Option<String> {
    let text: &str = match pattern {
        Pattern::Equals(text) | Pattern::Glob(text) => text,
        Pattern::Range(..) | Pattern::Network(..) => return None,
    };
    // Whatever a `*` matches, the rest has to be normal. It may also match a part of an escape.
    let is_glob = matches!(pattern, Pattern::Glob(_));
    let is_cut = |piece: &str| piece.bytes().rev().take(2).any(|byte| byte == b'%');
    if text.is_empty() || is_glob && text.split('*').any(is_cut) {
        return None;
    }
    let sample = if is_glob { text.replace('*', "a") } else { text.into() };
    let mut normal = forms.iter().map(|form| normalized_path(sample.as_bytes(), *form));
    if normal.clone().any(|path| path.is_ok_and(|path| path == sample)) {
        return None;
    }
    let why = match normal.next()? {
        Ok(path) if !is_glob => format!("write {}", quoted(&path)),
        Ok(_) => "write it without escapes of letters, `//`, `/../`, `\\` or a query".into(),
        Err(error) => error.to_string(),
    };
    Some(format!("{} never matches, because paths are normalised: {why}", quoted(text)))
}
