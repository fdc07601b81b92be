//! Tokens of the admin listener, and their roles.

use std::hint::black_box;

use tidegate::policy::Secret;

use super::Role;
use crate::settings::Settings;

/// The tokens that the admin listener accepts.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    full: Option<Secret>,
    read: Option<Secret>,
}

impl Tokens {
    pub(crate) fn of(settings: &Settings) -> Self {
        // A token from a file ends in a newline, and clients cannot send one in a header.
        let trimmed =
            |token: &Option<Secret>| token.as_ref().map(|token| Secret::new(token.reveal().trim()));
        Self { full: trimmed(&settings.admin_token), read: trimmed(&settings.admin_read_token) }
    }

    /// Whether no token is needed, which is allowed on loopback only.
    pub(crate) fn are_none(&self) -> bool {
        self.full.is_none() && self.read.is_none()
    }

    /// The role of a client with this token; `None`: not authenticated.
    ///
    /// If any token is set, changes need the full one, also if that one is not set.
    pub(crate) fn role(&self, shown: Option<&str>) -> Option<Role> {
        if self.are_none() {
            return Some(Role::Full);
        }
        let shown = shown?;
        let is = |secret: &Option<Secret>| {
            secret.as_ref().is_some_and(|it| is_same(shown.bytes(), it.reveal().as_bytes()))
        };
        // Both are compared, whatever the first result is.
        match (is(&self.full), is(&self.read)) {
            (true, _) => Some(Role::Full),
            (false, true) => Some(Role::Read),
            (false, false) => None,
        }
    }
}

/// Whether the bytes equal the secret, in a time that depends on the bytes alone and not on how
/// many of them are right. An empty secret equals nothing.
fn is_same(shown: impl Iterator<Item = u8>, secret: &[u8]) -> bool {
    if secret.is_empty() {
        return false;
    }
    let (mut difference, mut length) = (0, 0);
    for byte in shown {
        difference = black_box(difference | (byte ^ secret[length % secret.len()]));
        length += 1;
    }
    (difference == 0) & (length == secret.len())
}

#[cfg(test)]
mod tests {
    use tidegate::policy::Policy;

    use super::{Role, Settings, Tokens, is_same};

    #[test]
    fn only_equal_bytes_match_a_secret() {
        let secret = b"correct horse";
        assert!(is_same(secret.iter().copied(), secret));
        let others: [&[u8]; 7] = [
            b"",
            b"correct hors",
            b"correct horse ",
            b"correct horsf",
            b"dorrect horse",
            b"Correct horse",
            b"correct horsecorrect horse",
        ];
        for other in others {
            assert!(!is_same(other.iter().copied(), secret), "{other:?}");
        }
        assert!(!is_same(b"".iter().copied(), b""), "an empty secret equals nothing");
    }

    #[test]
    fn all_bytes_are_compared_however_early_one_differs() {
        for shown in [&b"correct horse"[..], b"xorrect horse", b"x", b"correct horse and more"] {
            let mut compared = 0;
            let _ = is_same(shown.iter().copied().inspect(|_| compared += 1), b"correct horse");
            assert_eq!(compared, shown.len());
        }
    }

    #[test]
    fn only_a_token_gives_its_role() {
        let tokens = |server: &str| {
            let rule = "[[rule]]\nname = 'all'\nwindow = { max = 1, per = '1h' }";
            let text = format!("[server]\n{server}\n{rule}");
            let file = Policy::parse("policy.toml", text.as_bytes());
            Tokens::of(&Settings::new(file.expect("a policy")))
        };
        let both = tokens("admin_token = 'write'\nadmin_read_token = 'look'");
        let full = tokens("admin_token = 'write'");
        let read = tokens("admin_read_token = 'look'");
        let none = tokens("");
        let lines = tokens("admin_token = \"write\\n\"\nadmin_read_token = \"look\\r\\n\"");
        let cases = [
            (&both, Some("write"), Some(Role::Full)),
            (&both, Some("look"), Some(Role::Read)),
            (&both, Some("lookx"), None),
            (&both, Some(""), None),
            (&both, None, None),
            (&full, Some("write"), Some(Role::Full)),
            (&full, Some("look"), None),
            (&full, None, None),
            (&read, Some("look"), Some(Role::Read)),
            (&read, Some(""), None),
            (&read, None, None),
            (&lines, Some("write"), Some(Role::Full)),
            (&lines, Some("look"), Some(Role::Read)),
            (&none, None, Some(Role::Full)),
            (&none, Some("anything"), Some(Role::Full)),
        ];
        for (tokens, shown, expected) in cases {
            assert_eq!(tokens.role(shown), expected, "{tokens:?} {shown:?}");
        }
        assert!(none.are_none() && !read.are_none() && !full.are_none());
    }
}
