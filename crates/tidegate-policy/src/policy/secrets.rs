//! Lines of a file as they may be printed: without the secrets in them.

/// The fields whose values are secret.
const SECRET_FIELDS: [&str; 4] = [
    // Of `store_secret`, too, and of a token that has its secret in place of a hash.
    "secret",
    "sha256",
    "store_password",
    "store_sentinel_password",
];

/// A line with asterisks in place of the bytes of secrets: the values of secret fields, and what is
/// before the `@` of an address. Its length is the same.
pub(super) fn without_secrets(line: &str) -> String {
    let mut hidden = vec![false; line.len()];
    for field in SECRET_FIELDS {
        for (at, _) in line.match_indices(field) {
            let name_end = at + field.len();
            let after = line[name_end..].trim_start_matches([' ', '\t', '"', '\'']);
            if after.starts_with('=') {
                hidden[line.len() - after.len() + 1..].fill(true);
            }
        }
    }
    for (at, separator) in line.match_indices("://") {
        let first = at + separator.len();
        let end = line[first..].find(['"', '\'']).map_or(line.len(), |end| first + end);
        if let Some(length) = line[first..end].rfind('@') {
            hidden[first..first + length].fill(true);
        }
    }
    // The secrets of tokens, wherever they are.
    for (at, _) in line.match_indices("tg_") {
        let is_of_secret = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
        let rest = &line[at..];
        let length = rest.find(|it| !is_of_secret(it)).unwrap_or(rest.len());
        if length > SHORTEST_SECRET {
            hidden[at..at + length].fill(true);
        }
    }
    let is_plain = |it: char| it.is_whitespace() || it == '"' || it == '\'';
    let shown = line.char_indices().map(|(at, it)| match hidden[at] && !is_plain(it) {
        true => "*".repeat(it.len_utf8()),
        false => it.to_string(),
    });
    shown.collect()
}

/// Shorter words that begin like a secret are none.
const SHORTEST_SECRET: usize = 16;

#[cfg(test)]
mod tests;
