//! The part of CEL that conditions on descriptors are written in: comparisons, joined by `&&`.

use crate::attributes::MOST_COUNTED;
use crate::policy::Pattern;
use crate::policy::text::{TextError, quoted};

/// One comparison of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) attribute: String,
    /// The index of its descriptor in the call.
    pub(super) descriptor: usize,
    pub(super) pattern: Pattern,
    /// Whether the attribute must be present and not match.
    pub(super) is_excluded: bool,
}

/// The comparisons of a condition; all of them must hold.
pub(super) fn condition(text: &str) -> Result<Vec<Test>, TextError> {
    let tokens = tokens(text)?;
    let parts = tokens.split(|token| *token == Token::Sign("&&"));
    parts.map(|part| comparison(part).ok_or_else(|| unsupported(text))?).collect()
}

/// The attribute that a variable names, and the index of its descriptor.
pub(super) fn variable(text: &str) -> Result<(String, usize), TextError> {
    let tokens = tokens(text)?;
    match operand(&tokens) {
        Some((Operand::Attribute(entry) | Operand::Number(entry), [])) => {
            Ok((entry.key, entry.descriptor))
        }
        _ => Err(TextError::new(format!("{} is not supported", quoted(text)))
            .hint("a variable is `descriptors[0]['key']`, `descriptors[0].key` or `key`")),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Text(String),
    Integer(i64),
    Sign(&'static str),
}

/// An entry of one of the descriptors of a call.
struct Entry {
    descriptor: usize,
    key: String,
}

/// One side of a comparison.
enum Operand {
    /// The text of an attribute.
    Attribute(Entry),
    /// The number in an attribute.
    Number(Entry),
    Text(String),
    Integer(i64),
}

/// A comparison; `None` if it is not one, an error if it cannot hold.
fn comparison(tokens: &[Token]) -> Option<Result<Test, TextError>> {
    let (left, rest) = operand(tokens)?;
    let [Token::Sign(sign), rest @ ..] = rest else { return None };
    let (right, []) = operand(rest)? else { return None };
    let (Entry { descriptor, key: attribute }, is_number, value, sign) = match (left, right) {
        (Operand::Attribute(name), value) => (name, false, value, *sign),
        (Operand::Number(name), value) => (name, true, value, *sign),
        (value, Operand::Attribute(name)) => (name, false, value, turned(sign)),
        (value, Operand::Number(name)) => (name, true, value, turned(sign)),
        _ => return None,
    };
    let is_excluded = sign == "!=";
    let pattern = match value {
        Operand::Text(text) if !is_number && matches!(sign, "==" | "!=") => {
            Pattern::Equals(text.into())
        }
        Operand::Text(_) => return Some(Err(compares_texts(&attribute))),
        Operand::Integer(number) => match range(sign, number)? {
            (first, last) if first <= last => Pattern::Range(first, last),
            _ => return Some(Err(TextError::new("no number satisfies it"))),
        },
        Operand::Attribute(_) | Operand::Number(_) => return None,
    };
    Some(Ok(Test { attribute, descriptor, pattern, is_excluded }))
}

/// The numbers that satisfy a comparison with one.
fn range(sign: &str, number: i64) -> Option<(i64, i64)> {
    Some(match sign {
        "==" | "!=" => (number, number),
        "<" => (i64::MIN, number.checked_sub(1)?),
        "<=" => (i64::MIN, number),
        ">" => (number.checked_add(1)?, i64::MAX),
        ">=" => (number, i64::MAX),
        _ => return None,
    })
}

/// The operator with its sides swapped.
fn turned(sign: &'static str) -> &'static str {
    match sign {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        same => same,
    }
}

/// An operand at the start, and the rest.
fn operand(tokens: &[Token]) -> Option<(Operand, &[Token])> {
    use Token::{Integer, Name, Sign, Text};
    match tokens {
        [Text(text), rest @ ..] => Some((Operand::Text(text.clone()), rest)),
        [Integer(number), rest @ ..] => Some((Operand::Integer(*number), rest)),
        [Name(int), Sign("("), rest @ ..] if int == "int" => {
            let (name, rest) = attribute(rest)?;
            let [Sign(")"), rest @ ..] = rest else { return None };
            Some((Operand::Number(name), rest))
        }
        _ => attribute(tokens).map(|(name, rest)| (Operand::Attribute(name), rest)),
    }
}

/// `descriptors[0]['key']`, `descriptors[0].key`, or `key`.
fn attribute(tokens: &[Token]) -> Option<(Entry, &[Token])> {
    use Token::{Integer, Name, Sign, Text};
    match tokens {
        [Name(list), Sign("["), Integer(index), Sign("]"), rest @ ..] if list == "descriptors" => {
            let descriptor = usize::try_from(*index).ok().filter(|it| *it <= MOST_COUNTED)?;
            match rest {
                [Sign("["), Text(key), Sign("]"), rest @ ..] => {
                    Some((Entry { descriptor, key: key.clone() }, rest))
                }
                [Name(key), rest @ ..] if key.starts_with('.') && !key[1..].contains('.') => {
                    Some((Entry { descriptor, key: key[1..].to_owned() }, rest))
                }
                _ => None,
            }
        }
        [Name(list), Sign("["), ..] if list == "descriptors" => None,
        [Name(key), rest @ ..] if !key.starts_with('.') && key != "descriptors" => {
            Some((Entry { descriptor: 0, key: key.clone() }, rest))
        }
        _ => None,
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, TextError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
        let (token, len) = if let Some(sign) = sign {
            (Token::Sign(sign), sign.len())
        } else if first == '\'' || first == '"' {
            let end = rest[1..].find(first).ok_or_else(|| unsupported(text))?;
            let inner = &rest[1..=end];
            if inner.contains('\\') {
                return Err(unsupported(text));
            }
            (Token::Text(inner.into()), end + 2)
        } else if first.is_ascii_digit() || first == '-' {
            let is_end = |(at, c): (usize, char)| at > 0 && !c.is_ascii_digit();
            let end = rest.char_indices().find(|it| is_end(*it)).map_or(rest.len(), |it| it.0);
            (Token::Integer(rest[..end].parse().map_err(|_| unsupported(text))?), end)
        } else if first.is_alphabetic() || matches!(first, '_' | '.') {
            let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
            let end = rest.find(|c| !is_inner(c)).unwrap_or(rest.len());
            (Token::Name(rest[..end].into()), end)
        } else {
            return Err(unsupported(text));
        };
        tokens.push(token);
        rest = rest[len..].trim_start();
    }
    Ok(tokens)
}

fn unsupported(text: &str) -> TextError {
    TextError::new(format!("the condition {} is not supported", quoted(text))).hint(
        "a condition compares an attribute (`descriptors[0]['key']`, `descriptors[0].key` or `key`) \
         with a text (==, !=) or a whole number (==, !=, <, <=, >, >=); several are joined by `&&`",
    )
}

fn compares_texts(attribute: &str) -> TextError {
    TextError::new("text is compared by == and != only")
        .hint(format!("compare a number: `int(descriptors[0]['{attribute}']) < 10`"))
}

const SIGNS: [&str; 11] = ["&&", "==", "!=", "<=", ">=", "<", ">", "[", "]", "(", ")"];

#[cfg(test)]
mod tests;
