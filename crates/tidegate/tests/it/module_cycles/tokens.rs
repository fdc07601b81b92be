//! The tokens of a source file, without comments, texts, and items that are for tests only.

/// A name, a number, `::`, or one other character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    /// From 1.
    pub(super) line: usize,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(super) fn is_name(&self) -> bool {
        self.text.starts_with(|it: char| it.is_alphabetic() || it == '_')
    }
}

/// The tokens of a source file, without what is for tests only.
pub(super) fn tokens(source: &str) -> Vec<Token> {
    without_tests(&all_tokens(source))
}

fn all_tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let length = skipped(&chars[at..]);
        if length > 0 {
            line += chars[at..at + length].iter().filter(|it| **it == '\n').count();
            at += length;
            continue;
        }
        let is_in_name = |it: &&char| it.is_alphanumeric() || **it == '_';
        let length = match chars[at..] {
            [':', ':', ..] => 2,
            _ => chars[at..].iter().take_while(is_in_name).count().max(1),
        };
        tokens.push(Token { text: chars[at..at + length].iter().collect(), line });
        at += length;
    }
    tokens
}

/// How many characters at the start are no token: spaces, a comment, a text, a character.
fn skipped(chars: &[char]) -> usize {
    match chars {
        [it, ..] if it.is_whitespace() => 1,
        ['/', '/', ..] => chars.iter().take_while(|it| **it != '\n').count(),
        ['/', '*', ..] => block_comment(chars),
        ['"', ..] => text(chars),
        ['r', '"', ..] | ['r', '#', '"' | '#', ..] => raw_text(chars),
        // A character; `'a` without an end is a lifetime.
        ['\'', '\\', _, rest @ ..] => 3 + rest.iter().take_while(|it| **it != '\'').count() + 1,
        ['\'', _, '\'', ..] => 3,
        ['\'', ..] => 1,
        _ => 0,
    }
}

fn block_comment(chars: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < chars.len() {
        match chars[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn text(chars: &[char]) -> usize {
    let mut at = 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

fn raw_text(chars: &[char]) -> usize {
    let hashes = chars[1..].iter().take_while(|it| **it == '#').count();
    let start = 2 + hashes;
    let is_end = |at: &usize| {
        chars[*at] == '"'
            && chars[at + 1..].iter().take(hashes).filter(|it| **it == '#').count() == hashes
    };
    (start..chars.len()).find(is_end).map_or(chars.len(), |at| at + 1 + hashes)
}

/// Drops every item with an attribute `cfg(test)`, or `cfg(all(…, test, …))`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = attribute_len(&tokens[at..]);
        let has = |name: &str| tokens[at..at + attribute].iter().any(|it| it.is(name));
        if attribute > 0 && has("cfg") && has("test") && !has("not") {
            at += attribute;
            at += item_len(&tokens[at..]);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// The length of an attribute at the start; 0 if there is none.
fn attribute_len(tokens: &[Token]) -> usize {
    match tokens {
        [hash, bracket, ..] if hash.is("#") && bracket.is("[") => {
            1 + balanced_len(&tokens[1..], ("[", "]"))
        }
        _ => 0,
    }
}

/// The length of an item: up to its `;`, or to the end of its braces.
fn item_len(tokens: &[Token]) -> usize {
    let mut at = 0;
    while at < tokens.len() {
        match attribute_len(&tokens[at..]) {
            0 => break,
            length => at += length,
        }
    }
    let is_use = tokens[at..].iter().take(6).any(|it| it.is("use"));
    while let Some(token) = tokens.get(at) {
        match &*token.text {
            ";" => return at + 1,
            "{" if !is_use => return at + balanced_len(&tokens[at..], ("{", "}")),
            "(" => at += balanced_len(&tokens[at..], ("(", ")")),
            "[" => at += balanced_len(&tokens[at..], ("[", "]")),
            _ => at += 1,
        }
    }
    at
}

/// The length up to the end of the bracket at the start.
fn balanced_len(tokens: &[Token], (open, close): (&str, &str)) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        depth += usize::from(token.is(open));
        depth -= usize::from(token.is(close));
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}
